/** What the record of a request has that is refused for its body, before anything was learned of it (rule 14.1). */
import { ApiError } from "../lib/api-error.ts";
import { withoutMark } from "../lib/byte-order-mark.ts";
import { JsonFault, JsonReader } from "../lib/json-reader.ts";
import { readTags } from "../lib/tags.ts";
import type { InferenceCall } from "./call.ts";
import { refusedBytes } from "./large/large-body.ts";

/** So much of a body is looked at: a model is nearly always named first, and none of this may take long. */
const LOOKED_AT_BYTES = 128 * 1024;

/** Call it when serving failed: the model that was asked for and the tags of the header, as far as they can be read. */
export function rememberRefused({
  body,
  headers,
  summary,
}: Pick<InferenceCall, "body" | "headers" | "summary">): void {
  summary.askedModel ??= modelIn(refusedBytes(body));
  summary.tags ??= tagsIn(headers["x-gapura-tags"]);
}

function modelIn(body: Buffer): string | null {
  // Another thread has it, bytes and all (large/large-body.ts).
  if (body.length === 0) return null;
  const reader = new JsonReader(withoutMark(body.subarray(0, LOOKED_AT_BYTES)));
  let model: string | undefined;
  try {
    reader.object((key) => {
      if (key === "model") model = reader.string();
    });
  } catch (fault) {
    // What stands before the fault, or the end of what is looked at, counts.
    if (!(fault instanceof JsonFault)) throw fault;
  }
  return model ?? null;
}

/** The client is told of the fault in its body alone. */
function tagsIn(header = ""): string | null {
  try {
    return readTags(header, "x-gapura-tags") || null;
  } catch (fault) {
    if (!(fault instanceof ApiError)) throw fault;
    return null;
  }
}
