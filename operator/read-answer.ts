/** Reads what other programs answer, with a bound, and what a data plane says of itself (rule 6.1). */
import { type ConfigStatus, statusSchema } from "../dataplane/config/schema.ts";

/** Longest answer of `/config/status` that is read; 10,000 objects need about 2 MiB. */
export const MAX_STATUS_BYTES = 16 * 1024 * 1024;

/** Returns a whole body of at most `mostBytes`; null: it is longer, and was not read further. */
export async function readAtMost(body: AsyncIterable<Uint8Array>, mostBytes: number): Promise<Buffer | null> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    if (size > mostBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Reads an answer of `/config/status`; null: it is malformed. */
export function parseStatus(body: Buffer): ConfigStatus | null {
  try {
    return statusSchema.safeParse(JSON.parse(body.toString())).data ?? null;
  } catch {
    return null;
  }
}
