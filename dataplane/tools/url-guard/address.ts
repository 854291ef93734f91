/**
 * Decides which addresses the gateway may connect to on a client's behalf: those that IANA calls globally reachable, and
 * those that an operator opened on purpose. Sources: IANA special-purpose registries (through ipaddr.js), rules.md 3.16.
 */
import { isIP } from "node:net";
import ipaddr from "ipaddr.js";
import { EMBEDDING_IPV4, NEVER_REACHABLE } from "../../config/schema.ts";

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Range = readonly [Address, number];

/** What a ToolPolicy opens beyond the public internet on ports 80 and 443; see `egressRules`. */
export interface EgressRules {
  readonly ranges: readonly Range[];
  readonly ports: ReadonlySet<number>;
  /** Whether addresses of `ranges` may be reached on every port. */
  readonly anyPortInside: boolean;
}

export type AddressVerdict =
  | { readonly allowed: true }
  /** `reason` is for logs: it names the kind of address, never the address's owner. */
  | { readonly allowed: false; readonly reason: string };

const defaultPorts = [80, 443];

/** Global unicast; all other IPv6 addresses are special or unassigned. */
const globalUnicast = ipaddr.parseCIDR("2000::/3");

const neverReachable: readonly Range[] = NEVER_REACHABLE.map((cidr) => ipaddr.parseCIDR(cidr));
const embedding: readonly Range[] = EMBEDDING_IPV4.map((cidr) => ipaddr.parseCIDR(cidr));

/** Compiles a policy's `egress`. A range that does not parse opens nothing. */
export function egressRules(egress: {
  readonly allowCidrs: readonly string[];
  readonly allowPorts: readonly number[];
  readonly anyPortInside?: boolean;
}): EgressRules {
  return {
    ranges: egress.allowCidrs.flatMap((cidr) => {
      try {
        return [ipaddr.parseCIDR(cidr)];
      } catch {
        return [];
      }
    }),
    ports: new Set([...defaultPorts, ...egress.allowPorts]),
    anyPortInside: egress.anyPortInside ?? false,
  };
}

/** Judges one address in the textual form that is passed to `connect`. */
export function judgeAddress(text: string, rules: EgressRules): AddressVerdict {
  // isIP refuses octal, hexadecimal and short forms; a zone names an interface of this very machine.
  if (isIP(text) === 0 || text.includes("%")) return { allowed: false, reason: "not an address" };
  const address = ipaddr.parse(text);
  if (neverReachable.some((range) => within(address, range))) {
    return { allowed: false, reason: "link-local, metadata or unspecified address" };
  }
  const kind = address.range();
  if (kind !== "loopback" && embedding.some((range) => within(address, range))) {
    return { allowed: false, reason: "IPv4 address in IPv6 form" };
  }
  if (kind === "unicast" && (address.kind() === "ipv4" || within(address, globalUnicast))) {
    return { allowed: true };
  }
  if (isInside(address, rules)) return { allowed: true };
  return { allowed: false, reason: `not a public address (${kind})` };
}

/** Whether a judged address may be reached on a port. */
export const judgePort = (address: string, port: number, rules: EgressRules): boolean =>
  rules.ports.has(port) ||
  (rules.anyPortInside && isIP(address) !== 0 && isInside(ipaddr.parse(address), rules));

const isInside = (address: Address, { ranges }: EgressRules) =>
  ranges.some((range) => within(address, range));

function within(address: Address, [range, bits]: Range): boolean {
  if (address instanceof ipaddr.IPv4) return range instanceof ipaddr.IPv4 && address.match(range, bits);
  return range instanceof ipaddr.IPv6 && address.match(range, bits);
}
