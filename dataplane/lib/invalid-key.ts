import { ApiError } from "./api-error.ts";

/**
 * Makes the 401 for a key or token that is not valid, in the words that Claude Code and the SDKs' users know.
 * @param why what is wrong with it, as a sentence that goes on after a colon.
 */
export const invalidKey = (why?: string): ApiError =>
  new ApiError("authentication", why === undefined ? "invalid x-api-key" : `invalid x-api-key: ${why}`);
