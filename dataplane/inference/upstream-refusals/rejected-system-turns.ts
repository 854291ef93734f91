/** Recognizes upstreams that take instructions only before a conversation. */
import { ApiError } from "../../lib/api-error.ts";

/**
 * Anthropic's API for models without such turns, for those that stand where it takes none, and as it was before it had any;
 * validators that list the roles; and chat templates of open models.
 */
const rejection = new RegExp(
  [
    "role [\"'`]?system[\"'`]? (?:is not supported|must (?:follow|precede))",
    "unexpected role [\"'`]?system",
    "role: input should be",
    "system messages? (?:must|should|can only) be (?:at )?(?:the )?(?:first|beginning)",
  ].join("|"),
  "i",
);

/** Whether an upstream's refusal is about a system turn in the middle (dialects.md §D1). */
export const rejectsSystemTurns = (error: unknown): boolean =>
  error instanceof ApiError && error.code === "invalid_request" && rejection.test(error.message);
