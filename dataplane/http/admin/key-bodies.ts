/** The bodies that create and change a key (rules 5.5, 9.4). */
import type { FastifyRequest } from "fastify";
import { z } from "zod";
import { keyStatuses, type KeyChange, type NewKey } from "../../identity/keys.ts";
import { changedLimits } from "../../identity/limits.ts";
import { ApiError } from "../../lib/api-error.ts";
import { LATEST_SECOND } from "../../lib/clock.ts";
import { MOST_NAME } from "../../lib/names.ts";
import { readFields } from "./bodies.ts";
import { readLimits } from "./limits.ts";

/** Reads the body that creates a key. @param now Unix milliseconds. @throws ApiError 400, 413, 415 */
export async function readNewKey(request: FastifyRequest, now: number): Promise<NewKey> {
  const { name, expires_at, limits } = await readFields(request, ["name", "expires_at", "limits"]);
  return {
    name: readName(name),
    expiresAt: readExpiry(expires_at ?? null, now),
    limits: changedLimits(null, readLimits(limits) ?? null),
  };
}

/**
 * Reads the body that changes a key. `{}` and nulls change nothing, save for the nulls that clear; one invalid field refuses
 * the whole body (rule 5.5). @param now Unix milliseconds. @throws ApiError 400, 413, 415
 */
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

/** RFC 3339, whose T and Z may be small letters, or Unix seconds (rule 9.4). */
const momentSchema = z.union([
  z
    .string()
    .toUpperCase()
    .pipe(z.iso.datetime({ offset: true }))
    .transform((text) => Date.parse(text)),
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
