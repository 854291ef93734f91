import { ApiError } from "../lib/api-error.ts";

/** What is told before the first snapshot was loaded: nobody knows yet who may call, and what is served. */
export const noSnapshot = (): ApiError =>
  new ApiError("unavailable", "The service is starting; try again in a moment.");
