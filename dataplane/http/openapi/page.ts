/** The operations as one HTML page without any script, for the ops port. */
import { openApiDocument } from "./document.ts";

const escape = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

export function apiPage(): string {
  const { paths } = openApiDocument();
  const rows = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { summary }]) =>
      [method.toUpperCase(), path, String(summary)].map((cell) => `<td>${escape(cell)}</td>`).join(""),
    ),
  );
  return `<!doctype html>
<meta charset="utf-8">
<title>Gapura: API</title>
<style>body{font:14px system-ui;margin:2em}td{padding:.2em 1em .2em 0}td:nth-child(2){font-family:monospace}</style>
<h1>API</h1>
<p>The whole description is the OpenAPI 3.1 document at <a href="/openapi.json">/openapi.json</a>.</p>
<table>
${rows.map((row) => `<tr>${row}</tr>`).join("\n")}
</table>
`;
}
