/**
 * Counts open connections by organization: each belongs to the organization whose key came over it last. A client with a valid
 * key keeps idle connections for ten minutes and slow ones for longer, and needs no credit for that, so an organization that
 * has a quarter of all gets no more while most are taken (as with bytes of bodies, rule 7.2). Nor does one that has twice as many
 * as are left: so however few are left, there are some for an organization that has none.
 */
import type { Socket } from "node:net";
import { ApiError } from "../lib/api-error.ts";
import { metrics } from "../telemetry/metrics.ts";
import { limits } from "./limits.ts";

const owners = new WeakMap<Socket, string>();

/** The organization that a connection is counted for; empty: no valid key came over it. */
export const ownerOf = (socket: Socket): string => owners.get(socket) ?? "";

export class ConnectionShares {
  /** Connections of each organization, and of all. */
  readonly #counts = new Map<string, number>();
  #total = 0;

  /**
   * Notes that a key of the organization came over this connection. False: the connection had no owner, and is one more than
   * the organization may have now. Connections of an Ingress, which clients share in turn, change their owner; but no
   * organization is given more than it could have opened alone, or two that show each other's keys would give each other room
   * again and again.
   */
  take(socket: Socket, organizationId: string): boolean {
    const before = owners.get(socket);
    if (before === organizationId || socket.destroyed) return true;
    const count = this.#counts.get(organizationId) ?? 0;
    if (before === undefined) {
      if (count >= this.most) return false;
      socket.once("close", () => this.#leave(socket));
    } else if (count >= limits.connectionsWithoutShares) return true;
    else this.#count(before, -1);
    owners.set(socket, organizationId);
    this.#count(organizationId, 1);
    return true;
  }

  /** How many connections an organization may have opened now. */
  get most(): number {
    const { connections, connectionsWithoutShares, connectionsOfOne } = limits;
    if (this.#total < connectionsWithoutShares) return connectionsWithoutShares;
    return Math.min(connectionsOfOne, 2 * Math.max(0, connections - this.#total));
  }

  #leave(socket: Socket): void {
    const owner = owners.get(socket);
    if (owner !== undefined) this.#count(owner, -1);
  }

  #count(organizationId: string, more: number): void {
    this.#total += more;
    const count = (this.#counts.get(organizationId) ?? 0) + more;
    if (count === 0) this.#counts.delete(organizationId);
    else this.#counts.set(organizationId, count);
  }
}

/** Counts and returns the 429 for a connection beyond the `most` that its organization may have now. */
export function tooManyConnections(most: number): ApiError {
  metrics.refused.inc({ reason: "connections" });
  return new ApiError(
    "rate_limited",
    `Your organization has ${most} or more connections here, as many as it may have while others need the rest.`,
    { retryAfterSeconds: 1 },
  );
}
