/**
 * `npm run conformance -- --url URL --key KEY`: judges any gateway that speaks Messages, Chat Completions or Responses.
 * Ends with 0 when no vendor's rule failed, 1 when one did, 2 when nothing could be judged. docs/conformance.md.
 */
import { flagsOrEnd } from "../../hack/flags-or-end.ts";
import { dialects } from "../../dataplane/dialects/dialect.ts";
import type { UpstreamLog } from "./check.ts";
import { Client } from "./client.ts";
import { discover } from "./discover.ts";
import { formats, reports } from "./report.ts";
import { conforms, run } from "./run.ts";
import { checks } from "./table.ts";

const usage = `usage: npm run conformance -- --url URL --key KEY
  [--admin-key K] [--models m1,m2] [--dialects messages,chat,responses] [--budget-tokens N]
  [--header 'name: value']... [--upstream URL] [--json | --junit | --html]`;

/** About five times what one model of each dialect costs. */
const DEFAULT_BUDGET_TOKENS = 100_000;

function fail(message: string): never {
  console.error(`${message}\n${usage}`);
  process.exit(2);
}

const { values: options } = flagsOrEnd(usage, {
  options: {
    url: { type: "string" },
    key: { type: "string" },
    "admin-key": { type: "string" },
    models: { type: "string" },
    dialects: { type: "string" },
    "budget-tokens": { type: "string" },
    header: { type: "string", multiple: true, default: [] },
    upstream: { type: "string" },
    json: { type: "boolean" },
    junit: { type: "boolean" },
    html: { type: "boolean" },
  },
});

/** What stands in a comma list, each once. */
const listed = (text: string | undefined) =>
  text === undefined ? null : [...new Set(text.split(",").flatMap((part) => part.trim() || []))];

/** The control path of a scripted upstream in another process (test/fakes/upstream/main.ts). */
const logAt =
  (url: string): UpstreamLog =>
  async () => {
    const answer = await fetch(`${url}/_fake/requests`);
    const entries = (await answer.json()) as { body: string; outcome: "running" | "answered" | "aborted" }[];
    return entries.map(({ body, outcome }) => ({ text: Buffer.from(body, "base64").toString(), outcome }));
  };

if (options.url === undefined || options.key === undefined) fail("--url and --key are needed");
if (!URL.canParse(options.url)) fail(`--url: not an address: ${options.url}`);
const budgetTokens = Number(options["budget-tokens"] ?? DEFAULT_BUDGET_TOKENS);
if (!Number.isInteger(budgetTokens) || budgetTokens < 0) fail("--budget-tokens: not a number of tokens");
const wanted = listed(options.dialects);
const unknown = wanted?.find((name) => !dialects.some((dialect) => dialect === name));
if (unknown !== undefined) fail(`--dialects: ${unknown} is none of ${dialects.join(", ")}`);
const chosen = formats.filter((name) => name !== "text" && options[name] === true);
if (chosen.length > 1) fail(`--${chosen.join(" and --")}: a report has one form`);
const headers = options.header.map((line): [string, string] => {
  const [name = "", ...value] = line.split(":");
  if (name.trim() === "" || value.length === 0) fail("--header: not 'name: value'");
  return [name.trim().toLowerCase(), value.join(":").trim()];
});

const client = new Client({
  url: options.url.replace(/\/+$/, "").replace(/\/v1$/, ""),
  key: options.key,
  adminKey: options["admin-key"] ?? null,
  headers: Object.fromEntries(headers),
  budgetTokens,
});
const [format = "text"] = chosen;
try {
  const found = await discover(
    client,
    listed(options.models),
    dialects.filter((dialect) => wanted?.includes(dialect) ?? true),
  );
  const results = await run({
    client,
    targets: found.targets,
    checks,
    adminKey: options["admin-key"] ?? null,
    upstream: options.upstream === undefined ? null : logAt(options.upstream.replace(/\/+$/, "")),
    onResult: ({ id, outcome }) => {
      if (process.stderr.isTTY) process.stderr.write(`${outcome.padEnd(8)}${id}\n`);
    },
  });
  process.stdout.write(reports[format]({ client, found, results }));
  process.exitCode = found.targets.length === 0 ? 2 : conforms(results) ? 0 : 1;
} catch (error) {
  const cause = error instanceof Error && error.cause instanceof Error ? `: ${error.cause.message}` : "";
  console.error(`${error instanceof Error ? error.message : String(error)}${cause}`);
  process.exitCode = 2;
}
