/** Reads single parameters of server-tool declarations; every refusal names its field in the caller's style. Pure. */
import type { Dialect } from "../dialects/dialect.ts";
import type { JsonObject, JsonValue } from "../dialects/messages/types.ts";
import { dialectErrorFamily } from "../dialects/errors.ts";
import { ApiError, type ErrorCode } from "../lib/api-error.ts";
import { fieldPath, type PathStep } from "../lib/field-path.ts";
import { isObject } from "../lib/json-object.ts";
import { parseDomainLists, type DomainLists } from "./domains.ts";

/** The user's location; every part optional, at least one given. */
export interface UserLocation {
  readonly city?: string;
  readonly region?: string;
  /** ISO 3166 alpha-2. */
  readonly country?: string;
  /** IANA id. */
  readonly timezone?: string;
}

export interface XSearchDeclaration {
  readonly maxUses: number | null;
  /** Without a leading `@`; at most one of the two lists is given. */
  readonly allowedHandles: readonly string[] | null;
  readonly excludedHandles: readonly string[] | null;
  /** `YYYY-MM-DD`. */
  readonly fromDate: string | null;
  readonly toDate: string | null;
}

const RESULTS_BY_CONTEXT_SIZE: Readonly<Record<string, number>> = { low: 5, medium: 8, high: 10 };
const MAX_HANDLES = 20;

/** Reads one body's declarations and reports errors by the path of their field. */
export class DeclarationReader {
  readonly dialect: Dialect;
  constructor(dialect: Dialect) {
    this.dialect = dialect;
  }

  fail(code: ErrorCode, steps: readonly PathStep[], text: string): never {
    const param = fieldPath(dialectErrorFamily[this.dialect], steps);
    throw new ApiError(code, `${param}: ${text}`, { param });
  }

  object(value: JsonValue | undefined, steps: readonly PathStep[]): JsonObject {
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value;
    return this.fail("invalid_request_error", steps, "must be an object");
  }

  /** An optional string; null counts as absent (rule 1.17). */
  string(from: JsonObject, key: string, steps: readonly PathStep[]): string | undefined {
    const value = from[key];
    if (value === undefined || value === null) return undefined;
    if (typeof value === "string") return value;
    return this.fail("invalid_request_error", [...steps, key], "must be a string");
  }

  /** An optional string; a blank one counts as absent. */
  name(from: JsonObject, key: string, steps: readonly PathStep[]): string | undefined {
    const value = this.string(from, key, steps);
    return value?.trim() === "" ? undefined : value;
  }

  boolean(from: JsonObject, key: string, otherwise: boolean, steps: readonly PathStep[]): boolean {
    const value = from[key];
    if (value === undefined || value === null) return otherwise;
    if (typeof value === "boolean") return value;
    return this.fail("invalid_request_error", [...steps, key], "must be a boolean");
  }

  /** An optional integer of at least 1. */
  count(from: JsonObject, key: string, steps: readonly PathStep[]): number | null {
    const value = from[key];
    if (value === undefined || value === null) return null;
    if (typeof value === "number" && Number.isSafeInteger(value) && value >= 1) return value;
    return this.fail("invalid_request_error", [...steps, key], "must be an integer of at least 1");
  }

  /** An optional list of strings. */
  strings(from: JsonObject, key: string, steps: readonly PathStep[]): readonly string[] | null {
    const value = from[key];
    if (value === undefined || value === null) return null;
    if (!Array.isArray(value))
      return this.fail("invalid_request_error", [...steps, key], "must be a list of strings");
    return value.map((entry, index) =>
      typeof entry === "string"
        ? entry
        : this.fail("invalid_request_error", [...steps, key, index], "must be a string"),
    );
  }

  /** @param most longest list; service.md has such a limit for Responses only. */
  domains(from: JsonObject, steps: readonly PathStep[], most?: number): DomainLists {
    const parsed = parseDomainLists(from["allowed_domains"], from["blocked_domains"], most);
    if (parsed.kind === "lists") return parsed.lists;
    const [key = "", index] = parsed.param.split(/[[\]]/);
    const place = index === undefined ? [key] : [key, Number(index)];
    return this.fail("invalid_request_error", [...steps, ...place], parsed.message);
  }

  /** The parts of a location object whose `type` was already judged; empty ones are refused (rule 3.2). */
  locationParts(from: JsonObject, steps: readonly PathStep[]): UserLocation {
    const city = this.name(from, "city", steps);
    const region = this.name(from, "region", steps);
    const country = this.string(from, "country", steps);
    const timezone = this.string(from, "timezone", steps);
    if (city === undefined && region === undefined && country === undefined && timezone === undefined) {
      this.fail("invalid_request_error", steps, "give at least one of city, region, country, timezone");
    }
    if (country !== undefined && !/^[A-Za-z]{2}$/.test(country)) {
      this.fail("invalid_request_error", [...steps, "country"], "must be a two-letter country code");
    }
    if (timezone !== undefined && !isTimeZone(timezone)) {
      this.fail("invalid_request_error", [...steps, "timezone"], "must be an IANA time zone");
    }
    return {
      ...(city === undefined ? {} : { city }),
      ...(region === undefined ? {} : { region }),
      ...(country === undefined ? {} : { country: country.toUpperCase() }),
      ...(timezone === undefined ? {} : { timezone }),
    };
  }

  /** Messages and Responses: `{type: "approximate", city, …}`. Chat nests the parts once more. */
  location(from: JsonObject, steps: readonly PathStep[]): UserLocation | null {
    const value = from["user_location"];
    if (value === undefined || value === null) return null;
    const here = [...steps, "user_location"];
    const location = this.object(value, here);
    if (location["type"] !== "approximate") {
      this.fail("invalid_request_error", [...here, "type"], 'must be "approximate"');
    }
    if (this.dialect !== "chat") return this.locationParts(location, here);
    return this.locationParts(this.object(location["approximate"], [...here, "approximate"]), [
      ...here,
      "approximate",
    ]);
  }

  contextSize(from: JsonObject, steps: readonly PathStep[]): number {
    const size = from["search_context_size"] ?? "medium";
    const results =
      typeof size === "string" && Object.hasOwn(RESULTS_BY_CONTEXT_SIZE, size)
        ? RESULTS_BY_CONTEXT_SIZE[size]
        : undefined;
    return (
      results ??
      this.fail("invalid_request_error", [...steps, "search_context_size"], "must be low, medium or high")
    );
  }

  xSearch(from: JsonObject, steps: readonly PathStep[]): XSearchDeclaration {
    const allowedHandles = this.handles(from, "allowed_x_handles", steps);
    const excludedHandles = this.handles(from, "excluded_x_handles", steps);
    if (allowedHandles !== null && excludedHandles !== null) {
      this.fail(
        "invalid_request_error",
        [...steps, "excluded_x_handles"],
        "give allowed_x_handles or excluded_x_handles, not both",
      );
    }
    const fromDate = this.date(from, "from_date", steps);
    const toDate = this.date(from, "to_date", steps);
    if (fromDate !== null && toDate !== null && fromDate > toDate) {
      this.fail("invalid_request_error", [...steps, "to_date"], "must not be before from_date");
    }
    return {
      maxUses: this.count(from, "max_uses", steps),
      allowedHandles,
      excludedHandles,
      fromDate,
      toDate,
    };
  }

  /** An optional list of handles; an empty one counts as absent, as with domains. */
  handles(from: JsonObject, key: string, steps: readonly PathStep[]): readonly string[] | null {
    const list = this.strings(from, key, steps);
    if (list === null || list.length === 0) return null;
    if (list.length > MAX_HANDLES) {
      return this.fail("invalid_request_error", [...steps, key], `must hold at most ${MAX_HANDLES} handles`);
    }
    return list.map((entry, index) => {
      const handle = entry.startsWith("@") ? entry.slice(1) : entry;
      // Letters, digits and underscore only: a handle becomes part of the engine's query.
      if (!/^[A-Za-z0-9_]{1,50}$/.test(handle)) {
        this.fail("invalid_request_error", [...steps, key, index], "must be a handle such as @name");
      }
      return handle;
    });
  }

  date(from: JsonObject, key: string, steps: readonly PathStep[]): string | null {
    const value = this.string(from, key, steps);
    if (value === undefined) return null;
    if (isCalendarDate(value)) return value;
    return this.fail("invalid_request_error", [...steps, key], "must be a date of the form YYYY-MM-DD");
  }
}

function isTimeZone(value: string): boolean {
  // Offsets such as +07:00 satisfy Intl but are not IANA ids.
  if (!/^[A-Za-z][A-Za-z0-9_+-]*(\/[A-Za-z0-9_+-]+)*$/.test(value)) return false;
  try {
    return new Intl.DateTimeFormat("en", { timeZone: value }).resolvedOptions().timeZone.length > 0;
  } catch {
    return false;
  }
}

function isCalendarDate(value: string): boolean {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(value)) return false;
  const time = Date.parse(`${value}T00:00:00Z`);
  return !Number.isNaN(time) && new Date(time).toISOString().startsWith(value);
}

/** The objects of a list with their indexes; nothing for anything else. */
export const entriesOf = (list: JsonValue | undefined): (readonly [number, JsonObject])[] =>
  Array.isArray(list)
    ? list.flatMap((entry, index) => (isObject(entry) ? [[index, entry] as const] : []))
    : [];
