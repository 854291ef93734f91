/** `npm run conformance` as a user starts it, and its four reports. */
import { spawn } from "node:child_process";
import { join } from "node:path";
import { JSDOM } from "jsdom";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { ADMIN_KEY, KEY, MODEL, startReference, type Reference } from "./reference.ts";

/** The first dozens of checks. */
const BUDGET_TOKENS = 3_000;

let upstream: FakeUpstream;
let reference: Reference;
beforeAll(async () => {
  upstream = await startUpstream();
  reference = await startReference(upstream.url);
});
afterAll(async () => {
  await reference?.[Symbol.asyncDispose]();
  await upstream?.close();
});

interface Told {
  readonly status: number | null;
  readonly out: string;
  readonly errors: string;
}

async function conformance(...args: string[]): Promise<Told> {
  const main = join(import.meta.dirname, "main.ts");
  const child = spawn(process.execPath, [main, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  let out = "";
  let errors = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (out += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (errors += text));
  const status = await new Promise<number | null>((done) => child.on("close", done));
  expect(out + errors).not.toContain(KEY);
  return { status, out, errors };
}

const judge = (...args: string[]) => {
  const reached = ["--url", `${reference.url}/v1/`, "--key", KEY, "--admin-key", ADMIN_KEY];
  const steered = ["--header", "X-Own: own-secret", "--dialects", "chat"];
  return conformance(...reached, ...steered, "--budget-tokens", String(BUDGET_TOKENS), ...args);
};

/** Arguments, and what is said of them. */
const wrong: readonly (readonly [string[], string])[] = [
  [[], "--url and --key are needed"],
  [["--url", "nowhere", "--key", "k"], "--url: not an address: nowhere"],
  [["--url", "http://a.example", "--key", "k", "--budget-tokens", "-1"], "argument is ambiguous"],
  [["--url", "http://a.example", "--key", "k", "--budget-tokens=1.5"], "--budget-tokens: not a number"],
  [["--url", "http://a.example", "--key", "k", "--dialects", "chat,gopher"], "--dialects: gopher is none of"],
  [["--url", "http://a.example", "--key", "k", "--header", "nothing"], "--header: not 'name: value'"],
  [["--url", "http://a.example", "--key", "k", "--yaml"], "Unknown option '--yaml'"],
  [
    ["--url", "http://a.example", "--key", "k", "--html", "--json"],
    "--json and --html: a report has one form",
  ],
];

test("what is asked wrongly ends with 2 and is told", { timeout: 60_000 }, async () => {
  const told = await Promise.all(wrong.map(([args]) => conformance(...args)));
  for (const [index, { status, out, errors }] of told.entries()) {
    const [args, error = ""] = wrong[index] ?? [];
    expect({ args, status, out }).toEqual({ args, status: 2, out: "" });
    expect(errors).toContain(error);
    expect(errors).toContain("npm run conformance -- --url URL --key KEY");
  }
});

test("nobody there ends with 2", { timeout: 60_000 }, async () => {
  // Nothing listens on the port of discard.
  const { status, out, errors } = await conformance("--url", "http://127.0.0.1:9", "--key", KEY);
  expect(status).toBe(2);
  expect(out + errors).toMatch(/ECONNREFUSED|bad port/);
});

test("a key that is not taken ends with 2, and the status is told", { timeout: 60_000 }, async () => {
  const { status, out } = await conformance("--url", reference.url, "--key", "wrong");
  expect(status).toBe(2);
  expect(out).toMatch(/^not there: no models are listed \(status 401: /);
  expect(out).toMatch(/; 1 request, at most 0 tokens\n$/);
});

test("who keeps the rules ends with 0, within the budget", { timeout: 60_000 }, async () => {
  const { status, out } = await judge("--json");
  const report = JSON.parse(out) as {
    conforms: boolean;
    tokens: number;
    counts: Record<string, number>;
    targets: object[];
    results: { outcome: string; reason?: string }[];
  };
  expect(report).toMatchObject({
    url: reference.url,
    conforms: true,
    targets: [{ dialect: "chat", model: MODEL, scripted: true }],
  });
  expect(report.tokens).toBeLessThanOrEqual(BUDGET_TOKENS);
  expect(report.counts).toMatchObject({ official: 0, ours: 0 });
  expect(report.counts["passed"]).toBeGreaterThan(10);
  expect(report.results).toHaveLength((report.counts["passed"] ?? 0) + (report.counts["skipped"] ?? 0));
  for (const { outcome, reason } of report.results) expect(reason === undefined).toBe(outcome === "passed");
  expect(status).toBe(0);
});

test("a fault is told in each form, with the request to repeat it", { timeout: 60_000 }, async () => {
  reference.break = (draft) => {
    if (draft.status === 200 && draft.dialect !== null && draft.asked.body["stream"] !== true)
      draft.headers["content-type"] = "text/<plain>";
  };
  try {
    const [text, json, junit, html] = await Promise.all([
      judge(),
      judge("--json"),
      judge("--junit"),
      judge("--html"),
    ]);
    expect([text.status, json.status, junit.status, html.status]).toEqual([1, 1, 1, 1]);

    expect(text.out).toMatch(/^speaks chat: reference-1, our scripted upstream$/m);
    expect(text.out).toMatch(/^FAILED {2}chat\/whole-type \(reference-1\) {2}\[official\]/m);
    expect(text.out).toMatch(/^\d+ passed, [1-9]\d* failed a vendor's rule, /m);
    const curl = /^ +(curl .*)$/m.exec(text.out)?.[1] ?? "";
    expect(curl).toContain(`'${reference.url}/v1/chat/completions' -H "authorization: Bearer $KEY"`);
    // A user's own header may be a secret.
    expect(curl).toContain("-H 'x-own: …'");
    for (const { out } of [text, json, junit, html]) expect(out).not.toContain("own-secret");

    const { conforms, results } = JSON.parse(json.out) as {
      conforms: boolean;
      results: { id: string; faults: { text: string; repeat: string }[] }[];
    };
    expect(conforms).toBe(false);
    const [fault] = results.find(({ id }) => id === "chat/whole-type")?.faults ?? [];
    expect(fault).toEqual({ text: expect.stringContaining("text/<plain>"), repeat: curl });

    const suite = new JSDOM(junit.out, { contentType: "text/xml" }).window.document.documentElement;
    const count = (name: string) => suite.querySelectorAll(name).length;
    expect(suite.getAttribute("tests")).toBe(String(count("testcase")));
    expect(suite.getAttribute("failures")).toBe(String(count("failure")));
    expect(suite.getAttribute("skipped")).toBe(String(count("skipped")));
    const failure = suite.querySelector('testcase[name="chat/whole-type (reference-1)"] > failure');
    expect(failure?.textContent).toContain(`${fault?.text}\n${curl}`);

    const page = new JSDOM(html.out).window.document;
    const row = [...page.querySelectorAll("tr.failed")].find((tr) =>
      tr.textContent.includes("chat/whole-type"),
    );
    expect(row?.querySelector("p")?.textContent).toBe(fault?.text);
    expect(row?.querySelector("pre")?.textContent).toBe(curl);
    expect(page.querySelectorAll("tr")).toHaveLength(count("testcase") + 1);
  } finally {
    reference.break = null;
  }
});
