/** The places of the release as texts name them: URLs of the stores, lists of hosts (rule 8.6). Resolved by own-addresses.ts. */
import { isIP } from "node:net";

export interface OwnPlace {
  /** A name or an address; `0.0.0.0` and `::` stand for all of this machine. */
  readonly host: string;
  /** null: every port. */
  readonly port: number | null;
}

/** `[::1]` without its brackets. */
export const withoutBrackets = (host: string) => host.replace(/^\[|\]$/g, "");

/** Reads the hosts and ports of a store's URL, which may name several hosts; a socket in a folder is no address. */
export function placesOf(url: string, defaultPort: number): readonly OwnPlace[] {
  const [, authority = ""] = /^[a-z][-+.a-z0-9]*:\/\/(?:[^@/?#]*@)?([^/?#]*)/i.exec(url) ?? [];
  return authority.split(",").flatMap((part) => {
    const place = readPlace(part);
    return place === null ? [] : [{ host: place.host, port: place.port ?? defaultPort }];
  });
}

const HIGHEST_PORT = 65_535;

/** Reads `name`, `name:port`, `1.2.3.4:port`, `[::1]:port` or a bare address; null: none of these. */
export function readPlace(text: string): OwnPlace | null {
  const trimmed = text.trim().toLowerCase();
  if (isIP(trimmed) !== 0) return { host: trimmed, port: null };
  const [, host = "", port] = /^(\[[0-9a-f:.]+\]|[-_.a-z0-9]+)(?::(\d{1,5}))?$/.exec(trimmed) ?? [];
  if (host === "" || Number(port ?? 0) > HIGHEST_PORT) return null;
  return { host: withoutBrackets(host), port: port === undefined ? null : Number(port) };
}

/** Reads a comma list of these, in which empty parts count for nothing. null: one part is none of these. */
export function readPlaces(list: string): readonly OwnPlace[] | null {
  const parts = list.split(",").filter((part) => part.trim() !== "");
  const places = parts.flatMap((part) => readPlace(part) ?? []);
  return places.length === parts.length ? places : null;
}

/** Where a process runs, as its environment tells. */
export interface Surroundings {
  /** URLs of the stores with the default ports of their schemes. */
  readonly stores: readonly (readonly [url: string | undefined, defaultPort: number])[];
  /** Further names and addresses. */
  readonly more: readonly OwnPlace[];
  /** Address of the API server; empty: not in a cluster. */
  readonly apiServer: string;
}

/** Returns the places that are ours here, without the listeners of this process. */
export function ownPlaces({ stores, more, apiServer }: Surroundings): OwnPlace[] {
  const isCluster = apiServer !== "";
  const known = stores.flatMap(([url, defaultPort]) => (url === undefined ? [] : placesOf(url, defaultPort)));
  return [
    // In a cluster all addresses of the pod itself, loopback included, are ours.
    ...(isCluster
      ? [
          { host: "0.0.0.0", port: null },
          { host: apiServer, port: null },
        ]
      : []),
    ...known.map((place) => ({ ...place, port: isCluster ? null : place.port })),
    ...more,
  ];
}
