/** Bodies of the admin API: unknown fields are refused (rule 9.4). */
import type { FastifyRequest } from "fastify";
import { ApiError } from "../../lib/api-error.ts";
import { limits } from "../limits.ts";
import { readJsonBody } from "../request-body.ts";

/** Unknown fields that the error names, and characters of each. */
const MOST_NAMED = 10;
const MOST_NAMED_CHARACTERS = 100;

/** Reads the body's fields. @throws ApiError 400 that names fields not in `known`, 413, 415 */
export async function readFields<Name extends string>(
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
