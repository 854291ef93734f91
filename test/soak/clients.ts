/** Clients of inference: one request at a time each, with pauses; whole, streamed, with tools, slow, and some that leave. */
import { setTimeout as sleep } from "node:timers/promises";
import { dialectPath, dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import type { Exchange, SeenError } from "./log.ts";
import { keys, models, PRICED_MODEL } from "./manifests.ts";
import { outputOf } from "./judge.ts";
import type { PlaneIndex } from "./plan.ts";
import { answerText, question } from "./provider.ts";
import type { SoakWorld } from "./world.ts";
import { UNJUDGED_AGENT } from "../vendor/unjudged.ts";

/** Longer than any time-out of the gateway's own. */
const PATIENCE_MS = 60_000;
const SLOW_READER_MS = 40;

type Json = Readonly<Record<string, unknown>>;
const object = (value: unknown): Json => (typeof value === "object" && value !== null ? (value as Json) : {});

/** How an exchange is done. */
export interface Exchanging {
  readonly what: string;
  readonly plane: PlaneIndex;
  readonly marker?: number;
  readonly init: Omit<RequestInit, "headers"> & { readonly headers: Readonly<Record<string, string>> };
  readonly path: string;
  /** The client leaves after so long. */
  readonly leavesAfterMs?: number;
  /** Between two looks at the stream. */
  readonly pauseMs?: number;
  /** Statuses beside 200 that are in order. */
  readonly fine?: readonly number[];
  /** Judges an answer with such a status. @returns what is wrong with it; null: nothing. */
  readonly judge?: (text: string, bytes: Buffer) => string | null;
}

export interface Exchanged extends Exchange {
  readonly text: string;
}

/** One exchange, whatever comes of it; it is noted in the world's log. */
export async function exchange(world: SoakWorld, log: Exchange[], how: Exchanging): Promise<Exchanged> {
  const from = world.now();
  let status: number | null = null;
  let requestId: string | null = null;
  let bytes: Buffer = Buffer.alloc(0);
  let broken: Error | null = null;
  const leaves = new AbortController();
  const late = AbortSignal.timeout(PATIENCE_MS);
  const timer =
    how.leavesAfterMs === undefined ? undefined : setTimeout(() => leaves.abort(), how.leavesAfterMs);
  try {
    const answer = await fetch(`${world.url(how.plane)}${how.path}`, {
      ...how.init,
      headers: { ...how.init.headers, "user-agent": UNJUDGED_AGENT },
      signal: AbortSignal.any([leaves.signal, late]),
    });
    ({ status } = answer);
    requestId = answer.headers.get("request-id");
    const parts: Uint8Array[] = [];
    for await (const part of answer.body ?? []) {
      parts.push(part);
      if (how.pauseMs !== undefined) await sleep(how.pauseMs);
    }
    bytes = Buffer.concat(parts);
  } catch (error) {
    broken = error as Error;
  } finally {
    clearTimeout(timer);
  }
  const text = bytes.toString("utf8");
  const seen = read({ ...how, status, text, bytes, broken, left: leaves.signal.aborted, late: late.aborted });
  const { what, plane, marker = null } = how;
  const exchanged = { what, marker, plane, from, to: world.now(), status, requestId, ...seen };
  log.push(exchanged);
  return { ...exchanged, text };
}

interface Raw extends Exchanging {
  readonly status: number | null;
  readonly text: string;
  readonly bytes: Buffer;
  readonly broken: Error | null;
  readonly left: boolean;
  readonly late: boolean;
}

function read(raw: Raw): Pick<Exchange, "outcome" | "error" | "told" | "detail"> {
  const { status, text, broken, left, late, fine = [], judge } = raw;
  const none = { error: null, told: null, detail: "" };
  if (broken !== null) {
    const cause = broken.cause instanceof Error ? ` (${broken.cause.message})` : "";
    const outcome = left ? "aborted" : late ? "late" : "broken";
    return { ...none, outcome, detail: `${broken.message}${cause}` };
  }
  if (status !== 200) {
    const error = readError(text, status);
    if (error === null) return { ...none, outcome: "wrong", detail: `no error body: ${text.slice(0, 300)}` };
    return { ...none, outcome: status !== null && fine.includes(status) ? "refused" : "error", error };
  }
  const inside = errorInStream(text);
  if (inside !== null) return { ...none, outcome: "error", error: inside };
  const wrong = judge?.(text, raw.bytes) ?? null;
  if (wrong !== null) return { ...none, outcome: "wrong", detail: `${wrong}: ${text.slice(-400)}` };
  return { ...none, outcome: "complete", told: outputTokens(text) };
}

function readError(text: string, status: number | null): SeenError | null {
  try {
    const error = object(object(JSON.parse(text))["error"]);
    const { type, code = null, message } = error;
    if (typeof type !== "string" || typeof message !== "string") return null;
    return { status, type, code: typeof code === "string" ? code : null, message };
  } catch {
    return null;
  }
}

/** An error event of any dialect; null: the stream has none. */
function errorInStream(text: string): SeenError | null {
  const [, event] = /^event: error\ndata: (.*)$/m.exec(text) ?? /^data: (\{"error":.*)$/m.exec(text) ?? [];
  if (event === undefined) return null;
  const parsed = object(JSON.parse(event));
  // Responses has the fields beside the type of the event.
  const { type, code, message } = object(parsed["error"] ?? parsed);
  return {
    status: null,
    type: String(type),
    code: typeof code === "string" ? code : null,
    message: String(message),
  };
}

/** The last counter in the answer's text. */
function outputTokens(answer: string): number | null {
  const last = [...answer.matchAll(/"(?:output|completion)_tokens":(\d+)/g)].at(-1)?.[1];
  return last === undefined ? null : Number(last);
}

const ends: Readonly<Record<Dialect, RegExp>> = {
  messages: /^event: message_stop$/m,
  chat: /^data: \[DONE\]$/m,
  responses: /^event: response\.(completed|incomplete)$/m,
};

/** What is wrong with an answer of inference. @param looped: it may have more than one iteration. */
function judgeAnswer(
  dialect: Dialect,
  { stream, looped }: { readonly stream: boolean; readonly looped: boolean },
  marker: number,
  text: string,
): string | null {
  if (stream && !ends[dialect].test(text)) return "the stream has no end, and no error";
  if (!stream) {
    try {
      JSON.parse(text);
    } catch {
      return "no JSON";
    }
  }
  const others = [...text.matchAll(/answer-\d+:/g)].filter(([whose]) => whose !== answerText(marker));
  if (others.length > 0) return `the answer of others, ${others.join(" ")}`;
  // A tool loop may pause where an upstream fails later: then there is no text.
  return looped || text.includes(answerText(marker)) ? null : "an answer without its text";
}

const tools: Readonly<Record<Dialect, Json>> = {
  messages: { tools: [{ type: "web_search_20250305", name: "web_search" }] },
  chat: { web_search_options: {} },
  responses: { tools: [{ type: "web_search" }] },
};
const fetching: Json = { tools: [{ type: "web_fetch_20250910", name: "web_fetch" }] };

/** Room for what an upstream reports: more than was asked for is not believed (rule 7.9). */
const room = (marker: number) => outputOf(marker) + 100;

export function inferenceBody(dialect: Dialect, model: string, marker: number, more: Json, words = ""): Json {
  const content = question(marker, words);
  switch (dialect) {
    case "messages":
      return { model, max_tokens: room(marker), messages: [{ role: "user", content }], ...more };
    case "chat":
      return { model, max_completion_tokens: room(marker), messages: [{ role: "user", content }], ...more };
    case "responses":
      return { model, max_output_tokens: room(marker), input: content, ...more };
  }
}

export const headers = (key: string, more: Readonly<Record<string, string>> = {}) => ({
  "x-api-key": key,
  "content-type": "application/json",
  ...more,
});

export interface ClientOptions {
  readonly world: SoakWorld;
  readonly log: Exchange[];
  readonly random: () => number;
}

/** One request of a client. `poor`: of an organization that may have spent its credit. */
export async function askSomething({ world, log, random }: ClientOptions, poor: boolean): Promise<void> {
  const pick = <Value>(values: readonly Value[]) => values[Math.floor(random() * values.length)] as Value;
  const marker = world.marker();
  const dialect = pick(dialects);
  const upstream = pick(dialects);
  const model = random() < 0.15 ? PRICED_MODEL : models[upstream];
  const stream = random() < 0.6;
  const fetches = dialect === "messages" && random() < 0.08;
  const searches = !fetches && random() < 0.2;
  const leaves = stream && random() < 0.12 ? 10 + random() * 1_500 : undefined;
  const slow = stream && random() < 0.08;
  const more = {
    stream,
    ...(dialect === "chat" && stream ? { stream_options: { include_usage: true } } : {}),
    ...(fetches ? fetching : searches ? tools[dialect] : {}),
  };
  const words = fetches ? `and read ${world.provider.pageUrl}` : "";
  const kind = fetches ? ", fetch" : searches ? ", search" : "";
  await exchange(world, log, {
    what: `${dialect} to ${model}${stream ? ", streamed" : ""}${kind}${poor ? ", poor" : ""}`,
    plane: random() < 0.5 ? 0 : 1,
    marker,
    path: dialectPath[dialect],
    init: {
      method: "POST",
      headers: headers(poor ? keys.poor : keys.inference, { "x-gapura-tags": `m=${marker}` }),
      body: JSON.stringify(inferenceBody(dialect, model, marker, more, words)),
    },
    ...(leaves === undefined ? {} : { leavesAfterMs: leaves }),
    ...(slow ? { pauseMs: SLOW_READER_MS } : {}),
    fine: poor ? [402, 429] : [],
    judge: (text) => judgeAnswer(dialect, { stream, looped: fetches || searches }, marker, text),
  });
}
