/** What the routes of the admin API read from a request in the same way. */
import type { FastifyRequest } from "fastify";
import { z } from "zod";
import { keyStatuses, type KeyChange, type NewKey } from "../../identity/keys.ts";
import { changedLimits, type LimitsChange } from "../../identity/limits.ts";
import { readLimits } from "./limits.ts";
import type { Actor } from "../../identity/audit-log.ts";
import { ApiError } from "../../lib/api-error.ts";
import { LATEST_SECOND } from "../../lib/clock.ts";
import { MOST_NAME } from "../../lib/names.ts";
import { limits } from "../limits.ts";
import type { Query } from "../list-query.ts";
import { readJsonBody } from "../request-body.ts";
import { callerOf } from "../route.ts";

const MAX_FORWARDED = 500;
/** Of unknown fields, in the message that refuses them. */
const MOST_NAMED = 10;
const MOST_NAMED_CHARACTERS = 100;

/** For the audit log. */
export function actorOf(request: FastifyRequest): Actor {
  const { organizationId, keyId } = callerOf(request);
  const forwarded = request.headers["x-forwarded-for"];
  return {
    organizationId,
    keyId,
    requestId: request.id,
    address: request.ip,
    forwardedFor: typeof forwarded === "string" ? forwarded.slice(0, MAX_FORWARDED) : null,
  };
}

/** An id of a path. Whatever cannot be one names nothing, and never reaches the database (rule 5.7). */
export function pathId(text: string): string | null {
  return /^[A-Za-z0-9_-]{1,200}$/.test(text) ? text : null;
}

/** The body's fields. @throws ApiError 400 that names those which are not `known`, 413, 415 */
async function readFields<Name extends string>(
  request: FastifyRequest,
  known: readonly Name[],
): Promise<Readonly<Partial<Record<Name, unknown>>>> {
  const fields = await readJsonBody(request, limits.smallBodyBytes);
  const names: readonly string[] = known;
  const unknown = Object.keys(fields).filter((name) => !names.includes(name));
  const [first] = unknown;
  if (first !== undefined) {
    const some = unknown.slice(0, MOST_NAMED).map((name) => name.slice(0, MOST_NAMED_CHARACTERS));
    const message = `Unknown field${unknown.length > 1 ? "s" : ""}: ${some.join(", ")}. Known are ${known.join(", ")}.`;
    throw new ApiError("invalid_request", message, { param: first.slice(0, MOST_NAMED_CHARACTERS) });
  }
  return fields as Partial<Record<Name, unknown>>;
}

/** What a key shall be made with. `now`: Unix milliseconds. @throws ApiError 400, 413, 415 */
export async function readNewKey(request: FastifyRequest, now: number): Promise<NewKey> {
  const { name, expires_at, limits } = await readFields(request, ["name", "expires_at", "limits"]);
  return {
    name: readName(name),
    expiresAt: readExpiry(expires_at ?? null, now),
    limits: changedLimits(null, readLimits(limits) ?? null),
  };
}

/** `{}` and nulls change nothing, save for the null that clears; one invalid field refuses all of it (rule 5.5). */
export async function readKeyChange(request: FastifyRequest, now: number): Promise<KeyChange> {
  const fields = await readFields(request, ["name", "status", "expires_at", "limits"]);
  const { name, status, expires_at } = fields;
  const limits = readLimits(fields.limits);
  const known = keyStatuses.find((one) => one === status);
  if (status !== undefined && status !== null && known === undefined)
    throw new ApiError("invalid_value", "status must be active or inactive.", { param: "status" });
  return {
    ...(name === undefined || name === null ? {} : { name: readName(name) }),
    ...(known === undefined ? {} : { status: known }),
    ...(expires_at === undefined ? {} : { expiresAt: readExpiry(expires_at, now) }),
    ...(limits === undefined ? {} : { limits }),
  };
}

/** What a project's keys may spend together shall become. @throws ApiError 400, 413, 415 */
export async function readProjectChange(request: FastifyRequest): Promise<LimitsChange | null | undefined> {
  return readLimits((await readFields(request, ["limits"])).limits);
}

/** RFC 3339, or Unix seconds (rule 9.4). */
const momentSchema = z.union([
  z.iso.datetime({ offset: true }).transform((text) => Date.parse(text)),
  z.int().transform((seconds) => seconds * 1000),
]);

/** Unix milliseconds; null: never. @throws ApiError 400 */
function readExpiry(value: unknown, now: number): number | null {
  if (value === null) return null;
  const read = momentSchema.safeParse(value);
  if (!read.success || Number.isNaN(read.data))
    throw new ApiError(
      "invalid_value",
      'expires_at must be a moment such as "2027-12-31T00:00:00Z", Unix seconds, or null.',
      { param: "expires_at" },
    );
  if (read.data > LATEST_SECOND * 1000)
    throw new ApiError(
      "invalid_value",
      "expires_at must lie in the year 9999 or before; as a number it is Unix seconds.",
      { param: "expires_at" },
    );
  if (read.data <= now)
    throw new ApiError("invalid_value", "expires_at must lie in the future.", { param: "expires_at" });
  return read.data;
}

/** @throws ApiError 400 unless it is a text of 1 to 500 characters that a database can hold (rule 5.5). */
function readName(value: unknown): string {
  if (value === undefined || value === null) {
    throw new ApiError("missing_parameter", "name is required.", { param: "name" });
  }
  if (typeof value !== "string") {
    throw new ApiError("invalid_type", "name must be a string.", { param: "name" });
  }
  if (value === "" || Array.from(value).length > MOST_NAME || value.includes("\0") || !value.isWellFormed()) {
    throw new ApiError(
      "invalid_value",
      `name must have 1 to ${MOST_NAME} characters, all of them Unicode text.`,
      {
        param: "name",
      },
    );
  }
  return value;
}

/** One value of the query among those allowed; null when it is not there. @throws ApiError 400 */
export function readChoice<Choice extends string>(
  query: Query,
  name: string,
  choices: readonly Choice[],
): Choice | null {
  const value = query[name];
  if (value === undefined) return null;
  const choice = choices.find((known) => known === value);
  if (choice === undefined) {
    throw new ApiError("invalid_value", `${name} must be ${choices.join(" or ")}.`, { param: name });
  }
  return choice;
}

/** One value of the query; null when it is not there. @throws ApiError 400 when it is there twice. */
export function readOne(query: Query, name: string): string | null {
  const value = query[name];
  if (value === undefined || typeof value === "string") return value ?? null;
  throw new ApiError("invalid_value", `${name} must be given once.`, { param: name });
}
