/** How attacks are made: of one request sent again and again, of various ones, or of raw bytes. */
import { dialectPath, type Dialect } from "../../../dataplane/dialects/dialect.ts";
import { send, sendRaw, type Attack, type Outcome, type Sent, type Target } from "../attack.ts";
import { lazily, MiB } from "../bodies.ts";
import { keys } from "../world.ts";

export const MAX_BODY = 32 * MiB;
/** Whoever sends much at once may be told to come back. */
export const BUSY = [429, 503] as const;

type Headers = Readonly<Record<string, string>>;

const by = (key: string): Headers => ({ authorization: `Bearer ${key}` });
export const gzip: Headers = { "content-encoding": "gzip" };

interface Options {
  readonly key?: string;
  readonly parallel?: number;
  readonly expected: readonly Outcome[];
  readonly short?: boolean;
  readonly headers?: Headers;
}

/** An attack that sends one and the same request again and again. */
export function repeated(
  name: string,
  path: string,
  makeBody: () => Buffer | string,
  options: Options,
): Attack {
  const { key = keys.rich, parallel = 4, expected, short = false, headers = {} } = options;
  const body = lazily(() => Buffer.from(makeBody()));
  return {
    name,
    parallel,
    expected,
    short,
    prepare: () => void body(),
    send: (target) => send(target, { path, headers: { ...by(key), ...headers }, body: body() }),
  };
}

export const infer = (dialect: Dialect, name: string, makeBody: () => Buffer | string, options: Options) =>
  repeated(`${dialect}: ${name}`, dialectPath[dialect], makeBody, options);

export const count = (name: string, makeBody: () => Buffer | string, options: Options) =>
  repeated(`count_tokens: ${name}`, "/v1/messages/count_tokens", makeBody, options);

/** Requests of any kind, each made anew. */
export function various(name: string, options: Options, make: (n: number) => Sent): Attack {
  const { key = keys.rich, parallel = 8, expected, short = false } = options;
  return {
    name,
    parallel,
    expected,
    short,
    send: (target, n) => {
      const sent = make(n);
      return send(target, { ...sent, headers: { ...by(key), ...sent.headers } });
    },
  };
}

/** An attack on the connection itself. */
export function raw(
  name: string,
  options: Omit<Options, "key" | "headers">,
  write: (write: (bytes: string) => boolean, n: number) => Promise<void>,
): Attack {
  const { parallel = 50, expected, short = false } = options;
  return {
    name,
    parallel,
    expected,
    short,
    send: (target: Target, n) => sendRaw(target, (bytes) => write(bytes, n)),
  };
}
