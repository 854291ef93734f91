/** One bounded HTTP call to a search engine. The address comes from the ToolPolicy, so the URL guard does not judge it. */
import { request, type Dispatcher } from "undici";
import type { z } from "zod";
import { parseSmallJson } from "../lib/small-json.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";
import { MOST_INTERIM_ANSWERS } from "../upstream/limits.ts";
import { discardBody, readPageBody, type Body } from "./web-fetch/body.ts";

export interface EngineRequest {
  readonly method: "GET" | "POST";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** JSON, for POST. */
  readonly body?: string;
}

export type EngineAnswer =
  /** `timing` is its `server-timing` header; empty without one. */
  | { readonly kind: "json"; readonly json: unknown; readonly timing: string }
  /** `status` is null when there was no answer; `detail` is for logs and holds no credential. */
  | { readonly kind: "failed"; readonly status: number | null; readonly detail: string };

/** Largest answer; ten results are a few kilobytes. */
const MAX_ANSWER_BYTES = 2 * 1024 * 1024;

/** @throws the reason of `signal` when it aborts. */
export async function callEngine(
  call: EngineRequest,
  dispatcher: Dispatcher,
  signal: AbortSignal,
): Promise<EngineAnswer> {
  let interim = 0;
  const countInterim = () => {
    interim += 1;
    if (interim > MOST_INTERIM_ANSWERS) throw new Error("too many interim answers");
  };
  try {
    const ask = () =>
      request(call.url, {
        dispatcher,
        signal,
        onInfo: countInterim,
        method: call.method,
        headers: { accept: "application/json", "accept-encoding": "gzip, br", ...call.headers },
        body: call.body ?? null,
      });
    const { statusCode, headers, body } = await unlessAborted(ask, signal);
    const read = await readAnswer(headers["content-encoding"], body);
    if (statusCode < 200 || statusCode > 299) {
      return { kind: "failed", status: statusCode, detail: `status ${statusCode}` };
    }
    if (read.kind === "failed") return { kind: "failed", status: statusCode, detail: read.detail };
    const timing = [headers["server-timing"] ?? []].flat().join(", ");
    return { kind: "json", json: parseSmallJson(read.bytes), timing };
  } catch (error) {
    signal.throwIfAborted();
    return { kind: "failed", status: null, detail: error instanceof Error ? error.name : "failed" };
  }
}

/** Reads a body and discards the rest, which would keep its connection until the search's time is over. */
async function readAnswer(
  encoding: string | readonly string[] | undefined,
  body: Dispatcher.ResponseData["body"],
): Promise<Body> {
  try {
    return await readPageBody(body, typeof encoding === "string" ? encoding : "", {
      maxBytes: MAX_ANSWER_BYTES,
    });
  } finally {
    discardBody(body);
  }
}

/** Joins the base URL of a policy and a path below it. */
export function engineUrl(
  baseUrl: string,
  path: string,
  query: Readonly<Record<string, string>> = {},
): string {
  const url = new URL(baseUrl.replace(/\/+$/, "") + path);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url.href;
}

/** Entries of an answer's list that are read: more than any search asks for. */
const MAX_ENTRIES = 100;

/** Returns the entries of an answer's list that match the schema, and skips the others. */
export const readableEntries = <Entry extends z.ZodType>(
  entry: Entry,
  list: readonly unknown[],
): z.infer<Entry>[] =>
  list.slice(0, MAX_ENTRIES).flatMap((item) => {
    const parsed = entry.safeParse(item);
    return parsed.success ? [parsed.data] : [];
  });
