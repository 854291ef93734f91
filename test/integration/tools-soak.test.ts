/**
 * Many tool conversations at once, with faults in engines and upstreams: the books stay exact, nothing is left behind
 * and memory stays flat. `TOOLS_SOAK=2000` plays that many, 50 at once, and says what it took; without it, 200, 20 at
 * once.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { dialectPath, dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { broken, slow } from "../fakes/engines/engines.ts";
import type { Page } from "../fakes/pages/site.ts";
import type { Faults, Step } from "../fakes/upstream/script.ts";
import { chatFaults } from "../grammar/chat.ts";
import { messagesFaults } from "../grammar/messages.ts";
import { responsesFaults } from "../grammar/responses.ts";
import { granted, lookingUp, organization, startToolsWorld, type ToolsWorld } from "./tools-world.ts";

const conversations = Number(process.env["TOOLS_SOAK"] ?? 200);
const atOnce = conversations > 200 ? 50 : 20;
/** Memory is looked at after each part. */
const PARTS = 5;
/** One in so many calls of an upstream or an engine goes wrong. */
const FAULT_EVERY = 20;

const upstreamFaults: readonly Faults[] = [
  { cutAtEvent: 3 },
  { reset: true },
  { malformedAtEvent: 2, malformed: true },
  { noTerminal: true },
  { errorAtEvent: { event: 2 } },
  { empty: true },
];
const engineFaults: readonly Page[] = [
  broken.failing,
  broken.html,
  broken.truncated,
  broken.limited,
  (request) => request.socket.destroy(),
];

/** Gives every nth caller the next of `faults`, so that runs are alike. */
function faulty<Fault>(faults: readonly Fault[]): () => Fault | null {
  let calls = 0;
  return () => {
    calls += 1;
    return calls % FAULT_EVERY === 0 ? (faults[(calls / FAULT_EVERY) % faults.length] ?? null) : null;
  };
}

const questions: Record<Dialect, readonly ((pages: string) => object)[]> = {
  messages: [
    () => ({ ...messages("Search for gates"), tools: [{ type: "web_search_20250305", name: "web_search" }] }),
    () => ({ ...messages("Posts about gates"), tools: [{ type: "x_search_20261005", name: "x_search" }] }),
    (pages) => ({
      ...messages(`Open ${pages}/page`),
      tools: [{ type: "web_fetch_20260318", name: "web_fetch" }],
    }),
  ],
  chat: [
    () => ({ messages: [{ role: "user", content: "Search for gates" }], web_search_options: {} }),
    (pages) => ({ messages: [{ role: "user", content: `Open ${pages}/page` }], web_search_options: {} }),
  ],
  responses: [
    () => ({ input: "Search for gates", tools: [{ type: "web_search" }] }),
    () => ({ input: "Posts about gates", tools: [{ type: "x_search" }] }),
    (pages) => ({ input: `Open ${pages}/page`, tools: [{ type: "web_search" }] }),
  ],
};
const messages = (content: string) => ({ max_tokens: 400, messages: [{ role: "user", content }] });

const grammar: Record<Dialect, (stream: string) => string[]> = {
  messages: (stream) => messagesFaults(stream, "either"),
  chat: (stream) => chatFaults(stream, { end: "either" }),
  responses: (stream) => responsesFaults(stream, "either"),
};

/** What the faults of upstreams may lead to. */
const known = new Set([502, 504]);
const expected = new Set(["whole", "streamed", "left", ...[...known].map((status) => `http ${status}`)]);

/** One conversation; every seventh client leaves in the middle. */
async function converse(world: ToolsWorld, serial: number): Promise<string> {
  const dialect = dialects[serial % 3] ?? "chat";
  const upstream = dialects[Math.floor(serial / 3) % 3] ?? "chat";
  const stream = Math.floor(serial / 9) % 2 === 0;
  const body = questions[dialect][Math.floor(serial / 18) % questions[dialect].length]?.(world.pages);
  const leaving = new AbortController();
  const timer = serial % 7 === 6 ? setTimeout(() => leaving.abort(), 5 + (serial % 40)) : undefined;
  try {
    const response = await world.server.fetch(dialectPath[dialect], {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: `m-${upstream}`, ...body, ...(stream ? { stream } : {}) }),
      signal: leaving.signal,
    });
    const text = await response.text();
    if (!response.ok)
      return known.has(response.status) ? `http ${response.status}` : `http ${response.status}: ${text}`;
    if (!stream) return typeof JSON.parse(text) === "object" ? "whole" : "not JSON";
    const faults = grammar[dialect](text);
    return faults.length === 0 ? "streamed" : faults.join("; ");
  } catch (error) {
    if (leaving.signal.aborted) return "left";
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;
const MIB = 1024 * 1024;

/** What this process holds, the gateway and the fakes together. */
function holding() {
  collectGarbage();
  const { rss, heapUsed, external } = process.memoryUsage();
  const mib = (bytes: number) => Math.round(bytes / MIB);
  return { rssMib: mib(rss), heapMib: mib(heapUsed + external), sockets: sockets(), timers: timers() };
}

const say = (facts: object) => process.stderr.write(`soak: ${JSON.stringify(facts)}\n`);

const sockets = () => process.getActiveResourcesInfo().filter((kind) => kind === "TCPSocketWrap").length;
const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;

test(
  `${conversations} tool conversations, ${atOnce} at once, with faults: exact books, nothing left behind`,
  { timeout: 60_000 + conversations * 300 },
  async () => {
    const upstreamFault = faulty(upstreamFaults);
    const engineFault = faulty(engineFaults);
    await using world = await startToolsWorld({
      around: (page) => (request, response) => {
        const fault = engineFault();
        (fault ?? slow(page, 3))(request, response);
      },
      script: (request): Step => {
        const faults = upstreamFault();
        return { ...lookingUp(request), ...(faults === null ? {} : { faults }) };
      },
    });
    const outcomes = new Map<string, number>();
    let next = 0;
    const play = async (upTo: number) => {
      const worker = async () => {
        while (next < upTo) {
          const outcome = await converse(world, next++);
          outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
        }
      };
      await Promise.all(Array.from({ length: atOnce }, worker));
      // The fakes remember what they were asked; that is no memory of the gateway's.
      world.upstream.reset();
      world.site.asked.length = 0;
    };
    const before = holding();
    const parts: ReturnType<typeof holding>[] = [];
    for (let part = 1; part <= PARTS; part += 1) {
      const started = performance.now();
      await play(Math.round((conversations * part) / PARTS));
      parts.push(holding());
      const seconds = Math.round((performance.now() - started) / 100) / 10;
      if (conversations > 200) say({ played: next, seconds, ...parts.at(-1) });
    }

    expect([...outcomes.keys()].filter((outcome) => !expected.has(outcome))).toEqual([]);
    expect((outcomes.get("whole") ?? 0) + (outcomes.get("streamed") ?? 0)).toBeGreaterThan(conversations / 2);

    const { holds, pool, redis } = world.plane;
    const credit = () => holds.standing.credit(organization);
    await expect.poll(credit, { timeout: 20_000 }).toMatchObject({ held: 0n, granted });
    expect((await credit())?.used).toBeGreaterThan(0n);
    await expect
      .poll(async () => (await reconcileLedger(pool, redis)).broken, { timeout: 30_000, interval: 500 })
      .toEqual([]);
    if (conversations > 200) {
      say(Object.fromEntries(outcomes));
      // Pools, caches and compiled code are full after the first part.
      const [full, , , , end] = parts;
      if (full === undefined || end === undefined) throw new Error("parts are missing");
      expect(end.heapMib - full.heapMib).toBeLessThan(16);
      expect(end.rssMib - full.rssMib).toBeLessThan(64);
      expect(end.sockets - full.sockets).toBeLessThanOrEqual(2 * atOnce);
    }
    // Kept connections are few and bounded; timers of requests are all gone.
    await expect.poll(timers, { timeout: 10_000 }).toBeLessThanOrEqual(before.timers + 10);
    await expect.poll(sockets, { timeout: 10_000 }).toBeLessThanOrEqual(before.sockets + 6 * atOnce);
  },
);
