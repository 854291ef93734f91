/** What a route declares, which services it may use, and what it finds in a request. */
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import type { Preflight } from "../billing/holds/preflight.ts";
import type { Directory, People, Principal } from "../identity/principal.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Dialect } from "../dialects/dialect.ts";
import type { ByteBudget, ByteLease } from "../lib/byte-budget.ts";
import type { Clock } from "../lib/clock.ts";
import type { Shutdown } from "../lib/shutdown.ts";
import type { NewId } from "../lib/ids.ts";
import type { RequestRecords } from "../telemetry/request-record.ts";
import type { RequestSummary } from "../telemetry/request-summary.ts";
import type { KeyKind } from "./auth.ts";
import type { UnknownCallers } from "./unknown-callers.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /**
     * Kind of key, or role of a person, that a route needs; every route must declare it. A viewer may use `admin` routes with
     * GET and HEAD. `none`: open to everybody.
     */
    access?: KeyKind | "none";
    /** Set on inference routes: the label of their metrics. */
    dialect?: Dialect;
    /** Whether the route, though free itself, is only for organizations whose balance is above 0. */
    needsCredit?: boolean;
    /** Whether the route counts the tokens of its body, free of charge. */
    countsText?: boolean;
  }
  interface FastifyRequest {
    /** Dialect of the route; kept here because Fastify rebuilds a route's options at each access. */
    dialect: Dialect | undefined;
    /** Set by the server's hook; read it through `callerOf`. */
    caller: Principal | null;
    summary: RequestSummary;
    /** Bytes held of the request's body (rule 7.2); released at its end. */
    bodyLease: ByteLease;
    /** `performance.now()` when the request's headers had come, and when its answer began. */
    startedAt: number;
    firstByteAt: number | null;
    /** Unix milliseconds. */
    acceptedAt: number;
  }
}

/** What every route may use. A route's own needs are arguments of the function that makes it. */
export interface HttpServices {
  readonly log: Logger;
  readonly clock: Clock;
  readonly newId: NewId;
  readonly directory: Directory;
  /** Absent where no tokens are accepted. */
  readonly people?: People;
  readonly bodies: ByteBudget;
  /** The snapshot to serve a new request from. @throws ApiError 503 before the first one was loaded. */
  snapshot(): Snapshot;
  /** Limits callers whose keys are not known; all refusals of an address count together. */
  readonly unknownCallers: UnknownCallers;
  /** Says when running answers are no longer waited for; absent: they are not told. */
  readonly shutdown?: Shutdown;
  /** Keeps request records; absent where none are kept. */
  readonly records?: RequestRecords;
  /** Checks before a body is read; absent where nothing is metered. */
  readonly preflight?: Preflight;
  /** Refuses new work when the process is overloaded. @throws ApiError 503 */
  shed?(): void;
}

/** Adds one resource's routes. */
export type Routes = (app: FastifyInstance, services: HttpServices) => void;

/** The caller; only on routes that need a key. */
export function callerOf(request: FastifyRequest): Principal {
  if (request.caller === null) throw new Error(`${request.routeOptions.url} asks for a caller without a key`);
  return request.caller;
}

export interface ServedRoute {
  readonly method: string;
  /** With parameters as `:name` and `*`. */
  readonly url: string;
  readonly access: KeyKind | "none";
}
