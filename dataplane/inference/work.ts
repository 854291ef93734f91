/**
 * A request's body and what is done with it: here where it is small, in another thread where that would hold up
 * everybody else (rule 7.3). What is small is done at once: waiting for nothing costs each request a microsecond.
 */
import type { Upstream } from "../config/schema.ts";
import type { CodecContext, KeepItem, Sealer } from "../dialects/codecs.ts";
import type { Dialect } from "../dialects/dialect.ts";
import type { JsonObject } from "../dialects/messages/types.ts";
import { bodyLimits, tooMany } from "../lib/body-limits.ts";
import type { Cancellation } from "../lib/cancellation.ts";
import { type Edit, splice } from "../lib/json-splice.ts";
import type { WorkerPool } from "../lib/worker-pool.ts";
import { countSample } from "../tokens/count.ts";
import { sampledTexts } from "../tokens/sample.ts";
import { CitedSources } from "../tools/links.ts";
import { PriorContext } from "../tools/web-fetch/prior-context.ts";
import {
  Conversion,
  contextOf,
  parsedBody,
  plainBody,
  readingOf,
  type ConversionFacts,
  type Converting,
} from "./conversion.ts";
import { forCountUpstream } from "./count-body.ts";
import { relayBody, type RelayBody, type RelayWishes } from "./edits.ts";
import { putFiles, type FileContents } from "./put-files.ts";
import type { FarCarry, RelayRoute } from "./large/jobs.ts";
import { CONVERT_HERE_BYTES, LargeBody, LOOK_HERE_BYTES } from "./large/large-body.ts";
import { look, type Facts, type FarLook, type Look, type Seen } from "./look.ts";
import { styleOf } from "./look-walk.ts";
import { namesOf, OpenLoop, type LoopFacts, type LoopWork } from "./open-loop.ts";
import { bodyWithoutReasoning } from "./rejected-reasoning.ts";
import { boundedSealer } from "./sealed-reasoning.ts";
import { tiersToward } from "./standard-tier.ts";

export interface Work {
  readonly seen: Seen;
  readonly body: Buffer;
  relay(
    route: RelayRoute,
    upstream: Upstream,
    wishes: RelayWishes,
    sealer: Sealer,
  ): RelayBody | Promise<RelayBody>;
  read(
    facts: ConversionFacts,
    sealer: Sealer,
    keepItem: KeepItem | undefined,
  ): Converting | Promise<Converting>;
  openLoop(facts: LoopFacts, sealer: Sealer, keepItem: KeepItem | undefined): LoopWork | Promise<LoopWork>;
  /** The same without the reasoning of earlier turns; null when there is none. */
  withoutReasoning(): Work | null | Promise<Work | null>;
  /** The same with another body. */
  with(body: Buffer): Work | Promise<Work>;
  /**
   * The same with files in the place of their ids.
   * @param bytes of the body with the files in it, about.
   */
  withFiles(files: readonly FileContents[], bytes: number): Work | Promise<Work>;
  /** A count's body as an upstream gets it. */
  forCount(upstream: Upstream, sealer: Sealer): Buffer | Promise<Buffer>;
  /** Its tokens, counted by our own tokenizer. */
  countTokens(): Promise<number>;
}

/** Whose body it is, and where large ones are worked on; without a pool, here. */
export interface WorkPlace {
  readonly pool: WorkerPool | null;
  readonly organizationId: string;
  /** Aborted when the client is gone. */
  readonly closed: Cancellation;
}

/** @throws ApiError 400 as `look` does. */
export function openWork(dialect: Dialect, body: Buffer, place: WorkPlace): Work | Promise<Work> {
  const { pool, organizationId, closed } = place;
  if (pool === null || body.length <= LOOK_HERE_BYTES) return new WorkHere(look(dialect, body), place);
  return openFar(dialect, new LargeBody(pool, organizationId, closed, body), place);
}

/** The body with some of it replaced. */
export const edited = (work: Work, edits: readonly Edit[]): Work | Promise<Work> =>
  work.with(splice(work.body, edits));

async function openFar(dialect: Dialect, large: LargeBody, place: WorkPlace): Promise<Work> {
  return new WorkFar(await large.do("look", { dialect }), large, place);
}

class WorkHere implements Work {
  readonly seen: Look;
  readonly #place: WorkPlace;

  constructor(seen: Look, place: WorkPlace) {
    this.seen = seen;
    this.#place = place;
  }

  get body(): Buffer {
    return this.seen.body;
  }

  relay(route: RelayRoute, upstream: Upstream, wishes: RelayWishes, sealer: Sealer): RelayBody {
    return relayBody(this.seen, route, upstream, wishes, sealer);
  }

  read(
    facts: ConversionFacts,
    sealer: Sealer,
    keepItem: KeepItem | undefined,
  ): Converting | Promise<Converting> {
    const far = this.#farFor(this.body.length);
    if (far !== null) return readFar(far, this.seen, facts, sealer, keepItem);
    const bounded = boundedSealer(sealer);
    return new Conversion(facts, contextOf(facts, bounded, keepItem), plainBody(this.seen, bounded));
  }

  openLoop(facts: LoopFacts, sealer: Sealer, keepItem: KeepItem | undefined): LoopWork | Promise<LoopWork> {
    const far = this.#farFor(this.body.length);
    if (far !== null) return openLoopFar(far, this.seen, facts, sealer, keepItem);
    return new OpenLoop(facts, boundedSealer(sealer), parsedBody(this.seen), keepItem);
  }

  withoutReasoning(): Work | null {
    const body = bodyWithoutReasoning(this.seen.dialect, this.seen.body);
    return body === null ? null : new WorkHere(look(this.seen.dialect, body), this.#place);
  }

  with(body: Buffer): Work | Promise<Work> {
    return openWork(this.seen.dialect, body, this.#place);
  }

  withFiles(files: readonly FileContents[], bytes: number): Work | Promise<Work> {
    const far = this.#farFor(bytes);
    return far === null ? this.with(putFiles(this.seen, files)) : withFilesFar(far, this, files);
  }

  forCount(upstream: Upstream, sealer: Sealer): Buffer {
    return forCountUpstream(this.seen, upstream, sealer);
  }

  countTokens(): Promise<number> {
    const { organizationId, closed } = this.#place;
    const far = this.#farFor(this.body.length);
    return far === null
      ? countSample(sampledTexts(parsedBody(this.seen)), organizationId, closed.signal)
      : countFar(far, this.seen, this.#place);
  }

  /** Where work is done that takes as long as parsing so much; null: here. It may be looked at here all the same. */
  #farFor(bytes: number): LargeBody | null {
    const { pool, organizationId, closed } = this.#place;
    return pool === null || bytes <= CONVERT_HERE_BYTES
      ? null
      : new LargeBody(pool, organizationId, closed, this.seen.body);
  }
}

class WorkFar implements Work {
  readonly seen: FarLook;
  readonly #large: LargeBody;
  readonly #place: WorkPlace;

  constructor(seen: FarLook, large: LargeBody, place: WorkPlace) {
    this.seen = seen;
    this.#large = large;
    this.#place = place;
  }

  get body(): Buffer {
    return this.#large.bytes;
  }

  relay(route: RelayRoute, upstream: Upstream, wishes: RelayWishes): Promise<RelayBody> {
    const { dialect } = this.seen;
    return this.#large.do("relay", { dialect, route: lean(route), upstream, wishes });
  }

  read(facts: ConversionFacts, sealer: Sealer, keepItem: KeepItem | undefined): Promise<Converting> {
    return readFar(this.#large, this.seen, facts, sealer, keepItem);
  }

  openLoop(facts: LoopFacts, sealer: Sealer, keepItem: KeepItem | undefined): Promise<LoopWork> {
    return openLoopFar(this.#large, this.seen, facts, sealer, keepItem);
  }

  async withoutReasoning(): Promise<Work | null> {
    const { dialect } = this.seen;
    const { body } = await this.#large.do("forget", { dialect });
    return body === null ? null : this.with(body);
  }

  with(body: Buffer): Promise<Work> {
    return openFar(this.seen.dialect, this.#large.of(body), this.#place);
  }

  withFiles(files: readonly FileContents[]): Promise<Work> {
    return withFilesFar(this.#large, this, files);
  }

  async forCount(upstream: Upstream): Promise<Buffer> {
    return (await this.#large.do("forCount", { upstream })).body;
  }

  countTokens(): Promise<number> {
    return countFar(this.#large, this.seen, this.#place);
  }
}

const lean = ({ model, capabilities, limits }: RelayRoute): RelayRoute => ({ model, capabilities, limits });

/** What is parsed takes memory for each object and array. @throws ApiError 400 */
function checkParsable({ containers, dialect }: Facts): void {
  if (containers > bodyLimits.containers) throw tooMany("containers", styleOf(dialect), []);
}

/** The texts are gathered where the body is; counting them has a thread of its own. */
async function countFar(large: LargeBody, seen: Seen, place: WorkPlace): Promise<number> {
  checkParsable(seen);
  const texts = await large.do("texts", null);
  return countSample(texts, place.organizationId, place.closed.signal);
}

/** Smaller buffers may be a part of Node's pool. */
const POOLED_BYTES = 64 * 1024;

async function withFilesFar(large: LargeBody, work: Work, files: readonly FileContents[]): Promise<Work> {
  checkParsable(work.seen);
  const handedOver = files.flatMap(({ bytes: { buffer, byteLength } }) => {
    const isOwn = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
    return isOwn && byteLength > POOLED_BYTES ? [buffer] : [];
  });
  const { dialect } = work.seen;
  const { body } = await large.do("files", { dialect, files }, handedOver);
  return work.with(body);
}

/** A conversion in another thread, which reads the body again for each upstream: there are few. */
async function readFar(
  large: LargeBody,
  seen: Seen,
  facts: ConversionFacts,
  sealer: Sealer,
  keepItem: KeepItem | undefined,
): Promise<Converting> {
  checkParsable(seen);
  const { carry, systemTurns } = await large.do("read", facts);
  const context = contextOf(facts, sealer, keepItem);
  let hoisted = false;
  return {
    carry: carryOf(carry),
    context,
    reading: (upstream, limit) => readingOf(facts, context, upstream, limit),
    write: (upstream, encryptedReasoning) =>
      large.do("convert", { ...toward(facts, upstream), upstream, encryptedReasoning, hoisted }),
    hoistSystemTurns: () => {
      const isNew = systemTurns && !hoisted;
      hoisted = true;
      return isNew;
    },
  };
}

async function openLoopFar(
  large: LargeBody,
  seen: Seen,
  facts: LoopFacts,
  sealer: Sealer,
  keepItem: KeepItem | undefined,
): Promise<LoopWork> {
  checkParsable(seen);
  const { beginning, carry, sources, prior } = await large.do("openLoop", facts);
  const context: CodecContext = contextOf(facts, sealer, keepItem, {
    owed: beginning.pending.map(({ id }) => id),
    serverTools: new Set(namesOf(beginning.tools)),
  });
  return {
    beginning,
    carry: carryOf(carry),
    context,
    reading: (upstream, limit) => readingOf(facts, context, upstream, limit),
    sources: new CitedSources(sources),
    prior: new PriorContext(prior),
    write: (upstream, next, forgotten) =>
      large.do("askLoop", { ...toward(facts, upstream), upstream, next, forgotten }),
  };
}

/** What an upstream refused is known here alone. */
const toward = <Told extends ConversionFacts>(facts: Told, upstream: Upstream): Told => ({
  ...facts,
  tiers: tiersToward(facts.tiers, upstream),
});

const carryOf = ({ echo, ...carry }: FarCarry) => ({
  ...carry,
  request: JSON.parse(echo) as JsonObject,
  // Places are named by whoever refuses something, and that is done where the body is.
  places: { get: () => undefined },
});
