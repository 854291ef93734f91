/** The thread that works on large bodies (docs/decisions/large-bodies.md), one job at a time. */
import { getHeapStatistics } from "node:v8";
import { parentPort, workerData } from "node:worker_threads";
import { sealing, type OrganizationSealer, type SealKey } from "../../lib/seal.ts";
import { stepBack } from "../../lib/step-back.ts";
import type { WorkDone } from "../../lib/worker-pool.ts";
import { boundedSealer } from "../request/sealed-reasoning.ts";
import { jobs, transferred, type Answer, type JobName } from "./jobs.ts";
import { toldError, type ToldError } from "./told-error.ts";

export interface JobMessage {
  readonly name: JobName;
  readonly told: unknown;
  readonly organizationId: string;
  /** Transferred to the worker, and back with the result. */
  readonly body: ArrayBuffer;
}

export interface JobResult {
  readonly answer: Answer<JobName> | null;
  readonly error: ToldError | null;
  readonly body: ArrayBuffer;
}

export interface WorkerData {
  readonly keys: readonly { readonly id: string; readonly key: Uint8Array }[];
}

const { keys } = workerData as WorkerData;
const sealerOf = sealing(keys.map(({ id, key }): SealKey => ({ id, key: Buffer.from(key) })));
const MIB = 1024 * 1024;

stepBack();
parentPort?.on("message", work);

function work({ name, told, organizationId, body }: JobMessage): void {
  let result: JobResult;
  try {
    const run = jobs[name] as (told: unknown, context: object) => Answer<JobName>;
    const bytes = Buffer.from(body);
    const answer = run(told, { body: bytes, sealer: boundedSealer(remembering(sealerOf(organizationId))) });
    result = { answer: ownBytes(answer, body), error: null, body };
  } catch (error) {
    result = { answer: null, error: toldError(error), body };
  }
  const heapMiB = getHeapStatistics().total_heap_size / MIB;
  const handedOver = result.answer === null ? [] : transferred(result.answer);
  parentPort?.postMessage({ result, heapMiB } satisfies WorkDone, [...new Set([body, ...handedOver])]);
}

/** Most characters of blobs, sealed and opened, that one job remembers. */
const REMEMBERED = 16 * MIB;

/** Opens each blob once: a body may repeat one a hundred thousand times, and opening takes a tenth of a millisecond. */
function remembering(sealer: OrganizationSealer): OrganizationSealer {
  const opened = new Map<string, string | null>();
  let characters = 0;
  return {
    seal: (plain) => sealer.seal(plain),
    open: (sealed) => {
      const known = opened.get(sealed);
      if (known !== undefined) return known;
      const plain = sealer.open(sealed);
      characters += sealed.length + (plain?.length ?? 0);
      if (characters <= REMEMBERED) opened.set(sealed, plain);
      return plain;
    },
  };
}

/** Copies an answer's bytes, which are transferred, unless they have a buffer of their own. */
function ownBytes<A extends Answer<JobName>>(answer: A, body: ArrayBuffer): A {
  if (!("body" in answer) || answer.body === null) return answer;
  const { buffer, byteLength } = answer.body;
  if (buffer !== body && buffer.byteLength === byteLength) return answer;
  return { ...answer, body: Buffer.from(Uint8Array.from(answer.body).buffer) };
}
