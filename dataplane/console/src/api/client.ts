/** Calls the public API, the only thing that the console knows of the service (rule 11.1). */
import type { Operations } from "./schema.ts";

export type Operation = keyof Operations;
export type Answer<Name extends Operation> = Operations[Name]["answer"];
type Given<Name extends Operation, Part extends string> =
  Operations[Name] extends Readonly<Record<Part, infer Value extends object>> ? Value : never;

export interface CallOptions<Name extends Operation> {
  /** Values for the braces of the path. */
  readonly path?: Readonly<Record<string, string>>;
  readonly query?: Given<Name, "query">;
  readonly body?: Given<Name, "body">;
  readonly signal?: AbortSignal | null;
}

/** An answer that is an error: in the service's own words, or of what stands in front of it, which has none for people. */
export class ApiProblem extends Error {
  readonly status: number;
  /** Whether the service itself answered; otherwise a proxy or a load balancer did. */
  readonly isOwn: boolean;
  readonly code: string | null;
  readonly requestId: string | null;

  /** @param message null: the answer has no words of the service */
  constructor(status: number, message: string | null, code: string | null, requestId: string | null) {
    super(message ?? `HTTP ${status}`);
    this.status = status;
    this.isOwn = message !== null;
    this.code = code;
    this.requestId = requestId;
  }
}

/** Calls one operation. @param key null: without one. @throws ApiProblem; TypeError when the service cannot be reached; AbortError */
export async function call<Name extends Operation>(
  key: string | null,
  name: Name,
  { path = {}, query, body, signal = null }: CallOptions<Name> = {},
): Promise<Answer<Name>> {
  const [method = "GET", template = ""] = name.split(" ");
  const url = template.replace(/\{(\w+)\}/g, (_, part: string) => segmentOf(path[part] ?? ""));
  const answer = await send(key, `${url}${queryText({ ...query })}`, {
    method,
    ...(body === undefined
      ? {}
      : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
    signal,
  });
  return (await answer.json()) as Answer<Name>;
}

/** Encodes a path segment. Browsers resolve `.` and `..` in any spelling; after a space these are plain ids, which name nothing. */
const segmentOf = (value: string): string => encodeURIComponent(value.replace(/^\.\.?$/, " $&"));

/** Sends one request with a key; nothing of it is cached or sent elsewhere. @throws like `call` */
export async function send(key: string | null, url: string, init: RequestInit = {}): Promise<Response> {
  const headers = {
    ...(init.headers as Record<string, string> | undefined),
    ...(key === null ? {} : { authorization: `Bearer ${headerText(key)}` }),
  };
  const answer = await fetch(url, {
    ...init,
    headers,
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  });
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

/**
 * Returns a text's UTF-8 bytes, one character each: so the service is asked about any text. `fetch` takes no other characters,
 * and fails as it does when the service is away.
 */
const headerText = (text: string): string =>
  Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");

async function problemOf(answer: Response): Promise<ApiProblem> {
  const text = await answer.text().catch(() => "");
  const requestId = answer.headers.get("request-id");
  const error = ownErrorOf(text);
  return new ApiProblem(answer.status, error?.message ?? null, error?.code ?? error?.type ?? null, requestId);
}

/** Returns the error that both families of the service's answers hold; null: it is of what stands in front of it. */
function ownErrorOf(text: string): { message: string; code?: string | null; type?: string } | null {
  try {
    const { error } = JSON.parse(text) as { error: { message: string } | string | undefined };
    return typeof error === "object" && typeof error.message === "string" ? error : null;
  } catch {
    return null;
  }
}

function queryText(query: Readonly<Record<string, unknown>>): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === "") continue;
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      for (const [key, one] of Object.entries(value)) parameters.append(`${name}[${key}]`, String(one));
      continue;
    }
    const isList = Array.isArray(value);
    for (const one of isList ? (value as readonly unknown[]) : [value])
      parameters.append(isList ? `${name}[]` : name, String(one));
  }
  const text = parameters.toString();
  return text === "" ? "" : `?${text}`;
}

/** Objects a page. */
const PAGE = 1000;
interface PageQuery {
  readonly limit: number;
  readonly after?: string;
}
interface Page<One> {
  readonly data: readonly One[];
  readonly has_more: boolean;
}
type ReadPage<One> = (query: PageQuery) => Promise<Page<One>>;

/** Reads every page of a list, at most `most` objects. `show` is called with the objects so far before the last page. */
export async function everyPage<One extends { readonly id: string }>(
  most: number,
  read: ReadPage<One>,
  show?: (some: readonly One[]) => void,
): Promise<readonly One[]> {
  return (await longPage(most, read, "", show)).data;
}

/**
 * Reads at most `most` objects as one page, of as many pages of the service's as that takes.
 * @param begin id of the object behind which it begins; empty: it begins with the newest
 */
export async function longPage<One extends { readonly id: string }>(
  most: number,
  read: ReadPage<One>,
  begin: string,
  show: (some: readonly One[]) => void = () => {},
): Promise<Page<One>> {
  const found: One[] = [];
  for (;;) {
    const after = found.at(-1)?.id ?? begin;
    const limit = Math.min(PAGE, most - found.length);
    const { data, has_more: hasMore } = await read({ limit, ...(after === "" ? {} : { after }) });
    found.push(...data);
    if (!hasMore || data.length === 0 || found.length >= most) return { data: found, has_more: hasMore };
    show([...found]);
  }
}
