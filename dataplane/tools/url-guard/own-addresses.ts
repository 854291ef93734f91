/**
 * The addresses of the release itself, which web_fetch never reaches, whatever a policy allows (rule 8.6). In a cluster:
 * its pods, its Services, its stores and the API server, on every port; on one machine: the address and port of each of
 * its listeners. The data plane has no token for the API server: names come from its environment, and are resolved as
 * those of its stores are (docs/kubernetes.md).
 */
import { isIP } from "node:net";
import { networkInterfaces } from "node:os";
import ipaddr from "ipaddr.js";
import { FairPlaces } from "../../lib/fair-places.ts";
import { inTime } from "../../lib/in-time.ts";
import { unlessAborted } from "../../lib/unless-aborted.ts";
import { egressRules, judgeAddress } from "./address.ts";
import { withoutBrackets, type OwnPlace } from "./own-places.ts";
import { oneAtATime, systemLookUp, type LookUp } from "./resolver.ts";

export interface OwnAddresses {
  /** Whether this address and port are ours. If that is unknown, an address that only a policy opens counts as ours. */
  holds(address: string, port: number): Promise<boolean>;
  /**
   * Whether a name, or an address that it resolves to here, is ours. A name that resolves to nothing here is not.
   * @param owner the organization whose model wrote the name: its names do not delay another's; null: the operator's.
   * @throws OwnUnknown when it does not resolve in time, and so might be ours.
   */
  holdsName(name: string, port: number, owner: string | null): Promise<boolean>;
}

/** Thrown when it is not known in time whether a name is ours. */
export class OwnUnknown extends Error {
  override readonly name = "OwnUnknown";

  constructor() {
    super("whether the name leads to the gateway itself cannot be told: it did not resolve in time");
  }
}

/** Age at which names are resolved again: pods come and go. */
const AGE_MS = 5_000;
const LOOKUP_MS = 2_000;
/** Limits on look-ups of names that models wrote: files and compression need some of libuv's four threads, too. */
const GIVEN_NAMES = { places: 2, placesOfOne: 1, waiting: 64, waitingOfOne: 16 } as const;

interface Known {
  /** null: never resolved. */
  addresses: ReadonlySet<string> | null;
  /** Monotonic milliseconds. */
  askedAt: number;
  asking: Promise<void> | null;
}

const publicOnly = egressRules({ allowCidrs: [], allowPorts: [] });
const machine = () =>
  Object.values(networkInterfaces()).flatMap((addresses) => addresses?.map(({ address }) => address) ?? []);

/** The addresses of our own names, resolved anew when they are older than `AGE_MS`. */
class OwnNames {
  readonly #known = new Map<string, Known>();
  readonly #lookUp: LookUp;

  constructor(lookUp: LookUp) {
    this.#lookUp = lookUp;
  }

  /** Resolves these names, and all earlier ones, where they are due. A failure keeps the last known addresses. */
  async refresh(names: readonly OwnPlace[]): Promise<void> {
    for (const { host } of names)
      if (!this.#known.has(host))
        this.#known.set(host, { addresses: null, askedAt: -Infinity, asking: null });
    const due = [...this.#known].filter(([, { askedAt }]) => performance.now() - askedAt >= AGE_MS);
    await Promise.all(due.map(([name, known]) => (known.asking ??= this.#ask(name, known))));
  }

  /** null: never resolved. */
  addressesOf({ host }: OwnPlace): ReadonlySet<string> | null {
    return this.#known.get(host)?.addresses ?? null;
  }

  async #ask(name: string, known: Known): Promise<void> {
    try {
      known.addresses = new Set((await this.#lookUp(name)).map(canonical));
    } catch {
      // The last known addresses stay.
    }
    known.askedAt = performance.now();
    known.asking = null;
  }
}

/** Returns a look-up of names that models wrote, in turns of their organizations. It throws OwnUnknown when there is no answer in time. */
function fairLookUp(lookUp: LookUp): (name: string, owner: string) => Promise<readonly string[]> {
  const places = new FairPlaces(GIVEN_NAMES);
  return async (name, owner) => {
    const signal = AbortSignal.timeout(LOOKUP_MS);
    const release = await places.take(owner, signal).catch(() => "late" as const);
    if (typeof release === "string") throw new OwnUnknown();
    // Its place is held until the look-up ends, however late: until then it occupies a thread of libuv's.
    const looking = lookUp(name)
      .catch(() => [])
      .finally(release);
    return await unlessAborted(() => looking, signal).catch(() => {
      throw new OwnUnknown();
    });
  };
}

/**
 * @param places may grow: ports are known only once a server listens
 * @param lookUp resolves through the system, with its search list, as the stores' clients do
 * @param local addresses of this machine's interfaces
 */
export function ownAddresses(
  places: readonly OwnPlace[],
  lookUp: LookUp = systemLookUp,
  local: () => readonly string[] = machine,
): OwnAddresses {
  const all = () => places.map(({ host, port }) => ({ host: withoutBrackets(host), port }));
  const lookUpOnce = oneAtATime(lookUp);
  const lookUpInTime = (name: string) => inTime(LOOKUP_MS, lookUpOnce(name), () => new OwnUnknown());
  const lookUpGiven = fairLookUp(lookUpOnce);
  const ownNames = new OwnNames(lookUpInTime);
  const isLocal = (address: string) =>
    isLoopback(address) || local().some((other) => canonical(other) === address);
  const matches = (place: OwnPlace, port: number) => place.port === null || place.port === port;

  const holds = async (text: string, port: number): Promise<boolean> => {
    const address = canonical(text);
    const plain = all();
    const names = plain.filter(({ host }) => isIP(host) === 0);
    const isFixed = plain.some((place) => {
      if (!matches(place, port) || isIP(place.host) === 0) return false;
      return isWildcard(place.host) ? isLocal(address) : canonical(place.host) === address;
    });
    if (isFixed) return true;
    await ownNames.refresh(names);
    return names.some((place) => {
      if (!matches(place, port)) return false;
      const addresses = ownNames.addressesOf(place);
      return addresses === null ? !judgeAddress(text, publicOnly).allowed : addresses.has(address);
    });
  };
  return {
    holds,
    holdsName: async (name, port, owner) => {
      const host = withoutBrackets(name).replace(/\.$/, "").toLowerCase();
      if (isIP(host) !== 0) return await holds(host, port);
      if (all().some((place) => place.host === host && matches(place, port))) return true;
      const addresses = await (owner === null
        ? lookUpInTime(host).catch(noAddresses)
        : lookUpGiven(host, owner));
      for (const address of addresses) if (await holds(address, port)) return true;
      return false;
    },
  };
}

/** Returns the empty list for a name that does not resolve here. @throws OwnUnknown */
function noAddresses(error: unknown): readonly string[] {
  if (error instanceof OwnUnknown) throw error;
  return [];
}

const isWildcard = (host: string) => host === "0.0.0.0" || host === "::";

/** Returns one text for each address, without the zone, which names an interface of this machine. */
function canonical(address: string): string {
  const bare = address.split("%")[0] ?? address;
  return isIP(bare) === 0 ? bare : ipaddr.process(bare).toString();
}

const isLoopback = (address: string) => isIP(address) !== 0 && ipaddr.process(address).range() === "loopback";
