/** Networks that `egress.allowCIDRs` may name (rule 3.16). */
import { EMBEDDING_IPV4, NEVER_REACHABLE } from "../../dataplane/config/schema.ts";

interface Network {
  readonly bits: 32 | 128;
  readonly value: bigint;
  readonly prefix: number;
}

/** Reads `10.0.0.0/8` or `fd00::/8`; null: not a network. */
export function parseCidr(text: string): Network | null {
  const slash = text.indexOf("/");
  if (slash < 0 || !/^(0|[1-9]\d{0,2})$/.test(text.slice(slash + 1))) return null;
  const prefix = Number(text.slice(slash + 1));
  const address = text.slice(0, slash);
  const four = parseIPv4(address);
  if (four !== null) return prefix <= 32 ? { bits: 32, value: four, prefix } : null;
  const six = parseIPv6(address);
  if (six === null || prefix > 128) return null;
  return { bits: 128, value: six, prefix };
}

function parseIPv4(text: string): bigint | null {
  const parts = text.split(".");
  if (parts.length !== 4) return null;
  let value = 0n;
  for (const part of parts) {
    if (!/^(0|[1-9]\d{0,2})$/.test(part) || Number(part) > 255) return null;
    value = (value << 8n) | BigInt(part);
  }
  return value;
}

function parseIPv6(text: string): bigint | null {
  const halves = text.split("::");
  if (halves.length > 2) return null;
  const groups = halves.map((half) => (half === "" ? [] : half.split(":")).flatMap(groupsOf));
  const [head = [], tail = []] = groups;
  const missing = 8 - head.length - tail.length;
  if (halves.length === 1 ? missing !== 0 : missing < 1) return null;
  const all = [...head, ...Array.from({ length: missing }, () => "0"), ...tail];
  if (!all.every((group) => /^[0-9A-Fa-f]{1,4}$/.test(group))) return null;
  return all.reduce((value, group) => (value << 16n) | BigInt(`0x${group}`), 0n);
}

/** Returns a group, or the two groups of a dotted tail such as `::ffff:1.2.3.4`. */
function groupsOf(group: string): string[] {
  const four = group.includes(".") ? parseIPv4(group) : null;
  return four === null ? [group] : [(four >> 16n).toString(16), (four & 0xffffn).toString(16)];
}

function overlap(one: Network, other: Network): boolean {
  if (one.bits !== other.bits) return false;
  const shift = BigInt(one.bits - Math.min(one.prefix, other.prefix));
  return one.value >> shift === other.value >> shift;
}

const forbidden = [...NEVER_REACHABLE, ...EMBEDDING_IPV4].flatMap((text) => {
  const network = parseCidr(text);
  return network === null ? [] : [{ text, network }];
});

/** Returns why the network may not be allowed; null: it may. */
export function cidrFault(text: string): string | null {
  const network = parseCidr(text);
  if (network === null) return "is not a network";
  // The loopback address ::1 lies in the range of the IPv4-compatible ones, but is none.
  if (network.bits === 128 && network.prefix === 128 && network.value === 1n) return null;
  const hit = forbidden.find((entry) => overlap(network, entry.network));
  if (hit === undefined) return null;
  return `${network.prefix > hit.network.prefix ? "lies in" : "holds"} ${hit.text}`;
}
