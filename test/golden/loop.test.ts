/**
 * Whole traces of the tool loop: what upstreams and tools say goes in, everything that a client sees and pays comes
 * out, for each dialect that a case names, whole and streamed. Adding a case = adding one file to `loop/`.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Dispatcher } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { costMicros } from "../../dataplane/billing/prices/price.ts";
import type { Route } from "../../dataplane/config/schema.ts";
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import { errorBody, errorStatus } from "../../dataplane/dialects/errors.ts";
import { createServe } from "../../dataplane/inference/serve.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { sealing } from "../../dataplane/lib/seal.ts";
import type { RunOutcome, RunTool } from "../../dataplane/tools/toolbox.ts";
import { Upstreams } from "../../dataplane/upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../../dataplane/upstream/dispatcher.ts";
import { callOf, routeTo, snapshotOf, toolPolicy, upstreamOf } from "../fakes/inference.ts";
import type { Step } from "../fakes/upstream/script.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { chatFaults } from "../grammar/chat.ts";
import { messagesFaults } from "../grammar/messages.ts";
import { responsesFaults } from "../grammar/responses.ts";

interface Case {
  /** The row of service.md "How the loop ends", or the rule, in its own words. */
  readonly words: string;
  /** Dialect of the upstream. */
  readonly upstream: Dialect;
  /** One body for each client dialect that the row names. */
  readonly requests: Partial<Record<Dialect, object>>;
  /** What the upstream says, call by call; the last one again and again. */
  readonly rounds: readonly Step[];
  /** What each tool brings; every call the same. */
  readonly tools: Partial<Record<string, RunOutcome>>;
  /** Whether the credit covers the second, third … iteration; yes when absent. */
  readonly credit?: readonly boolean[];
  readonly route?: Partial<Route>;
}

const folder = join(import.meta.dirname, "loop");
const cases = readdirSync(folder)
  .filter((file) => file.endsWith(".json") && !file.endsWith(".out.json"))
  .map((file) => ({ name: file.slice(0, -5), ...(JSON.parse(readFileSync(join(folder, file), "utf8")) as Case) }));

let fake: FakeUpstream;
let dispatcher: Dispatcher;
beforeAll(async () => {
  fake = await startUpstream();
  dispatcher = newUpstreamDispatcher();
});
afterAll(async () => {
  await dispatcher.destroy();
  await fake.close();
});

const grammar: Record<Dialect, (stream: string) => string[]> = {
  messages: (stream) => messagesFaults(stream, "either"),
  chat: (stream) => chatFaults(stream, { end: "either", includeUsage: stream.includes(`"usage":null`) }),
  responses: (stream) => responsesFaults(stream, "either"),
};

async function trace(client: Dialect, stream: boolean, told: Case) {
  fake.reset();
  const last = told.rounds.at(-1);
  const rounds = [...told.rounds, ...Array.from({ length: 10 }, () => last as Step)];
  fake.next(...rounds);
  const runTool: RunTool = async (name) => told.tools[name] ?? { kind: "error", code: "unavailable" };
  const serve = createServe(new Upstreams(dispatcher), sealing([{ id: "test", key: Buffer.alloc(32) }]), runTool);
  const route = routeTo([upstreamOf(fake.url, told.upstream)], { toolPolicy: "test/default", ...told.route });
  const snapshot = snapshotOf([route], ["*"], {}, { "test/default": toolPolicy });
  const call = callOf(client, snapshot, { model: "public-model", ...told.requests[client], ...(stream ? { stream } : {}) });
  call.meter.credit.push(...(told.credit ?? []));
  const error = await serve(call).then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (error !== null && !(error instanceof ApiError)) throw error;
  // Whatever happened, one request is one usage row.
  expect(call.meter.settled.length + call.meter.released).toBe(1);
  const [usage] = call.meter.settled;
  const text = error === null ? call.sink.text : "";
  if (error === null && stream) expect(grammar[client](text)).toEqual([]);
  const family = client === "messages" ? "messages" : "openai";
  const answer = error === null ? { status: call.sink.status, ...(stream ? { events: eventsOf(text) } : { body: JSON.parse(text) as unknown }) } : { status: errorStatus(family, error), body: errorBody({ family, union: false }, error, "req_test") };
  return named({
    ...answer,
    asked: fake.requests.map((request) => askedFor(request.json() as Record<string, unknown>)),
    charged:
      usage === undefined
        ? "nothing"
        : {
            status: usage.status,
            iterations: usage.iterations,
            estimated: usage.estimated,
            tokens: usage.tokens,
            tools: usage.tools,
            credits: Number(costMicros(route.prices, usage.tokens, usage.tools).total) / 1e6,
          },
  });
}

/** What of an upstream call the rules of the loop are about. */
function askedFor(body: Record<string, unknown>): string {
  const choice = body["tool_choice"];
  const limit = body["max_tokens"] ?? body["max_completion_tokens"] ?? body["max_output_tokens"];
  return `${choice === undefined ? "no tool_choice" : `tool_choice ${JSON.stringify(choice)}`}, at most ${String(limit)} tokens`;
}

const eventsOf = (stream: string) => stream.trimEnd().split("\n\n");

/** Ids in the order in which they appear, and sealed blobs by their kind. */
function named(value: unknown): unknown {
  const ids = new Map<string, string>();
  const text = JSON.stringify(value, null, 2)
    .replaceAll(
      /\b(msg|chatcmpl|resp|rs|fc|call|toolu|srvtoolu|ws|xs)[_-](?!id\b)(?:fake)?[A-Za-z0-9]+(?:_\d+)*/g,
      (id, prefix: string) => {
        const known = ids.get(id) ?? `${prefix}_${[...ids.values()].filter((name) => name.startsWith(`${prefix}_`)).length + 1}`;
        ids.set(id, known);
        return known;
      },
    )
    .replaceAll(/(\\?"encrypted_(content|index)\\?": ?\\?")[A-Za-z0-9_-]{20,}/g, "$1<sealed $2>")
    .replaceAll(/(\\?"(signature|data)\\?": ?\\?")gapura_r1_[A-Za-z0-9_-]{20,}/g, "$1<sealed $2>")
    .replaceAll(/(\\?"(?:created|created_at|completed_at)\\?": ?)\d{10}/g, "$10");
  return JSON.parse(text);
}

describe.each(cases)("$words", (told) => {
  test(`${told.name}: whole and streamed, as in the golden file`, async () => {
    const traces: Record<string, unknown> = {};
    for (const client of Object.keys(told.requests) as Dialect[]) {
      traces[`${client}, whole`] = await trace(client, false, told);
      traces[`${client}, streamed`] = await trace(client, true, told);
    }
    await expect(`${JSON.stringify(traces, null, 2)}\n`).toMatchFileSnapshot(join(folder, `${told.name}.out.json`));
  });
});
