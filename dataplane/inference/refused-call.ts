/** Model and tags for the record of a request that is refused for its body, before anything else is known of it (rule 14.1). */
import { ApiError } from "../lib/api-error.ts";
import { withoutMark } from "../lib/byte-order-mark.ts";
import { JsonFault, JsonReader } from "../lib/json-reader.ts";
import { readTags } from "../lib/tags.ts";
import type { InferenceCall } from "./call.ts";
import { refusedBytes } from "./large/large-body.ts";

/** Bytes of a body that are read for its model: it is nearly always named first, and the reading must not take long. */
const LOOKED_AT_BYTES = 128 * 1024;

/** Records the requested model and the tags of the header, as far as they can be read. Call it when serving failed. */
export function rememberRefused({
  body,
  headers,
  summary,
}: Pick<InferenceCall, "body" | "headers" | "summary">): void {
  summary.askedModel ??= modelIn(refusedBytes(body));
  summary.tags ??= tagsIn(headers["x-gapura-tags"]);
}

function modelIn(body: Buffer): string | null {
  // Another thread has the bytes (large/large-body.ts).
  if (body.length === 0) return null;
  const reader = new JsonReader(withoutMark(body.subarray(0, LOOKED_AT_BYTES)));
  let model: string | undefined;
  try {
    reader.object((key) => {
      if (key === "model") model = reader.string();
    });
  } catch (fault) {
    // A model before the fault, or before the end of these bytes, counts.
    if (!(fault instanceof JsonFault)) throw fault;
  }
  return model ?? null;
}

/** Returns null for a fault in the tags: the client gets that of its body. */
function tagsIn(header = ""): string | null {
  try {
    return readTags(header, "x-gapura-tags") || null;
  } catch (fault) {
    if (!(fault instanceof ApiError)) throw fault;
    return null;
  }
}
