/** Errors of a body that show before its contents are looked at. */
import { ApiError } from "../lib/api-error.ts";

/** The client hung up before its request was complete: there is nobody to answer. */
export class ClientGone extends Error {
  override readonly name = "ClientGone";
}

export const clientGone = () => new ClientGone("the client left before its request was complete");

export const unknownEncoding = () =>
  new ApiError(
    "unsupported_media_type",
    "The request's content encoding is not supported; use gzip, zstd or none.",
  );

const MIB = 1024 * 1024;

export const bodyTooLarge = (maxBytes: number) =>
  new ApiError(
    "too_large",
    `The request body is larger than ${maxBytes < MIB ? `${maxBytes / 1024} KiB` : `${maxBytes / MIB} MiB`}.`,
  );

export const bodyTimeout = () => new ApiError("request_timeout", "The request body did not arrive in time.");
