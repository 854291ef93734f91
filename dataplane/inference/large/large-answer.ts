/**
 * A whole answer that another thread works on (docs/decisions/large-bodies.md). Its upstream charges for it: so it gets its
 * turn however many jobs wait, and its usage is read even if its client has left before.
 */
import type { MessagesUsage } from "../../dialects/messages/types.ts";
import type { UsageContext } from "../../dialects/usage.ts";
import { WorkNotDone, type WorkerPool } from "../../lib/worker-pool.ts";
import { unpackItems } from "../answer/held-items.ts";
import type { PassedOn } from "../answer/passed-on.ts";
import type { Outcome } from "../answer/whole-answer.ts";
import type { BodyPlace } from "../request/request-body.ts";
import type { WholeEvents } from "../with-tools/whole-events.ts";
import type { Answer, JobInput, JobName, Told } from "./jobs.ts";
import { bufferOf, handedOver } from "./large-body.ts";
import { errorOf } from "./told-error.ts";
import type { JobMessage, JobResult } from "./worker.ts";

/** Never aborts: what is charged is read to its end. */
const { signal: never } = new AbortController();

export class LargeAnswer {
  readonly #pool: WorkerPool;
  readonly #place: BodyPlace;
  readonly #bytes: Buffer;

  constructor(pool: WorkerPool, place: BodyPlace, bytes: Buffer) {
    this.#pool = pool;
    this.#place = place;
    this.#bytes = bytes;
  }

  /** Returns what the client gets, or why it gets nothing; null: the answer took its thread down. */
  async passedOn<Name extends "relayAnswer" | "convertAnswer">(
    name: Name,
    told: Omit<JobInput<Name>, "isWanted">,
  ): Promise<Outcome<PassedOn> | null> {
    let isWanted = true;
    const done = await this.#do(name, () => {
      isWanted = !this.#place.closed.aborted;
      return { ...told, isWanted } as JobInput<Name>;
    });
    if (done === null) return null;
    const { outcome, body, items } = done.answer;
    if (outcome.kind !== "answer") return outcomeTold<never>(outcome);
    const came = isWanted ? done.bytes : null;
    return {
      kind: "answer",
      read: {
        usage: outcome.read.usage,
        body: body === null ? came : bufferOf(body),
        items: items === null ? [] : unpackItems({ ...items, json: bufferOf(items.json) }),
      },
    };
  }

  /** Returns what the tool loop reads, or why it reads nothing; null: the answer took its thread down. */
  async events(told: JobInput<"loopAnswer">): Promise<Outcome<WholeEvents> | null> {
    const done = await this.#do("loopAnswer", () => told);
    return done === null ? null : outcomeTold(done.answer);
  }

  /** Returns the usage of an answer that broke off; null: the answer took its thread down. */
  async usageOfBegun(told: JobInput<"begunAnswer">): Promise<MessagesUsage | null> {
    return (await this.#do("begunAnswer", () => plainly(told)))?.answer ?? null;
  }

  /** Returns what a body costs that came in place of a stream, or that it is free; null: it took its thread down. */
  async noStream(told: JobInput<"noStream">): Promise<Answer<"noStream"> | null> {
    return (await this.#do("noStream", () => plainly(told)))?.answer ?? null;
  }

  async #do<Name extends JobName>(
    name: Name,
    told: () => JobInput<Name>,
  ): Promise<{ readonly answer: Answer<Name>; readonly bytes: Buffer } | null> {
    const { organizationId } = this.#place;
    const message = () => {
      const body = handedOver(this.#bytes);
      const sent: JobMessage = { name, told: told(), organizationId, body };
      return { message: sent, transfer: [body] };
    };
    let result: JobResult;
    try {
      result = (await this.#pool.run(organizationId, message, never, true)) as JobResult;
    } catch (error) {
      if (error instanceof WorkNotDone && error.reason === "broken") return null;
      throw error;
    }
    if (result.error !== null) throw errorOf(result.error);
    return { answer: result.answer as Answer<Name>, bytes: Buffer.from(result.body) };
  }
}

/** Leaves out what a context has besides, functions above all: they do not pass between threads. */
const plainly = <Input extends { readonly context: UsageContext }>(told: Input): Input => {
  const { estimatedInputTokens, media, possible } = told.context;
  const context: UsageContext = {
    ...(estimatedInputTokens !== undefined && { estimatedInputTokens }),
    ...(media !== undefined && { media }),
    ...(possible !== undefined && { possible }),
  };
  return { ...told, context };
};

const outcomeTold = <Read>(told: Told<Outcome<Read>>): Outcome<Read> =>
  ("error" in told ? { ...told, error: errorOf(told.error) } : told) as Outcome<Read>;
