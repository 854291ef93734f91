import { lookup, Resolver as DnsResolver } from "node:dns/promises";

/** Turns a name into addresses; an argument wherever names are resolved, so that tests never ask a real server. */
export interface Resolver {
  /** All IPv4 and IPv6 addresses of a name. @throws when there is none or nobody answers. */
  resolve(name: string, signal: AbortSignal): Promise<readonly string[]>;
}

const QUERY_TIMEOUT_MS = 2_000;
const TRIES = 2;

/**
 * Asks DNS directly. `dns.lookup` would occupy a libuv thread for each slow name and starve files and zlib; it also
 * reads the machine's hosts file, which is no business of a page fetcher.
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
        throw new Error("name does not resolve");
      } finally {
        signal.removeEventListener("abort", cancel);
      }
    },
  };
}

/**
 * Asks as the system does, with its hosts file and search list: for the few names that operators declare themselves, such
 * as a Service of the cluster. Each look-up takes a thread of libuv's.
 */
export const systemResolver: Resolver = {
  async resolve(name, signal) {
    signal.throwIfAborted();
    const { promise, reject } = Promise.withResolvers<never>();
    const cancel = () => reject(new Error("the name did not resolve in time"));
    signal.addEventListener("abort", cancel, { once: true });
    try {
      const found = await Promise.race([lookup(name, { all: true }), promise]);
      return found.map(({ address }) => address);
    } finally {
      signal.removeEventListener("abort", cancel);
    }
  },
};
