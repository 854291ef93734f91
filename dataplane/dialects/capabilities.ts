/** Applies a model's capabilities to a request in the hub before it is written for an upstream. */
import { ApiError } from "../lib/api-error.ts";
import type { Carry, Target } from "./codecs.ts";
import type { DropListener } from "./drop-listener.ts";
import type { ContentBlockParam, MessagesRequest } from "./messages/types.ts";

/** Limits the output to the model's maximum (rule 2.6); undefined when the client set no limit. */
export const clampOutput = (limit: number | undefined, target: Target): number | undefined =>
  limit === undefined ? undefined : Math.min(limit, target.maxOutputTokens);

const samplingFields = ["temperature", "top_p", "top_k"] as const;

/** Whether sampling fields may be sent; names those that are dropped. The names are the same in each dialect. */
export function noteSampling(request: MessagesRequest, target: Target, notes: DropListener): boolean {
  if (target.samplingParameters) return true;
  for (const field of samplingFields) if (request[field] !== undefined) notes.dropped(field);
  return false;
}

/** Whether thinking and effort may be sent; names those that are dropped, in the client's words. */
export function noteThinking(
  request: MessagesRequest,
  carry: Carry,
  target: Target,
  notes: DropListener,
): boolean {
  if (target.thinking) return true;
  // A model without thinking does that anyway.
  if (request.thinking?.type === "disabled") return false;
  const asked = request.thinking !== undefined || request.output_config?.effort !== undefined;
  if (!asked) return false;
  if (carry.dialect === "chat") notes.dropped("reasoning_effort");
  else if (carry.dialect === "responses") notes.dropped("reasoning.effort");
  else {
    if (request.thinking !== undefined) notes.dropped("thinking");
    if (request.output_config?.effort !== undefined) notes.dropped("output_config.effort");
  }
  return false;
}

/** @throws ApiError `unsupported_content` for an image or a PDF that the model cannot read (rule 2.3). */
export function refuseMedia(request: MessagesRequest, carry: Carry, target: Target): void {
  if (target.imageInput && target.pdfInput) return;
  for (const { content } of request.messages)
    if (typeof content !== "string") for (const block of content) refuseBlock(block, carry, target);
}

function refuseBlock(block: ContentBlockParam, carry: Carry, target: Target): void {
  if (block.type === "image" && !target.imageInput) throw unsupportedContent(block, carry, "images");
  if (block.type === "document" && !target.pdfInput && isPdf(block.source.type))
    throw unsupportedContent(block, carry, "PDF documents");
  const nested =
    block.type === "tool_result"
      ? block.content
      : block.type === "document" && block.source.type === "content"
        ? block.source.content
        : undefined;
  if (typeof nested === "object") for (const inner of nested) refuseBlock(inner, carry, target);
}

/** Whether a source is a PDF, as a file that was not inlined may be. Text needs no capability. */
const isPdf = (source: string): boolean => source === "base64" || source === "url" || source === "file";

/** Makes the refusal of a content block that the model or its upstream cannot hold. */
export function unsupportedContent(block: object, carry: Carry, what: string): ApiError {
  const path = carry.places.get(block);
  const message = `the model does not support ${what} as content`;
  return new ApiError(
    "unsupported_content",
    path === undefined ? message : `${path}: ${message}`,
    path === undefined ? {} : { param: path },
  );
}
