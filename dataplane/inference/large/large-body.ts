/**
 * A body that is worked on in another thread. Its bytes are handed over for a job and handed back with the answer, so
 * that 32 MiB are neither copied nor held twice; small ones are copied, which costs less than taking care.
 */
import { availableParallelism } from "node:os";
import { ApiError } from "../../lib/api-error.ts";
import type { Cancellation } from "../../lib/cancellation.ts";
import type { SealKey } from "../../lib/seal.ts";
import { WorkerPool, WorkNotDone, type WorkerPoolLimits } from "../../lib/worker-pool.ts";
import type { Answer, JobName, JobInput } from "./jobs.ts";
import { errorOf } from "./told-error.ts";
import type { JobMessage, JobResult, WorkerData } from "./worker.ts";

/** Bodies up to this are looked at where they are: the worst of them takes some milliseconds (large-bodies.md). */
export const INSPECT_HERE_BYTES = 128 * 1024;
/** The same for parsing and converting. */
export const CONVERT_HERE_BYTES = 64 * 1024;
/** Up to this size a copy for the worker is made, and the bytes stay here as well. */
const COPIED_BYTES = 1024 * 1024;

const limits: WorkerPoolLimits = {
  workers: Math.min(2, Math.max(1, availableParallelism() - 1)),
  // The worst body within the limits takes about half of it (large-bodies.md).
  heapMiB: 1024,
  retireMiB: 192,
  jobMs: 20_000,
  graceMs: 250,
  waitMs: 60_000,
  waiting: 128,
  waitingOfOne: 32,
};

/** The threads for large bodies. `keys` open and seal there what they open and seal here. */
export function newLargePool(keys: readonly SealKey[], more: Partial<WorkerPoolLimits> = {}): WorkerPool {
  const data: WorkerData = { keys };
  return new WorkerPool(new URL("./worker.ts", import.meta.url), data, { ...limits, ...more });
}

/** By the buffer that was handed over: the bytes of a body that was refused, which came back in another one. */
const refused = new WeakMap<Buffer, Buffer>();

/** The bytes of a body that may have been handed over. None: another thread has them, or what it read was not refused. */
export const refusedBytes = (body: Buffer): Buffer => refused.get(body) ?? body;

export class LargeBody {
  readonly #pool: WorkerPool;
  readonly #organizationId: string;
  readonly #closed: Cancellation;
  /** null: with the worker, or lost with it. */
  #bytes: Buffer | null;

  constructor(pool: WorkerPool, organizationId: string, closed: Cancellation, bytes: Buffer) {
    this.#pool = pool;
    this.#organizationId = organizationId;
    this.#closed = closed;
    this.#bytes = bytes;
  }

  /** @throws ApiError 413 when its worker took it down. */
  get bytes(): Buffer {
    if (this.#bytes === null) throw tooMuch();
    return this.#bytes;
  }

  /** Another body of the same request. */
  of(bytes: Buffer): LargeBody {
    return new LargeBody(this.#pool, this.#organizationId, this.#closed, bytes);
  }

  /**
   * Has a job done. One at a time: meanwhile the bytes are not here.
   * @param handedOver what of `told` is handed over as well.
   * @throws ApiError what the job throws; 503 or 429 when too much waits; 413 when it broke its worker.
   */
  async do<Name extends JobName>(
    name: Name,
    told: JobInput<Name>,
    handedOver: readonly ArrayBuffer[] = [],
  ): Promise<Answer<Name>> {
    const given = this.#bytes;
    const message = () => {
      const body = this.#handOver();
      const sent: JobMessage = { name, told, organizationId: this.#organizationId, body };
      return { message: sent, transfer: [body, ...handedOver] };
    };
    const { answer, error, body } = (await this.#pool
      .run(this.#organizationId, message, this.#closed.signal)
      .catch(toldClient)) as JobResult;
    this.#bytes = Buffer.from(body);
    if (error !== null) {
      if (given !== null) refused.set(given, this.#bytes);
      throw errorOf(error);
    }
    return withBuffer(answer as Answer<Name>);
  }

  #handOver(): ArrayBuffer {
    const { bytes } = this;
    const sent = handedOver(bytes);
    if (sent === bytes.buffer) this.#bytes = null;
    return sent;
  }
}

/** What of the bytes goes to another thread: their own memory where they are many, else a copy. */
export function handedOver(bytes: Buffer): ArrayBuffer {
  const { buffer, byteLength } = bytes;
  const isOwn = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
  return isOwn && byteLength > COPIED_BYTES ? buffer : Uint8Array.from(bytes).buffer;
}

/** Between threads a Buffer becomes an array of bytes. */
export function withBuffer<A extends Answer<JobName>>(answer: A): A {
  if (!("body" in answer) || answer.body === null) return answer;
  return { ...answer, body: bufferOf(answer.body) };
}

export const bufferOf = ({ buffer, byteOffset, byteLength }: Uint8Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);

function toldClient(error: unknown): never {
  if (!(error instanceof WorkNotDone)) throw error;
  switch (error.reason) {
    case "busy":
      throw new ApiError("unavailable", "Too many large requests are being read; try again in a moment.", {
        retryAfterSeconds: 1,
        cause: error,
      });
    case "busy_owner":
      throw new ApiError("rate_limited", "Too many large requests of this organization are being read.", {
        retryAfterSeconds: 1,
        cause: error,
      });
    case "broken":
      throw tooMuch(error);
    case "cancelled":
      throw error;
  }
}

const tooMuch = (cause?: unknown) =>
  new ApiError("too_large", "The request holds more than can be read.", { cause });
