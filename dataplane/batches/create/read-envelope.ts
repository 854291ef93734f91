/** Reads the fields around a request of a batch, those of a long one in another thread (rule 7.3). */
import { LargeBody, INSPECT_HERE_BYTES } from "../../inference/large/large-body.ts";
import { Cancellation } from "../../lib/cancellation.ts";
import { readJsonFields, type FieldsRead } from "../../lib/json-fields.ts";
import type { BatchContext } from "../context.ts";

/** @returns the bytes too: the given buffer may have been transferred to the thread. */
export async function readEnvelope(
  { large: pool }: Pick<BatchContext, "large">,
  organizationId: string,
  bytes: Buffer,
  names: readonly string[],
): Promise<{ readonly bytes: Buffer; readonly read: FieldsRead }> {
  if (pool === null || bytes.length <= INSPECT_HERE_BYTES)
    return { bytes, read: readJsonFields(bytes, names) };
  const large = new LargeBody(pool, organizationId, new Cancellation(), bytes);
  const read = await large.do("fields", { names });
  return { bytes: large.bytes, read };
}
