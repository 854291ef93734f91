/** The curl line that repeats a request, with the keys left out. */
import type { Question } from "./client.ts";

const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** @param ownHeaders the user's own, whose values may be secret. */
export function curlOf(url: string, question: Question, ownHeaders: readonly string[]): string {
  const { method, path, body, headers } = question;
  const isText = typeof body === "string";
  const lines = [`curl -sSN -X ${method} ${quoted(url + path)}`];
  for (const [name, value] of Object.entries(headers)) {
    if (ownHeaders.includes(name)) continue;
    // Double quotes, so that the shell fills the key in.
    if (/\{(?:admin-)?key\}/.test(value))
      lines.push(`-H "${name}: ${value.replace("{key}", "$KEY").replace("{admin-key}", "$ADMIN_KEY")}"`);
    else lines.push(`-H ${quoted(`${name}: ${value}`)}`);
  }
  for (const name of ownHeaders) lines.push(`-H ${quoted(`${name}: …`)}`);
  if (body !== undefined) lines.push(isText ? `--data-raw ${quoted(body)}` : "--data-binary @-");
  const curl = lines.join(" ");
  return body === undefined || isText ? curl : `echo ${body.toString("base64")} | base64 -d | ${curl}`;
}
