/**
 * Which addresses the gateway may connect to on a client's behalf: what IANA calls globally reachable, and what an
 * operator opened on purpose. Sources: IANA special-purpose registries (through ipaddr.js), rules.md 3.16.
 */
import { isIP } from "node:net";
import ipaddr from "ipaddr.js";

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Range = readonly [Address, number];

/** What a ToolPolicy opens beyond the public internet on ports 80 and 443; see `egressRules`. */
export interface EgressRules {
  readonly ranges: readonly Range[];
  readonly ports: ReadonlySet<number>;
  /** Addresses of `ranges` may be reached on every port. */
  readonly anyPortInside: boolean;
}

export type AddressVerdict =
  | { readonly allowed: true }
  /** `reason` is for logs: it names the kind of address, never the address's owner. */
  | { readonly allowed: false; readonly reason: string };

const defaultPorts = [80, 443];

/** Global unicast; everything else in IPv6 is special or not handed out. */
const globalUnicast = ipaddr.parseCIDR("2000::/3");

/** No policy opens these: link-local, cloud metadata, and addresses that mean no single host. */
const neverReachable: readonly Range[] = [
  "0.0.0.0/8",
  "169.254.0.0/16",
  "224.0.0.0/4",
  "255.255.255.255/32",
  "100.100.100.200/32", // Alibaba Cloud metadata
  "168.63.129.16/32", // Azure's platform address, in public space
  "192.0.0.192/32", // Oracle Cloud metadata
  "::/128",
  "fe80::/10",
  "fec0::/10",
  "ff00::/8",
  "fd00:ec2::/32", // AWS metadata and time
  "fd20:ce::/32", // Google Cloud metadata
  "fd00:42::42/128", // Scaleway metadata
].map((cidr) => ipaddr.parseCIDR(cidr));

/** IPv6 ranges with an IPv4 address inside: another way to write an address that was refused in plain form. */
const embedding: readonly Range[] = [
  "::ffff:0:0/96", // IPv4-mapped
  "::ffff:0:0:0/96", // IPv4-translated
  "64:ff9b::/96", // NAT64
  "64:ff9b:1::/48", // local NAT64
  "2001::/32", // Teredo
  "2002::/16", // 6to4
].map((cidr) => ipaddr.parseCIDR(cidr));
const compatible = ipaddr.parseCIDR("::/96");

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

/** Judges one address in the textual form that goes to `connect`. */
export function judgeAddress(text: string, rules: EgressRules): AddressVerdict {
  // isIP refuses octal, hexadecimal and short forms; a zone names an interface of this very machine.
  if (isIP(text) === 0 || text.includes("%")) return { allowed: false, reason: "not an address" };
  const address = ipaddr.parse(text);
  if (neverReachable.some((range) => within(address, range))) {
    return { allowed: false, reason: "link-local, metadata or unspecified address" };
  }
  const kind = address.range();
  if (embedding.some((range) => within(address, range)) || isCompatible(address)) {
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

/** `::127.0.0.1` and its like; `::1` itself is loopback and may be opened by a policy. */
const isCompatible = (address: Address) => within(address, compatible) && address.range() !== "loopback";

function within(address: Address, [range, bits]: Range): boolean {
  if (address instanceof ipaddr.IPv4) return range instanceof ipaddr.IPv4 && address.match(range, bits);
  return range instanceof ipaddr.IPv6 && address.match(range, bits);
}
