/**
 * Every limit of what a request's body may be, in one place (rules 1.17, 7.4): real clients never meet them, and
 * what is within them is bounded work. `docs/reference/limits.md` tells them, and a test compares the two.
 */
import { ApiError } from "./api-error.ts";
import { fieldPath, type PathStep } from "./field-path.ts";

export const bodyLimits = {
  /** Bytes of an inference body or a batch item, unpacked and with its files in it. */
  bytes: 32 * 1024 * 1024,
  /** Messages of a conversation, or items of a Responses `input`. */
  messages: 100_000,
  /** Content blocks of one message, those within its tool results and documents counted too. */
  blocks: 10_000,
  /** Tools of one request, wherever they are declared. */
  tools: 4_096,
  /** Members of any one object. */
  keys: 100_000,
  /** Arrays and objects within one another; the body itself is the first. */
  depth: 128,
  /** Objects and arrays of a body that has to be parsed: converted, with server tools, or counted here. */
  containers: 1_000_000,
  /** Mentions of files and earlier items in one request. */
  references: 10_000,
  /** Characters of the stop sequences of a request that is converted, and one more for each. */
  stops: 16_384,
} as const;

/** `bodyLimits.bytes` as errors say it. */
export const BODY_LIMIT = `${bodyLimits.bytes / 1024 ** 2} MiB`;

/** How an error calls a count that has a limit. */
const names = {
  messages: "messages or input items",
  blocks: "content blocks in one message",
  tools: "tools",
  containers: "objects and arrays",
  references: "references to files and items",
} as const satisfies Partial<Record<keyof typeof bodyLimits, string>>;

/** The 400 for more of something than there may be. */
export function limitExceeded(
  what: keyof typeof names,
  style: "messages" | "openai",
  path: readonly PathStep[],
): ApiError {
  const param = fieldPath(style, path);
  const message = `${param === "" ? "The request body" : param}: more than ${bodyLimits[what]} ${names[what]}`;
  return new ApiError("invalid_value", message, param === "" ? {} : { param });
}
