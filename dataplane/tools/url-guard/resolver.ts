import { lookup, Resolver as DnsResolver } from "node:dns/promises";
import { codeOf } from "../../lib/causes.ts";
import { unlessAborted } from "../../lib/unless-aborted.ts";

/** Resolves names; passed as an argument everywhere, so that tests never ask a real server. */
export interface Resolver {
  /** Returns all IPv4 and IPv6 addresses of a name. @throws UnresolvedName when there is none or no server answers. */
  resolve(name: string, signal: AbortSignal): Promise<readonly string[]>;
}

/** A name did not resolve; the message holds the resolver's own code (`ENOTFOUND`, `EAI_AGAIN`, `ETIMEOUT`) if there is one. */
export class UnresolvedName extends Error {
  constructor(cause?: unknown) {
    const code = codeOf(cause);
    super(code === null ? "name does not resolve" : `name does not resolve (${code})`, { cause });
    this.name = "UnresolvedName";
  }
}

/** Returns all addresses of a name, as this process would connect to it; @throws when there is none. */
export type LookUp = (name: string) => Promise<readonly string[]>;

/** Resolves through the system, with its hosts file and its search list. */
export const systemLookUp: LookUp = async (name) =>
  (await lookup(name, { all: true })).map(({ address }) => address);

const QUERY_TIMEOUT_MS = 2_000;
const TRIES = 2;

/**
 * Asks DNS directly. `dns.lookup` would occupy a libuv thread for each slow name and starve files and zlib; it also
 * reads the machine's hosts file, which a page fetcher must not use.
 * @param servers `address:port`; the machine's own when empty.
 */
export function dnsResolver(servers: readonly string[] = []): Resolver {
  return {
    async resolve(name, signal) {
      signal.throwIfAborted();
      const resolver = new DnsResolver({ timeout: QUERY_TIMEOUT_MS, tries: TRIES });
      if (servers.length > 0) resolver.setServers(servers);
      const cancel = () => resolver.cancel();
      signal.addEventListener("abort", cancel, { once: true });
      try {
        const answers = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
        signal.throwIfAborted();
        const addresses = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
        if (addresses.length > 0) return addresses;
        const faults = answers.flatMap((answer) => (answer.status === "rejected" ? [answer.reason] : []));
        // That one family has no address says less than the other's error.
        throw new UnresolvedName(faults.find((fault) => codeOf(fault) !== "ENODATA") ?? faults[0]);
      } finally {
        signal.removeEventListener("abort", cancel);
      }
    },
  };
}

/** Shares one look-up of each name among all callers, however soon they leave: it occupies a thread of libuv's until it ends. */
export function oneAtATime(lookUp: LookUp): LookUp {
  const asking = new Map<string, Promise<readonly string[]>>();
  return (name) => {
    const known = asking.get(name);
    if (known !== undefined) return known;
    const asked = lookUp(name).finally(() => asking.delete(name));
    asking.set(name, asked);
    return asked;
  };
}

/**
 * Resolves as the system does, with its hosts file and search list: for the few names that operators declare themselves,
 * such as a Service of the cluster.
 */
export function resolverAsSystem(lookUp: LookUp = systemLookUp): Resolver {
  const ask = oneAtATime(lookUp);
  return {
    async resolve(name, signal) {
      signal.throwIfAborted();
      try {
        return await unlessAborted(() => ask(name), signal);
      } catch (error) {
        throw error instanceof UnresolvedName ? error : new UnresolvedName(error);
      }
    },
  };
}
