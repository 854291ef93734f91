/** What a run found, as text, JSON, JUnit's XML or a page. */
import type { Client } from "./client.ts";
import type { Found } from "./discover.ts";
import { curlOf } from "./repeat.ts";
import { conforms, type Result } from "./run.ts";

export interface Report {
  readonly client: Client;
  readonly found: Found;
  readonly results: readonly Result[];
}

export const formats = ["text", "json", "junit", "html"] as const;
export type Format = (typeof formats)[number];

const counted = (results: readonly Result[]) => ({
  passed: results.filter(({ outcome }) => outcome === "passed").length,
  official: results.filter(({ outcome, check }) => outcome === "failed" && check.rule === "official").length,
  ours: results.filter(({ outcome, check }) => outcome === "failed" && check.rule === "ours").length,
  skipped: results.filter(({ outcome }) => outcome === "skipped").length,
});

const named = ({ id, target }: Result): string => `${id} (${target.model})`;

const spending = ({ requests, spent }: Client): string =>
  `${requests} request${requests === 1 ? "" : "s"}, at most ${spent} token${spent === 1 ? "" : "s"}`;

export const reports: Readonly<Record<Format, (report: Report) => string>> = { text, json, junit, html };

function text({ client, found, results }: Report): string {
  const lines = found.targets.map(
    ({ dialect, model, scripted }) =>
      `speaks ${dialect}: ${model}${scripted ? ", our scripted upstream" : ""}`,
  );
  lines.push(...found.missing.map((line) => `not there: ${line}`), "");
  for (const result of results.filter(({ outcome }) => outcome === "failed")) {
    lines.push(`FAILED  ${named(result)}  [${result.check.rule}]  ${result.check.says}`);
    for (const fault of result.faults)
      lines.push(
        `        ${fault.text}`,
        `          ${curlOf(client.url, fault.question, client.ownHeaders)}`,
      );
  }
  const skipped = Map.groupBy(
    results.filter(({ outcome }) => outcome === "skipped"),
    ({ reason }) => reason,
  );
  for (const [reason, group] of skipped)
    lines.push(`skipped ${group.length}: ${reason}: ${group.map(({ id }) => id).join(", ")}`);
  const { passed, official, ours, skipped: left } = counted(results);
  lines.push(
    `${passed} passed, ${official} failed a vendor's rule, ${ours} failed a rule of Gapura, ${left} skipped; ` +
      spending(client),
  );
  return `${lines.join("\n")}\n`;
}

function json({ client, found, results }: Report): string {
  const told = {
    url: client.url,
    conforms: conforms(results),
    ...found,
    counts: counted(results),
    requests: client.requests,
    tokens: client.spent,
    results: results.map(({ check, target, id, outcome, faults, reason, ms }) => ({
      id,
      model: target.model,
      subject: check.subject,
      rule: check.rule,
      says: check.says,
      outcome,
      ...(reason === "" ? {} : { reason }),
      ms,
      faults: faults.map((fault) => ({
        text: fault.text,
        repeat: curlOf(client.url, fault.question, client.ownHeaders),
      })),
    })),
  };
  return `${JSON.stringify(told, null, 2)}\n`;
}

/** For XML and HTML alike; XML 1.0 has no way to write most control characters. */
const escaped = (value: string): string =>
  value
    // oxlint-disable-next-line no-control-regex
    .replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u{fffe}\u{ffff}]/gu, "\u{FFFD}")
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");

/** A rule of Gapura that does not hold stands as skipped: pipelines fail for the vendors' rules only, as the exit code does. */
function junit({ client, results }: Report): string {
  const cases = results.map((result) => {
    const { check, outcome, faults, reason, ms } = result;
    const lines = faults.map(
      (fault) => `${fault.text}\n${curlOf(client.url, fault.question, client.ownHeaders)}`,
    );
    const isFailure = outcome === "failed" && check.rule === "official";
    const why = reason === "" ? `a rule of Gapura does not hold: ${lines.join("; ")}` : reason;
    const inside = isFailure
      ? `<failure message="${escaped(check.says)}">${escaped(lines.join("\n\n"))}</failure>`
      : outcome === "passed"
        ? ""
        : `<skipped message="${escaped(why)}"/>`;
    return `<testcase classname="${escaped(check.subject)}" name="${escaped(named(result))}" time="${ms / 1000}">${inside}</testcase>`;
  });
  const { official, passed } = counted(results);
  const skipped = results.length - official - passed;
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name="conformance" tests="${results.length}" failures="${official}" skipped="${skipped}">\n${cases.join("\n")}\n</testsuite>\n`;
}

function html({ client, found, results }: Report): string {
  const rows = results.map((result) => {
    const { check, outcome, faults, reason } = result;
    const told = faults.map(
      (fault) =>
        `<p>${escaped(fault.text)}</p><pre>${escaped(curlOf(client.url, fault.question, client.ownHeaders))}</pre>`,
    );
    return `<tr class="${outcome}"><td>${outcome}</td><td>${escaped(named(result))}</td><td>${check.rule}</td><td>${escaped(check.says)} ${escaped(reason)}${told.join("")}</td></tr>`;
  });
  const { passed, official, ours, skipped } = counted(results);
  const missing = found.missing.map((line) => `<li>not there: ${escaped(line)}</li>`).join("");
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Conformance</title>
<style>body{font:15px system-ui;margin:2rem}td,th{padding:.3rem .6rem;vertical-align:top;text-align:left;border-top:1px solid #ccc}.failed td:first-child{color:#b00020;font-weight:600}.passed td:first-child{color:#1b6e3a}pre{white-space:pre-wrap;background:#f4f4f4;padding:.5rem}</style>
<h1>${escaped(client.url)}</h1>
<p>${passed} passed, ${official} failed a vendor's rule, ${ours} failed a rule of Gapura, ${skipped} skipped; ${spending(client)}.</p>
<ul>${missing}</ul>
<table><tr><th>outcome</th><th>check</th><th>rule</th><th>what has to hold</th></tr>
${rows.join("\n")}
</table></html>
`;
}
