/** x_search: posts from X, recent or from the whole archive (service.md "Engines"). */
import type { Dispatcher } from "undici";
import { z } from "zod";
import { DAY_MS, type Clock } from "../../lib/clock.ts";
import { callEngine, engineUrl, readableEntries } from "../engine-call.ts";
import { failedSearch, NO_RESULT, type SearchHit, type SearchOutcome } from "../outcomes.ts";
import { judgeQuery, postText, postTitle } from "../search-query.ts";

export interface PostsRequest {
  /** The model's tool input, not yet judged: `{query: string}`. */
  readonly input: unknown;
  readonly options: PostOptions;
}

export interface PostOptions {
  /** Without a leading `@`; at most one of the two lists holds any. */
  readonly allowedHandles: readonly string[];
  readonly excludedHandles: readonly string[];
  /** `YYYY-MM-DD`, both days included. */
  readonly fromDate: string | null;
  readonly toDate: string | null;
}

/** A policy whose x_search is on and has an engine. */
export type PostsPolicy = {
  readonly xSearch: {
    readonly engine: { readonly baseUrl: string; readonly credential: string | null };
    readonly timeoutMs: number;
  };
};

export interface PostsDeps {
  readonly dispatcher: Dispatcher;
  readonly credential: (id: string) => string | undefined;
  readonly clock: Clock;
}

const DEFAULT_BASE_URL = "https://api.x.com";
/** Most posts (rule 3.17); also the least that X returns. */
export const MAX_POSTS = 10;
/** Query length that every account may use; whole-archive queries, and those of some accounts, may be longer. */
const SURE_QUERY_CHARACTERS = 512;
const RECENT_MS = 7 * DAY_MS;
/** Least age of the end of a time span: X refuses one that is less than ten seconds back. */
const END_MARGIN_MS = 15_000;

/** Never throws for what X does; @throws the reason of `signal` when the caller gave up. */
export async function searchPosts(
  request: PostsRequest,
  policy: PostsPolicy,
  deps: PostsDeps,
  signal: AbortSignal,
): Promise<SearchOutcome> {
  signal.throwIfAborted();
  const judged = judgeQuery(request.input);
  if (judged.kind === "error") return judged;
  const span = timeSpan(request.options, deps.clock.now());
  if (span === "future") return found([], 0);
  const query = postQuery(judged.query, request.options);
  const { engine, timeoutMs } = policy.xSearch;
  const token = engine.credential === null ? undefined : deps.credential(engine.credential);
  const url = engineUrl(
    engine.baseUrl === "" ? DEFAULT_BASE_URL : engine.baseUrl,
    `/2/tweets/search/${span.archive}`,
    {
      query,
      max_results: String(MAX_POSTS),
      expansions: "author_id",
      "tweet.fields": "author_id,created_at,note_tweet",
      "user.fields": "username",
      ...span.parameters,
    },
  );
  const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const deadline = AbortSignal.timeout(timeoutMs);
  try {
    const call = { method: "GET", url, headers } as const;
    const answer = await callEngine(call, deps.dispatcher, AbortSignal.any([signal, deadline]));
    if (answer.kind === "failed")
      return answer.status === 400 && query.length > SURE_QUERY_CHARACTERS
        ? { kind: "error", code: "query_too_long", detail: "too long with its handles" }
        : failedSearch(answer.detail);
    return readPosts(answer.json, request.options) ?? failedSearch(NO_RESULT);
  } catch {
    signal.throwIfAborted();
    return failedSearch("timed out");
  }
}

const found = (hits: readonly SearchHit[], profiles: number): SearchOutcome => ({
  kind: "hits",
  hits,
  posts: hits.length,
  profiles,
});

/**
 * Adds the handle lists to the query. The model's part is put in brackets, so that an `OR` in it does not bypass the lists;
 * if it has quotes or brackets that do not match, all are removed, so that it cannot close these. Excluded handles are added
 * as far as there is room: posts are checked against them afterwards in any case.
 */
export function postQuery(query: string, { allowedHandles, excludedHandles }: PostOptions): string {
  const from = allowedHandles.map((handle) => `from:${handle}`);
  if (from.length === 0 && excludedHandles.length === 0) return query;
  const own = `(${balanced(query) ? query : query.replace(/[()"]/g, " ").replace(/\s+/g, " ").trim()})`;
  let whole = [own, from.length > 1 ? `(${from.join(" OR ")})` : from[0]].filter(Boolean).join(" ");
  for (const handle of excludedHandles) {
    const longer = `${whole} -from:${handle}`;
    if (longer.length > SURE_QUERY_CHARACTERS) break;
    whole = longer;
  }
  return whole;
}

function balanced(text: string): boolean {
  let open = 0;
  for (const character of text) {
    if (character === '"') return false;
    if (character === "(") open += 1;
    else if (character === ")" && (open -= 1) < 0) return false;
  }
  return open === 0;
}

interface TimeSpan {
  readonly archive: "recent" | "all";
  readonly parameters: Readonly<Record<string, string>>;
}

/** Returns the archive that the dates need; "future" when no post can lie between them. */
function timeSpan({ fromDate, toDate }: PostOptions, now: number): TimeSpan | "future" {
  const from = fromDate === null ? null : Date.parse(`${fromDate}T00:00:00Z`);
  const end = toDate === null ? null : Date.parse(`${toDate}T00:00:00Z`) + DAY_MS;
  if (from !== null && from >= now - END_MARGIN_MS) return "future";
  if (from !== null && end !== null && end <= from) return "future";
  const oldest = Math.min(from ?? now, end ?? now);
  return {
    archive: oldest < now - RECENT_MS ? "all" : "recent",
    parameters: {
      ...(from === null ? {} : { start_time: new Date(from).toISOString() }),
      ...(end === null || end > now - END_MARGIN_MS ? {} : { end_time: new Date(end).toISOString() }),
    },
  };
}

const postSchema = z.object({
  /** Part of the post's URL. */
  id: z.string().regex(/^[\w-]{1,64}$/),
  text: z.string(),
  author_id: z.string().nullish().catch(null),
  created_at: z.string().max(40).nullish().catch(null),
  note_tweet: z.object({ text: z.string() }).nullish().catch(null),
});

const userSchema = z.object({ id: z.string(), username: z.string().regex(/^\w{1,30}$/) });

const answerSchema = z.object({
  data: z.array(z.unknown()).optional(),
  /** Next to posts: errors of objects that belong to them. Without posts: errors of the search. */
  errors: z.array(z.unknown()).nullish().catch(null),
  includes: z
    .object({ users: z.array(z.unknown()).optional().catch([]) })
    .nullish()
    .catch(null),
});

/** Reads posts as results, titled by their author's handle; null when the answer is not understood, or its search failed. */
function readPosts(json: unknown, options: PostOptions): SearchOutcome | null {
  const parsed = answerSchema.safeParse(json);
  if (!parsed.success) return null;
  const { data, errors, includes } = parsed.data;
  if (data === undefined && (errors?.length ?? 0) > 0) return null;
  const authors = new Map(readableEntries(userSchema, includes?.users ?? []).map((user) => [user.id, user]));
  const seen = new Set<string>();
  const hits: SearchHit[] = [];
  // A post that the answer holds twice counts, and costs, once.
  const posts = new Map(readableEntries(postSchema, data ?? []).map((post) => [post.id, post]));
  for (const post of [...posts.values()].slice(0, MAX_POSTS)) {
    const author = authors.get(post.author_id ?? "");
    if (!handleAllowed(author?.username ?? null, options)) continue;
    if (author !== undefined) seen.add(author.id);
    const text = postText(post.note_tweet?.text ?? post.text);
    hits.push({
      url: `https://x.com/${author?.username ?? "i"}/status/${post.id}`,
      title: postTitle(author?.username ?? "unknown", text),
      text,
      age: post.created_at ?? null,
    });
  }
  return found(hits, seen.size);
}

/** Whether the lists allow a post's author. Case does not matter. A post without an author passes only if no handle is required. */
function handleAllowed(handle: string | null, { allowedHandles, excludedHandles }: PostOptions): boolean {
  const same = (other: string) => other.toLowerCase() === handle?.toLowerCase();
  return (allowedHandles.length === 0 || allowedHandles.some(same)) && !excludedHandles.some(same);
}
