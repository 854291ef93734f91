/**
 * A request's body and the work on it: in this thread where it is small, in another where it would block all other
 * requests (rule 7.3). Small work is done synchronously: waiting for nothing costs each request a microsecond.
 */
import type { Upstream } from "../../config/schema.ts";
import type { CodecContext, KeepItem, Sealer } from "../../dialects/codecs.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { dialectErrorFamily } from "../../dialects/errors.ts";
import { bodyLimits, limitExceeded } from "../../lib/body-limits.ts";
import type { Cancellation } from "../../lib/cancellation.ts";
import { type Edit, splice } from "../../lib/json-splice.ts";
import type { WorkerPool } from "../../lib/worker-pool.ts";
import { countSample } from "../../tokens/count.ts";
import { sampledTexts } from "../../tokens/sample.ts";
import { CitedSources } from "../../tools/links.ts";
import { PriorContext } from "../../tools/web-fetch/prior-context.ts";
import type { InferenceCall } from "../call.ts";
import {
  contextOf,
  exactBody,
  parsedBody,
  plainConversion,
  readingOf,
  type ConversionFacts,
  type Converting,
} from "./conversion.ts";
import { forCountUpstream } from "./count-body.ts";
import { relayBody, type RelayBody, type RelayWishes } from "./edits.ts";
import { putFiles, type InlineFile } from "./put-files.ts";
import type { RelayRoute } from "../large/jobs.ts";
import { carryOf } from "../large/remote-reading.ts";
import { CONVERT_HERE_BYTES, LargeBody, INSPECT_HERE_BYTES } from "../large/large-body.ts";
import {
  inspectBody,
  type Facts,
  type RemoteInspection,
  type Inspection,
  type AnyInspection,
} from "../inspect/body.ts";
import {
  declaredToolNames,
  OpenLoop,
  pagesLength,
  type LoopFacts,
  type LoopWork,
} from "../with-tools/open-loop.ts";
import { bodyWithoutReasoning } from "../upstream-refusals/rejected-reasoning.ts";
import { boundedSealer } from "./sealed-reasoning.ts";
import { planToward } from "../upstream-refusals/unknown-fields.ts";

export interface RequestBody {
  readonly inspected: AnyInspection;
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
  /** Removes the reasoning of earlier turns; null when there is none. */
  withoutReasoning(): RequestBody | null | Promise<RequestBody | null>;
  /** Replaces the body. */
  with(body: Buffer): RequestBody | Promise<RequestBody>;
  /**
   * Puts files in the place of their ids.
   * @param bytes of the body with the files in it, about.
   */
  withFiles(files: readonly InlineFile[], bytes: number): RequestBody | Promise<RequestBody>;
  /** Writes a token count's body for an upstream. */
  forCount(route: RelayRoute, upstream: Upstream, sealer: Sealer): Buffer | Promise<Buffer>;
  /** Counts its tokens with our own tokenizer. */
  countTokens(): Promise<number>;
}

/** A call whose body may be opened already; then `body` may be empty. */
export interface OpenedCall extends InferenceCall {
  readonly requestBody?: RequestBody;
}
export type ServeOpened = (call: OpenedCall) => Promise<void>;

/** The organization of a body, and the pool for large ones; null: this thread does all. */
export interface BodyPlace {
  readonly pool: WorkerPool | null;
  readonly organizationId: string;
  /** Aborted when the client is gone. */
  readonly closed: Cancellation;
}

/** @throws ApiError 400 as `inspectBody` does. */
export function openBody(
  dialect: Dialect,
  body: Buffer,
  place: BodyPlace,
): RequestBody | Promise<RequestBody> {
  const { pool, organizationId, closed } = place;
  if (pool === null || body.length <= INSPECT_HERE_BYTES)
    return new LocalBody(inspectBody(dialect, body), place);
  return openRemote(dialect, new LargeBody(pool, organizationId, closed, body), place);
}

/** Replaces parts of the body. */
export const edited = (
  requestBody: RequestBody,
  edits: readonly Edit[],
): RequestBody | Promise<RequestBody> => requestBody.with(splice(requestBody.body, edits));

async function openRemote(dialect: Dialect, large: LargeBody, place: BodyPlace): Promise<RequestBody> {
  return new RemoteBody(await large.do("inspect", { dialect }), large, place);
}

class LocalBody implements RequestBody {
  readonly inspected: Inspection;
  readonly #place: BodyPlace;

  constructor(inspected: Inspection, place: BodyPlace) {
    this.inspected = inspected;
    this.#place = place;
  }

  get body(): Buffer {
    return this.inspected.body;
  }

  relay(route: RelayRoute, upstream: Upstream, wishes: RelayWishes, sealer: Sealer): RelayBody {
    return relayBody(this.inspected, route, upstream, wishes, sealer);
  }

  read(
    facts: ConversionFacts,
    sealer: Sealer,
    keepItem: KeepItem | undefined,
  ): Converting | Promise<Converting> {
    const remote = this.#remoteFor(this.body.length);
    if (remote !== null) return readRemote(remote, this.inspected, facts, sealer, keepItem);
    const bounded = boundedSealer(sealer);
    return plainConversion(facts, contextOf(facts, bounded, keepItem), this.inspected, bounded);
  }

  openLoop(facts: LoopFacts, sealer: Sealer, keepItem: KeepItem | undefined): LoopWork | Promise<LoopWork> {
    const remote = this.#remoteFor(this.body.length);
    if (remote !== null) return openLoopRemote(remote, this.inspected, facts, sealer, keepItem);
    const loop = new OpenLoop(facts, boundedSealer(sealer), exactBody(this.inspected), keepItem);
    const { pool, organizationId, closed } = this.#place;
    if (pool === null) return loop;
    return longWrittenRemote(loop, facts, new LargeBody(pool, organizationId, closed, this.body));
  }

  withoutReasoning(): RequestBody | null {
    const body = bodyWithoutReasoning(this.inspected.dialect, this.inspected.body);
    return body === null ? null : new LocalBody(inspectBody(this.inspected.dialect, body), this.#place);
  }

  with(body: Buffer): RequestBody | Promise<RequestBody> {
    return openBody(this.inspected.dialect, body, this.#place);
  }

  withFiles(files: readonly InlineFile[], bytes: number): RequestBody | Promise<RequestBody> {
    const remote = this.#remoteFor(bytes);
    return remote === null
      ? this.with(putFiles(this.inspected, files))
      : withFilesRemote(remote, this, files);
  }

  forCount(route: RelayRoute, upstream: Upstream, sealer: Sealer): Buffer {
    return forCountUpstream(this.inspected, route, upstream, sealer);
  }

  countTokens(): Promise<number> {
    const { organizationId, closed } = this.#place;
    const remote = this.#remoteFor(this.body.length);
    return remote === null
      ? countSample(sampledTexts(parsedBody(this.inspected)), organizationId, closed.signal)
      : countRemote(remote, this.inspected, this.#place);
  }

  /** Returns where a body of so many bytes is parsed; null: here. (Inspecting it has a higher threshold of its own.) */
  #remoteFor(bytes: number): LargeBody | null {
    const { pool, organizationId, closed } = this.#place;
    return pool === null || bytes <= CONVERT_HERE_BYTES
      ? null
      : new LargeBody(pool, organizationId, closed, this.inspected.body);
  }
}

class RemoteBody implements RequestBody {
  readonly inspected: RemoteInspection;
  readonly #large: LargeBody;
  readonly #place: BodyPlace;

  constructor(inspected: RemoteInspection, large: LargeBody, place: BodyPlace) {
    this.inspected = inspected;
    this.#large = large;
    this.#place = place;
  }

  get body(): Buffer {
    return this.#large.bytes;
  }

  relay(
    route: RelayRoute,
    upstream: Upstream,
    wishes: RelayWishes,
    sealer: Sealer,
  ): RelayBody | Promise<RelayBody> {
    const { dialect, remote } = this.inspected;
    if (remote.places !== null) {
      const inspected = { ...this.inspected, ...remote.places, body: this.body, remote: null };
      return relayBody(inspected, route, upstream, wishes, sealer);
    }
    return this.#large.do("relay", { dialect, route: lean(route), upstream, wishes });
  }

  read(facts: ConversionFacts, sealer: Sealer, keepItem: KeepItem | undefined): Promise<Converting> {
    return readRemote(this.#large, this.inspected, facts, sealer, keepItem);
  }

  openLoop(facts: LoopFacts, sealer: Sealer, keepItem: KeepItem | undefined): Promise<LoopWork> {
    return openLoopRemote(this.#large, this.inspected, facts, sealer, keepItem);
  }

  async withoutReasoning(): Promise<RequestBody | null> {
    const { dialect } = this.inspected;
    const { body } = await this.#large.do("forget", { dialect });
    return body === null ? null : this.with(body);
  }

  with(body: Buffer): Promise<RequestBody> {
    return openRemote(this.inspected.dialect, this.#large.of(body), this.#place);
  }

  withFiles(files: readonly InlineFile[]): Promise<RequestBody> {
    return withFilesRemote(this.#large, this, files);
  }

  async forCount(route: RelayRoute, upstream: Upstream): Promise<Buffer> {
    return (await this.#large.do("forCount", { route: lean(route), upstream })).body;
  }

  countTokens(): Promise<number> {
    return countRemote(this.#large, this.inspected, this.#place);
  }
}

const lean = ({ model, capabilities, limits }: RelayRoute): RelayRoute => ({ model, capabilities, limits });

/** Parsing takes memory for each object and array. @throws ApiError 400 for too many. */
function checkParsable({ containers, dialect }: Facts): void {
  if (containers > bodyLimits.containers) throw limitExceeded("containers", dialectErrorFamily[dialect], []);
}

/** Gathers the texts where the body is; counting them has a thread of its own. */
async function countRemote(large: LargeBody, inspected: AnyInspection, place: BodyPlace): Promise<number> {
  checkParsable(inspected);
  const texts = await large.do("texts", null);
  return countSample(texts, place.organizationId, place.closed.signal);
}

/** Files up to this size are copied: a smaller buffer may be part of Node's pool. */
const POOLED_BYTES = 64 * 1024;

async function withFilesRemote(
  large: LargeBody,
  requestBody: RequestBody,
  files: readonly InlineFile[],
): Promise<RequestBody> {
  checkParsable(requestBody.inspected);
  const handedOver = files.flatMap(({ bytes: { buffer, byteLength } }) => {
    const isOwn = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
    return isOwn && byteLength > POOLED_BYTES ? [buffer] : [];
  });
  const { dialect } = requestBody.inspected;
  const { body } = await large.do("files", { dialect, files }, handedOver);
  return requestBody.with(body);
}

/** Converts in another thread, which reads the body again for each upstream: there are few. */
async function readRemote(
  large: LargeBody,
  inspected: AnyInspection,
  facts: ConversionFacts,
  sealer: Sealer,
  keepItem: KeepItem | undefined,
): Promise<Converting> {
  checkParsable(inspected);
  const { carry: told, systemTurns } = await large.do("read", facts);
  const carry = carryOf(told);
  const context = contextOf(facts, sealer, keepItem);
  let hoisted = false;
  return {
    carry,
    context,
    reading: (upstream, limit) => readingOf(facts, carry, context, upstream, limit),
    write: (upstream, encryptedReasoning) =>
      large.do("convert", { ...toward(facts, upstream), upstream, encryptedReasoning, hoisted }),
    hoistSystemTurns: () => {
      const isNew = systemTurns && !hoisted;
      hoisted = true;
      return isNew;
    },
  };
}

async function openLoopRemote(
  large: LargeBody,
  inspected: AnyInspection,
  facts: LoopFacts,
  sealer: Sealer,
  keepItem: KeepItem | undefined,
): Promise<LoopWork> {
  checkParsable(inspected);
  const { beginning, carry: told, sources, prior } = await large.do("openLoop", facts);
  const carry = carryOf(told);
  const context: CodecContext = contextOf(facts, sealer, keepItem, {
    owed: beginning.pending.map(({ id }) => id),
    serverTools: new Set(declaredToolNames(beginning.tools)),
  });
  return {
    beginning,
    carry,
    context,
    reading: (upstream, limit) => readingOf(facts, carry, context, upstream, limit),
    sources: new CitedSources(sources),
    prior: new PriorContext(prior),
    write: (upstream, next, wishes) =>
      large.do("askLoop", { ...toward(facts, upstream), upstream, next, wishes }),
  };
}

/** Most bytes that are written here when no other thread has time: it takes some ten milliseconds. */
const WRITE_HERE_BYTES = 2 * 1024 * 1024;

/**
 * Writes the calls of a small request's loop, in another thread once pages have made them long. By then the loop has
 * cost credit, so a call that may be written here does not fail for want of a thread.
 */
const longWrittenRemote = (loop: OpenLoop, facts: LoopFacts, large: LargeBody): LoopWork => ({
  beginning: loop.beginning,
  sources: loop.sources,
  prior: loop.prior,
  carry: loop.carry,
  context: loop.context,
  reading: (upstream, limit) => loop.reading(upstream, limit),
  write: async (upstream, next, wishes) => {
    const length = pagesLength(next);
    const here = () => loop.write(upstream, next, wishes);
    if (length <= CONVERT_HERE_BYTES) return here();
    const told = { ...toward(facts, upstream), upstream, next, wishes };
    if (length > WRITE_HERE_BYTES) return await large.do("askLoop", told);
    return (await large.doIfPossible("askLoop", told)) ?? here();
  },
});

/** Adapts the facts to an upstream: only this thread remembers which fields it does not know. */
const toward = <Told extends ConversionFacts>(facts: Told, upstream: Upstream): Told => ({
  ...facts,
  tiers: planToward(facts.tiers, upstream),
});
