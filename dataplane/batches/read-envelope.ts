/** Reads what stands around a batch's request, a long one in another thread (rule 7.3). */
import { LargeBody, LOOK_HERE_BYTES } from "../inference/large/large-body.ts";
import { Cancellation } from "../lib/cancellation.ts";
import { readFields, type FieldsRead } from "../lib/json-fields.ts";
import type { Engine } from "./engine.ts";

/** @returns the bytes too: those that were given may have been handed over. */
export async function readEnvelope(
  { large: pool }: Pick<Engine, "large">,
  organizationId: string,
  bytes: Buffer,
  names: readonly string[],
): Promise<{ readonly bytes: Buffer; readonly read: FieldsRead }> {
  if (pool === null || bytes.length <= LOOK_HERE_BYTES) return { bytes, read: readFields(bytes, names) };
  const large = new LargeBody(pool, organizationId, new Cancellation(), bytes);
  const read = await large.do("fields", { names });
  return { bytes: large.bytes, read };
}
