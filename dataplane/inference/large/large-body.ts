/**
 * A body that another thread works on. Its bytes are transferred for a job and come back with the result, so that 32 MiB
 * are neither copied nor held twice; small bodies are copied, which costs less than tracking where their bytes are.
 */
import { availableParallelism } from "node:os";
import { ApiError } from "../../lib/api-error.ts";
import type { Cancellation } from "../../lib/cancellation.ts";
import type { SealKey } from "../../lib/seal.ts";
import { WorkerPool, WorkNotDone, type WorkerPoolLimits } from "../../lib/worker-pool.ts";
import { metrics } from "../../telemetry/metrics.ts";
import type { Answer, JobName, JobInput } from "./jobs.ts";
import { errorOf } from "./told-error.ts";
import type { JobMessage, JobResult, WorkerData } from "./worker.ts";

/** Largest body that is inspected in this thread: the worst one takes some milliseconds (large-bodies.md). */
export const INSPECT_HERE_BYTES = 128 * 1024;
/** The same limit for parsing and converting, also of answers. */
export const CONVERT_HERE_BYTES = 64 * 1024;
/** Largest body that is copied for the worker, so that the bytes stay here as well. */
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

/** Opens the pool of threads for large bodies. The threads seal and open with `keys`, as this one does. */
export function newLargePool(keys: readonly SealKey[], more: Partial<WorkerPoolLimits> = {}): WorkerPool {
  const data: WorkerData = { keys };
  return new WorkerPool(new URL("./worker.ts", import.meta.url), data, { ...limits, ...more });
}

/** The bytes of refused bodies, which come back from the worker in a new buffer, by the buffer that was handed over. */
const refused = new WeakMap<Buffer, Buffer>();

/** Returns the bytes of a body that may have been handed over; no bytes: another thread has them, or did not refuse the body. */
export const refusedBytes = (body: Buffer): Buffer => refused.get(body) ?? body;

export class LargeBody {
  readonly #pool: WorkerPool;
  readonly #organizationId: string;
  readonly #closed: Cancellation;
  /** null while the worker has them, and when they were lost with it. */
  #bytes: Buffer | null;

  constructor(pool: WorkerPool, organizationId: string, closed: Cancellation, bytes: Buffer) {
    this.#pool = pool;
    this.#organizationId = organizationId;
    this.#closed = closed;
    this.#bytes = bytes;
  }

  /** @throws ApiError 413 when the bytes were lost with their worker. */
  get bytes(): Buffer {
    if (this.#bytes === null) throw tooMuch();
    return this.#bytes;
  }

  /** Makes a `LargeBody` of other bytes of the same request. */
  of(bytes: Buffer): LargeBody {
    return new LargeBody(this.#pool, this.#organizationId, this.#closed, bytes);
  }

  /**
   * Runs a job, one at a time: meanwhile the worker may have the bytes.
   * @param handedOver buffers of `told` that are transferred as well.
   * @throws ApiError that of the job; 503 or 429 when too many jobs wait; 413 when the job broke its worker.
   */
  async do<Name extends JobName>(
    name: Name,
    told: JobInput<Name>,
    handedOver: readonly ArrayBuffer[] = [],
  ): Promise<Answer<Name>> {
    return await this.#run(name, told, handedOver).catch(toldClient);
  }

  /** As `do`; null: no thread did the job, as too many wait or it broke its worker. @throws ApiError that of the job */
  async doIfPossible<Name extends JobName>(name: Name, told: JobInput<Name>): Promise<Answer<Name> | null> {
    return await this.#run(name, told).catch((error: unknown) => {
      if (error instanceof WorkNotDone && error.reason !== "cancelled") return null;
      throw error;
    });
  }

  /** @throws ApiError that of the job; WorkNotDone */
  async #run<Name extends JobName>(
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
    const { answer, error, body } = (await this.#pool.run(
      this.#organizationId,
      message,
      this.#closed.signal,
    )) as JobResult;
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

/** Returns the buffer to transfer to another thread: the bytes' own memory where they are many, else a copy. */
export function handedOver(bytes: Buffer): ArrayBuffer {
  const { buffer, byteLength } = bytes;
  const isOwn = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
  return isOwn && byteLength > COPIED_BYTES ? buffer : Uint8Array.from(bytes).buffer;
}

/** Makes an answer's body a Buffer again: threads pass a Uint8Array. */
function withBuffer<A extends Answer<JobName>>(answer: A): A {
  if (!("body" in answer) || answer.body === null) return answer;
  return { ...answer, body: bufferOf(answer.body) };
}

export const bufferOf = ({ buffer, byteOffset, byteLength }: Uint8Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);

function toldClient(error: unknown): never {
  if (!(error instanceof WorkNotDone)) throw error;
  switch (error.reason) {
    case "busy":
      metrics.refused.inc({ reason: "large_bodies" });
      throw new ApiError("unavailable", "Too many large requests are being read; try again in a moment.", {
        retryAfterSeconds: 1,
        cause: error,
      });
    case "busy_owner":
      metrics.refused.inc({ reason: "large_bodies" });
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
