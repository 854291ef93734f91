/**
 * Reads a client's JSON field by field and knows where it stands, so that every refusal names the field's path
 * in the caller's own style: `messages.3.content.1.source` toward Messages clients (whose CLIs parse such
 * messages, dialects.md §A2), `messages[3].content[1].image_url.url` toward the others.
 * A field that is null counts as absent (rule 1.17); inherited names such as `toString` are never fields.
 */
import { ApiError, type ErrorCode } from "../lib/api-error.ts";
import { isObject } from "../lib/json-object.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";

export type PathStyle = "messages" | "openai";

/** The error for one field at fault. `problem` is a sentence without the path. */
export function fieldError(
  style: PathStyle,
  path: string,
  problem: string,
  code: ErrorCode = "invalid_value",
): ApiError {
  const message = style === "messages" ? `${path}: ${problem}` : `Invalid '${path}': ${problem}.`;
  return new ApiError(code, message, { param: path });
}

export class Cursor {
  readonly value: JsonObject;
  readonly path: string;
  readonly style: PathStyle;

  constructor(value: JsonObject, path: string, style: PathStyle) {
    this.value = value;
    this.path = path;
    this.style = style;
  }

  /** The path of a field of this object, or of an element of one of its lists. */
  at(key: string, index?: number): string {
    const field = this.path === "" ? key : `${this.path}.${key}`;
    if (index === undefined) return field;
    return this.style === "messages" ? `${field}.${index}` : `${field}[${index}]`;
  }

  /** @throws always: the field `key` is at fault. */
  fail(key: string, problem: string, code: ErrorCode = "invalid_value"): never {
    throw fieldError(this.style, this.at(key), problem, code);
  }

  /** @throws always: the field `key` is mandatory. */
  missing(key: string): never {
    const path = this.at(key);
    const message =
      this.style === "messages" ? `${path}: Field required` : `Missing required parameter: '${path}'.`;
    throw new ApiError("missing_parameter", message, { param: path });
  }

  get(key: string): JsonValue | undefined {
    return Object.hasOwn(this.value, key) ? (this.value[key] ?? undefined) : undefined;
  }

  has(key: string): boolean {
    return this.get(key) !== undefined;
  }

  text(key: string): string | undefined {
    const value = this.get(key);
    if (value === undefined || typeof value === "string") return value;
    return this.fail(key, "Input should be a valid string", "invalid_type");
  }

  requiredText(key: string): string {
    return this.text(key) ?? this.missing(key);
  }

  /** A string that must not be empty. */
  name(key: string): string {
    const value = this.requiredText(key);
    return value === "" ? this.fail(key, "String should have at least 1 character") : value;
  }

  boolean(key: string): boolean | undefined {
    const value = this.get(key);
    if (value === undefined || typeof value === "boolean") return value;
    return this.fail(key, "Input should be a valid boolean", "invalid_type");
  }

  number(key: string, least: number, most: number): number | undefined {
    const value = this.get(key);
    if (value === undefined) return undefined;
    if (typeof value !== "number" || !Number.isFinite(value))
      return this.fail(key, "Input should be a valid number", "invalid_type");
    if (value < least || value > most) return this.fail(key, `Input should be between ${least} and ${most}`);
    return value;
  }

  integer(key: string, least: number): number | undefined {
    const value = this.get(key);
    if (value === undefined) return undefined;
    if (typeof value !== "number" || !Number.isInteger(value))
      return this.fail(key, "Input should be a valid integer", "invalid_type");
    if (value < least) return this.fail(key, `Input should be greater than or equal to ${least}`);
    return value;
  }

  oneOf<const T extends string>(key: string, allowed: readonly T[]): T | undefined {
    const value = this.text(key);
    if (value === undefined) return undefined;
    const found = allowed.find((candidate) => candidate === value);
    return found ?? this.fail(key, `Input should be one of: ${allowed.join(", ")}`);
  }

  object(key: string): Cursor | undefined {
    const value = this.get(key);
    if (value === undefined) return undefined;
    if (isObject(value)) return new Cursor(value, this.at(key), this.style);
    return this.fail(key, "Input should be an object", "invalid_type");
  }

  requiredObject(key: string): Cursor {
    return this.object(key) ?? this.missing(key);
  }

  list(key: string): readonly JsonValue[] | undefined {
    const value = this.get(key);
    if (value === undefined || Array.isArray(value)) return value;
    return this.fail(key, "Input should be a list", "invalid_type");
  }

  /** A list of objects. */
  objects(key: string): readonly Cursor[] | undefined {
    return this.list(key)?.map((value, index) => {
      if (isObject(value)) return new Cursor(value, this.at(key, index), this.style);
      throw fieldError(this.style, this.at(key, index), "Input should be an object", "invalid_type");
    });
  }

  /** Content: a string, or a list of objects. */
  content(key: string): string | readonly Cursor[] | undefined {
    const value = this.get(key);
    if (value === undefined || typeof value === "string") return value;
    if (Array.isArray(value)) return this.objects(key);
    return this.fail(key, "Input should be a string or a list", "invalid_type");
  }

  /** A list of strings. */
  texts(key: string): readonly string[] | undefined {
    return this.list(key)?.map((value, index) => {
      if (typeof value === "string") return value;
      throw fieldError(this.style, this.at(key, index), "Input should be a valid string", "invalid_type");
    });
  }
}
