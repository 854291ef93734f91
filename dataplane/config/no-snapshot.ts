import { ApiError } from "../lib/api-error.ts";

/** Makes the error for requests before the first snapshot is loaded: it is not known yet who may call, and what is served. */
export const noSnapshot = (): ApiError =>
  new ApiError("unavailable", "The service is starting; try again in a moment.");
