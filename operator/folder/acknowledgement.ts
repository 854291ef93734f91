/** Asks one data plane what it holds. */
import { type ConfigStatus, statusSchema } from "../../dataplane/config/schema.ts";
import type { PodReport } from "../plan/conditions.ts";

const TIMEOUT_MS = 2000;
/** 10,000 objects need about 2 MiB. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

/** Reads `/config/status`. No answer, an endless or a malformed one counts as no acknowledgement (rule 6.1). */
export async function readStatus(url: string, signal: AbortSignal): Promise<ConfigStatus | null> {
  try {
    const answer = await fetch(url, {
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
      redirect: "error",
    });
    if (!answer.ok || answer.body === null) {
      await answer.body?.cancel();
      return null;
    }
    const chunks: Uint8Array[] = [];
    let size = 0;
    for await (const chunk of answer.body) {
      size += chunk.length;
      if (size > MAX_ANSWER_BYTES) return null;
      chunks.push(chunk);
    }
    return statusSchema.safeParse(JSON.parse(Buffer.concat(chunks).toString())).data ?? null;
  } catch {
    return null;
  }
}

/** The one data plane of one machine, as the one ready pod. */
export const askOne = (url: string, signal: AbortSignal) => async (): Promise<readonly PodReport[]> => {
  const status = await readStatus(url, signal);
  // Not answering is not being there: a folder has no API server that knows of ready pods.
  return status === null ? [] : [{ pod: status.podUid, status }];
};
