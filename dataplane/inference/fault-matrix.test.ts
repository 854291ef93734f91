/**
 * What each way in which an upstream can fail means, in one table: for every dialect, whole and streamed, the
 * status and code that the client sees, how often the upstream is tried, what is charged, and what the metrics
 * say. The route has one upstream, which fails each time in the same way, and two attempts.
 */
import type { Dispatcher } from "undici";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  callOf,
  declaredSearch,
  routeTo,
  snapshotOf,
  toolPolicy,
  upstreamOf,
  type TestCall,
} from "../../test/fakes/inference.ts";
import { startMailServer, type MailServer } from "../../test/fakes/mail-server.ts";
import { sealerOf } from "../../test/fakes/one-upstream.ts";
import { text, type Faults, type Step } from "../../test/fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../../test/fakes/upstream/server.ts";
import { dialectPath, type Dialect } from "../dialects/dialect.ts";
import { dialectErrorFamily, errorStatus } from "../dialects/errors.ts";
import type { ApiError } from "../lib/api-error.ts";
import { metrics } from "../telemetry/metrics.ts";
import { Upstreams } from "../upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../upstream/dispatcher.ts";
import { createServe } from "./serve.ts";
import { noTools } from "../../test/fakes/no-tools.ts";
import { paths } from "../../test/fakes/ways.ts";

/** Time-outs that are long enough for a busy machine, and short enough to wait for. */
const timeouts = { connectMs: 3_000, firstByteMs: 3_000, streamIdleMs: 3_000, requestMs: 12_000 };

/** The outcome of a fault. */
interface Cell {
  /** The HTTP status; 200 for an in-band error, after the first byte. */
  readonly status: number;
  readonly code: string;
  readonly tries: number;
  /** `free`: the bill is released; `seen`: charged for what was seen. */
  readonly charge: "free" | "seen";
  /** Label of `gapura_upstream_requests_total`, once for each try. */
  readonly metric: string;
}

interface Row {
  readonly fault: string;
  /** What the upstream does; a URL of another one; or a status. */
  readonly upstream: Faults | "refused" | "not TLS" | "not HTTP" | number;
  readonly whole: Cell;
  readonly stream: Cell;
  /** Chat and Responses know no 529. */
  readonly openaiCode?: string;
}

const cell = (status: number, code: string, tries: number, charge: Cell["charge"], metric: string): Cell => ({
  status,
  code,
  tries,
  charge,
  metric,
});
/** The same whole and streamed: it strikes before the first byte. */
const both = (...values: Parameters<typeof cell>) => ({ whole: cell(...values), stream: cell(...values) });

const rows: readonly Row[] = [
  { fault: "connect refused", upstream: "refused", ...both(502, "upstream_error", 2, "free", "connect") },
  { fault: "reset", upstream: { reset: true }, ...both(502, "upstream_error", 2, "free", "connect") },
  { fault: "TLS failure", upstream: "not TLS", ...both(502, "upstream_error", 2, "free", "connect") },
  { fault: "garbage for HTTP", upstream: "not HTTP", ...both(502, "upstream_error", 2, "free", "garbage") },
  { fault: "400", upstream: 400, ...both(400, "invalid_request", 1, "free", "400") },
  { fault: "401", upstream: 401, ...both(502, "upstream_error", 1, "free", "401") },
  { fault: "429", upstream: 429, ...both(429, "rate_limited", 2, "free", "429") },
  { fault: "500", upstream: 500, ...both(502, "upstream_error", 2, "free", "500") },
  { fault: "503", upstream: 503, ...both(503, "unavailable", 2, "free", "503") },
  { fault: "529", upstream: 529, ...both(529, "overloaded", 2, "free", "529"), openaiCode: "unavailable" },
  { fault: "hang", upstream: { hang: true }, ...both(504, "timeout", 2, "free", "timeout") },
  {
    fault: "slow first byte",
    upstream: { delayFirstByteMs: 30_000 },
    ...both(504, "timeout", 2, "free", "timeout"),
  },
  {
    fault: "stall",
    upstream: { stallAtByte: 1500 },
    // A whole answer that stands still is bounded by the request's own time alone.
    whole: cell(504, "timeout", 1, "seen", "timeout"),
    stream: cell(200, "timeout", 1, "seen", "timeout"),
  },
  {
    fault: "cut",
    upstream: { cutAtByte: 1500 },
    whole: cell(502, "upstream_error", 1, "seen", "cut"),
    stream: cell(200, "upstream_error", 1, "seen", "cut"),
  },
  {
    fault: "cut before the first event",
    upstream: { cutAtByte: 10 },
    // The beginning of a whole answer was made and paid for; of a stream nothing has been seen.
    whole: cell(502, "upstream_error", 1, "seen", "cut"),
    stream: cell(502, "upstream_error", 2, "free", "cut"),
  },
  {
    fault: "garbage for an answer",
    upstream: { html: true },
    whole: cell(502, "upstream_error", 1, "seen", "garbage"),
    stream: cell(502, "upstream_error", 1, "free", "garbage"),
  },
  {
    fault: "an empty answer",
    upstream: { empty: true },
    whole: cell(502, "upstream_error", 1, "free", "garbage"),
    stream: cell(502, "upstream_error", 2, "free", "cut"),
  },
  {
    fault: "no terminal event",
    upstream: { noTerminal: true },
    // Whole answers have none that could be missing.
    whole: cell(200, "", 1, "seen", "200"),
    stream: cell(200, "upstream_error", 1, "seen", "cut"),
  },
];

let fake: FakeUpstream;
let rude: MailServer;
let dispatcher: Dispatcher;

beforeAll(async () => {
  fake = await startUpstream();
  dispatcher = newUpstreamDispatcher();
  rude = await startMailServer();
});
afterAll(async () => {
  await dispatcher.destroy();
  rude.close();
  await fake.close();
});

const answer: Step = text("one two three four five six seven eight nine ten ".repeat(60));

function addressOf(upstream: Row["upstream"]): string {
  if (upstream === "refused") return "http://127.0.0.1:1";
  if (upstream === "not TLS") return `https://127.0.0.1:${rude.port}`;
  return upstream === "not HTTP" ? `http://127.0.0.1:${rude.port}` : fake.url;
}

function stepOf(upstream: Row["upstream"]): Step {
  if (typeof upstream === "number") return { error: { status: upstream } };
  return typeof upstream === "string" ? answer : withFaults(answer, upstream);
}

function callFor(
  { path, client, upstream }: (typeof paths)[number],
  stream: boolean,
  row: Row,
  model: string,
): TestCall {
  const messages = [{ role: "user", content: "hi" }];
  const body = {
    ...(client === "responses" ? { input: "hi" } : { messages }),
    ...(path === "tools" ? declaredSearch[client] : {}),
  };
  const route = routeTo(
    [upstreamOf("", upstream, { url: addressOf(row.upstream) + dialectPath[upstream], model })],
    {
      model,
      timeouts,
      retries: { attempts: 2, retryOn: ["connect", "rate_limited", "server_error", "first_byte_timeout"] },
      toolPolicy: "test/default",
    },
  );
  const snapshot = snapshotOf([route], ["*"], {}, { "test/default": toolPolicy });
  return callOf(client, snapshot, { model, stream, max_tokens: 50, ...body });
}

/** Counts of this model by their status label. */
async function counted(model: string): Promise<Record<string, number>> {
  const { values } = await metrics.upstreamRequests.get();
  const mine = values.filter(({ labels }) => labels.model === model);
  return Object.fromEntries(mine.map(({ labels, value }) => [String(labels.status), value]));
}

const cells = rows.flatMap((row) =>
  paths.flatMap((way) =>
    ([false, true] as const).map((stream) => {
      const { status, code, tries, charge, metric } = stream ? row.stream : row.whole;
      const openai = way.client !== "messages" && row.openaiCode !== undefined;
      const expected = {
        status: openai ? 503 : status,
        code: openai ? (row.openaiCode ?? code) : code,
        tries,
        charge,
        metrics: { [metric]: tries },
      };
      const name = `${row.fault}, ${way.client}, ${stream ? "streamed" : "whole"}, ${way.path} ${way.upstream}`;
      return { name, way, row, stream, expected };
    }),
  ),
);

const codeIn = (dialect: Dialect, error: ApiError): string =>
  dialect !== "messages" && error.code === "overloaded" ? "unavailable" : error.code;

/** Serves one cell's request, and returns its outcome. */
async function play({ name: model, way, row, stream }: (typeof cells)[number]) {
  fake.model(model, stepOf(row.upstream));
  const call = callFor(way, stream, row, model);
  // Each cell has upstreams of its own, so that another cell's failures do not affect their health.
  const serve = createServe(new Upstreams(dispatcher, { random: () => 0 }), sealerOf, noTools);
  const error = await serve(call).then(
    () => null,
    (thrown: unknown) => thrown as ApiError,
  );
  return {
    said: {
      status: error === null ? call.sink.status : errorStatus(dialectErrorFamily[way.client], error),
      code: error === null ? (call.summary.errorCode ?? "") : codeIn(way.client, error),
      tries: call.summary.tries,
      charge: call.meter.settled.length === 0 ? "free" : "seen",
      metrics: await counted(model),
    },
    billsEnded: call.meter.settled.length + call.meter.released,
    isWhole: error === null ? call.sink.ended : call.sink.status === 0,
  };
}

/** Cells that run at once, of those that wait for no time-out: more would wait for this process, and be taken for slow. */
const AT_ONCE = 50;
const waits = ({ expected }: (typeof cells)[number]) => expected.code === "timeout";

const played = new Map<(typeof cells)[number], Awaited<ReturnType<typeof play>>>();
beforeAll(async () => {
  const playAll = (some: typeof cells) =>
    Promise.all(some.map(async (cell) => void played.set(cell, await play(cell))));
  const others = cells.filter((cell) => !waits(cell));
  for (let at = 0; at < others.length; at += AT_ONCE) await playAll(others.slice(at, at + AT_ONCE));
  await playAll(cells.filter(waits));
}, 120_000);

test.each(cells.map((cell) => ({ name: cell.name, cell })))("$name", ({ cell }) => {
  expect(played.get(cell)).toEqual({ said: cell.expected, billsEnded: 1, isWhole: true });
});
