/** Checks the fields that every request has (rules 1.4, 1.17), once the whole body was read. */
import type { Dialect } from "../../dialects/dialect.ts";
import { OUTPUT_TOKENS_MIN } from "../../dialects/responses/write-request.ts";
import type { ApiError, ErrorCode } from "../../lib/api-error.ts";
import type { Member, ObjectSpan } from "../../lib/json-reader.ts";
import { bodyFieldError } from "./walk.ts";

/** Most characters that are kept of a model's name; none is so long. One of 30 MiB is not sent between threads to be refused. */
const MAX_MODEL = 1_000;

/** A field that limits the output. */
export interface LimitField {
  readonly name: string;
  readonly member: Member;
  readonly value: number;
}

/** Which fields hold what, in each dialect. */
export const fieldNames = {
  messages: { content: "messages", limits: ["max_tokens"] },
  chat: { content: "messages", limits: ["max_tokens", "max_completion_tokens"] },
  responses: { content: "input", limits: ["max_output_tokens"] },
} as const satisfies Record<Dialect, { content: string; limits: readonly string[] }>;

/**
 * Least output limits. Messages allows 0: it warms the prompt cache without an answer (dialects.md §B1). Responses has
 * its vendor's minimum (dialects.md §B3).
 */
const leastOutput: Readonly<Record<Dialect, number>> = { messages: 0, chat: 1, responses: OUTPUT_TOKENS_MIN };

/** Returns a field unless it is absent or null (rule 1.17). */
export function present(fields: ReadonlyMap<string, Member>, name: string): Member | undefined {
  const member = fields.get(name);
  return member === undefined || member.kind === "null" ? undefined : member;
}

/** Each check takes the value of its field; undefined: it is of another type. @throws ApiError 400 naming the field. */
export class FieldChecks {
  readonly #dialect: Dialect;
  readonly #fields: ReadonlyMap<string, Member>;

  constructor(dialect: Dialect, fields: ReadonlyMap<string, Member>) {
    this.#dialect = dialect;
    this.#fields = fields;
  }

  #error(code: ErrorCode, field: string, problem: string): ApiError {
    return bodyFieldError(code, this.#dialect, [field], problem);
  }

  /** @param items length of the conversation; null: it is of another type. */
  content(items: number | null): void {
    const name = fieldNames[this.#dialect].content;
    const member = present(this.#fields, name);
    if (member === undefined) throw this.#error("missing_parameter", name, "Field required");
    if (items === null)
      throw this.#error(
        "invalid_type",
        name,
        name === "input" ? "must be a string or an array" : "must be an array",
      );
    if (items === 0) throw this.#error("invalid_value", name, "must not be empty");
  }

  /** Checks `stream_options`, to which the relay adds `include_usage`. @param options undefined: no object. */
  streamOptions(options: ObjectSpan | undefined): void {
    if (this.#dialect === "messages" || present(this.#fields, "stream_options") === undefined) return;
    if (options === undefined) throw this.#error("invalid_type", "stream_options", "must be an object");
    const usage = options.members.find(({ key }) => key === "include_usage");
    if (usage !== undefined && usage.kind !== "boolean" && usage.kind !== "null")
      throw bodyFieldError(
        "invalid_type",
        this.#dialect,
        ["stream_options", "include_usage"],
        "must be a boolean",
      );
  }

  model(model: string | undefined): string {
    if (present(this.#fields, "model") === undefined)
      throw this.#error("missing_parameter", "model", "Field required");
    if (model === undefined) throw this.#error("invalid_type", "model", "must be a string");
    if (model === "") throw this.#error("invalid_value", "model", "must not be empty");
    return model.slice(0, MAX_MODEL);
  }

  stream(stream: boolean | undefined): boolean {
    if (present(this.#fields, "stream") === undefined) return false;
    if (stream === undefined) throw this.#error("invalid_type", "stream", "must be a boolean");
    return stream;
  }

  /** @param values in the order of the dialect's names for them. */
  limits(values: readonly (number | undefined)[]): LimitField[] {
    const least = leastOutput[this.#dialect];
    const given: LimitField[] = [];
    for (const [index, name] of fieldNames[this.#dialect].limits.entries()) {
      const member = present(this.#fields, name);
      if (member === undefined) continue;
      const value = values[index];
      if (value === undefined || !Number.isInteger(value))
        throw this.#error("invalid_type", name, "must be an integer");
      if (value < least) throw this.#error("invalid_value", name, `must be at least ${least}`);
      given.push({ name, member, value });
    }
    return given;
  }

  choices(value: number | undefined): number {
    if (this.#dialect !== "chat" || present(this.#fields, "n") === undefined) return 1;
    if (value === undefined || !Number.isInteger(value))
      throw this.#error("invalid_type", "n", "must be an integer");
    if (value < 1 || value > 128) throw this.#error("invalid_value", "n", "must be between 1 and 128");
    return value;
  }
}
