/**
 * One request on its way through Messages form (design.md §4.3): read once in the client's dialect, written anew
 * for each upstream that is tried, which may speak another dialect than the one before.
 */
import type { Route, Upstream } from "../../config/schema.ts";
import type { Carry, CodecContext, KeepItem, Sealer } from "../../dialects/codecs.ts";
import { clientPlaces } from "../../dialects/client-places.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { rememberInputs } from "../../dialects/exact-inputs.ts";
import { keepSchemas } from "../../dialects/exact-schemas.ts";
import { demandsCall, hoistSystemTurns, lostWithSystemTurns } from "../../dialects/instructions.ts";
import { foreignPlaces } from "../../dialects/foreign-places.ts";
import { DropNotes } from "../../dialects/losses.ts";
import { objectOf } from "../../dialects/fields.ts";
import { asksLogprobs } from "../../dialects/logprobs.ts";
import { showsCitations } from "../../dialects/url-citations.ts";
import type { JsonObject, MessagesRequest } from "../../dialects/messages/types.ts";
import {
  type OwnField,
  withClosedFormat,
  withKnownEffort,
  withOneSampling,
  withoutForcedThinking,
  withoutSummary,
  withoutUnknown,
  withPlainSchemas,
} from "../../dialects/own-fields.ts";
import { codecs } from "../../dialects/registry.ts";
import type { ToldPlaces } from "../../dialects/told-places.ts";
import { ApiError } from "../../lib/api-error.ts";
import { systemClock } from "../../lib/clock.ts";
import { stopsCutHere } from "../../dialects/stop-sequences.ts";
import {
  expectedTiers,
  leavesTierOpen,
  standardTier,
  type TierPlan,
  withoutDropped,
} from "../../dialects/tiers.ts";
import { newId } from "../../lib/ids.ts";
import { restoreConversation } from "../../loop/continuation.ts";
import { isStrict, type InferenceCall } from "../call.ts";
import { askedOutput, possibleUsage, usualInputTokens } from "../estimate.ts";
import type { Facts, Inspection } from "../inspect/body.ts";
import { fewSeals } from "./sealed-reasoning.ts";
import { planToward } from "../upstream-refusals/unknown-fields.ts";

export interface Written {
  readonly body: Buffer;
  /** The value of `x-gapura-dropped`; null when nothing was. */
  readonly dropped: string | null;
  /** Fields of own-fields.ts that it has: an upstream may be asked again without them. */
  readonly own: readonly OwnField[];
  /** Which of its places an error may name to the client. */
  readonly places: ToldPlaces;
}

/** Facts of a request and its route that a conversion needs beside the body: plain data. */
export interface ConversionFacts {
  readonly dialect: Dialect;
  readonly requestId: string;
  /** Unix seconds. */
  readonly createdAt: number;
  readonly route: Pick<Route, "model" | "capabilities" | "limits">;
  readonly estimatedInputTokens: number;
  /** The output limit that the client names; undefined: none. */
  readonly outputLimit: number | undefined;
  /** Chat's `n`; 1 elsewhere. */
  readonly choices: number;
  /** Whether a drop is refused (rule 2.2). */
  readonly strict: boolean;
  readonly tiers: TierPlan;
}

export function conversionFacts(
  call: Pick<InferenceCall, "dialect" | "id" | "acceptedAt" | "headers">,
  seen: Facts,
  route: Route,
  tiers: TierPlan,
): ConversionFacts {
  const { model, capabilities, limits } = route;
  return {
    dialect: call.dialect,
    requestId: call.id,
    createdAt: Math.floor(call.acceptedAt / 1000),
    route: { model, capabilities, limits },
    estimatedInputTokens: usualInputTokens(seen),
    outputLimit: askedOutput(seen),
    choices: seen.choices,
    strict: isStrict(call),
    tiers,
  };
}

/** The part of a codec's context that the tool loop sets. */
export type LoopContext = Pick<CodecContext, "owed" | "serverTools">;

export const nowInSeconds = (): number => Math.floor(systemClock.now() / 1000);

export const contextOf = (
  facts: ConversionFacts,
  sealer: Sealer,
  keepItem: KeepItem | undefined,
  loop: LoopContext = {},
): CodecContext => ({
  newId,
  createdAt: facts.createdAt,
  now: nowInSeconds,
  sealer: fewSeals(sealer),
  model: facts.route.model,
  requestId: facts.requestId,
  estimatedInputTokens: facts.estimatedInputTokens,
  ...loop,
  ...(keepItem !== undefined && { keepItem }),
});

/** Returns the context to read one upstream's answer with; `limit`: the call's output limit, else the request's. */
export const readingOf = (
  { dialect: client, route, outputLimit, choices, tiers }: ConversionFacts,
  carry: Carry,
  context: CodecContext,
  upstream: Upstream,
  limit = outputLimit,
): CodecContext => ({
  ...context,
  possible: possibleUsage(
    route,
    upstream.dialect,
    limit,
    choices,
    expectedTiers(tiers, client, upstream.dialect),
  ),
  stops: stopsCutHere(upstream.dialect, carry.stops, planToward(tiers, upstream).unknown.includes("stop")),
  logprobs: asksLogprobs(carry),
  annotations: showsCitations(carry),
});

/** What reading an upstream's answer needs to know of the request. */
export interface Reading {
  readonly carry: Carry;
  readonly context: CodecContext;
  /**
   * Returns the context to read this upstream's answer with: its usage is believed up to what this call can use.
   * `limit`: its output limit.
   */
  reading(upstream: Upstream, limit?: number): CodecContext;
}

/** A request being converted, in this or another thread. */
export interface Converting extends Reading {
  /**
   * Writes the request for this upstream.
   * @param encryptedReasoning whether a Responses upstream is asked for the content of its reasoning.
   * @throws ApiError when the upstream's dialect cannot hold it, or under strict would lose a field.
   */
  write(upstream: Upstream, encryptedReasoning: boolean): Written | Promise<Written>;
  /** Moves system turns to the leading instructions. @returns whether there were any. */
  hoistSystemTurns(): boolean;
}

export class Conversion implements Converting {
  /** The request as it was read, or as it is asked again. */
  request: MessagesRequest;
  readonly carry: Carry;
  readonly context: CodecContext;
  readonly #facts: ConversionFacts;
  readonly #client: JsonObject;
  /** Fields of the client that were lost when it was asked again. */
  readonly #lost: string[] = [];

  /**
   * @param body the client's, without blocks that only our server tools make.
   * @param own the client's own part of `body`, whose fields are named when they are lost.
   * @param client the client's as it came: where its turns were rewritten, errors name its places or none.
   * @throws ApiError naming the field that cannot be read.
   */
  constructor(facts: ConversionFacts, context: CodecContext, body: JsonObject, own = body, client = body) {
    this.context = context;
    const priced = withoutDropped(body, facts.tiers);
    const isRestored = client["messages"] !== body["messages"];
    const { request, carry } = readRequest(facts, context, priced, isRestored ? client : null);
    this.request = request;
    this.carry = {
      ...carry,
      ...(own !== body && { request: withoutDropped(own, facts.tiers) }),
      ...(isRestored && { places: outsideOfTurns(carry.places) }),
    };
    this.#facts = facts;
    this.#client = client;
  }

  write(upstream: Upstream, encryptedReasoning: boolean, request: MessagesRequest = this.request): Written {
    const { capabilities, limits } = this.#facts.route;
    const { dropped, standard, unknown } = planToward(this.#facts.tiers, upstream);
    const notes = new DropNotes(this.#facts.strict);
    const lost = this.carry.dialect === "messages" ? lostWithSystemTurns(this.#client, request) : [];
    for (const name of [...dropped, ...this.#lost, ...lost]) notes.dropped(name);
    const target = {
      upstreamModel: upstream.model,
      maxOutputTokens: limits.maxOutputTokens,
      samplingParameters: capabilities.samplingParameters,
      thinking: capabilities.thinking,
      encryptedReasoning,
      ownAccount: upstream.dedicatedTo !== null,
      imageInput: capabilities.imageInput,
      pdfInput: capabilities.pdfInput,
    };
    const body = codecs[upstream.dialect].writeRequest(request, this.carry, target, notes);
    const own = upstream.dialect === "chat" ? withoutUnknown(body, unknown, notes) : [];
    const { strict } = this.#facts;
    // Under strict the client gets the refusal.
    const effort = strict ? null : withKnownEffort(body, unknown);
    if (effort !== null) own.push(effort);
    // A Messages client says all of it for such a model itself.
    if (upstream.dialect === "messages" && this.carry.dialect !== "messages") {
      for (const name of [
        withOneSampling(body, unknown, notes),
        withClosedFormat(body, unknown),
        strict ? null : withoutForcedThinking(body, unknown),
      ])
        if (name !== null) own.push(name);
      own.push(...withPlainSchemas(body, unknown, this.carry.dialect, notes));
    }
    if (upstream.dialect === "responses" && this.carry.dialect === "messages") {
      const display = objectOf(this.carry.request["thinking"])?.["display"];
      const summary = withoutSummary(body, unknown, { display, notes });
      if (summary !== null) own.push(summary);
    }
    notes.judge();
    if (standard.includes(upstream.dialect) && leavesTierOpen(body["service_tier"])) {
      body["service_tier"] = standardTier(upstream.dialect);
      own.push("service_tier");
    }
    const places = this.#places(upstream, request, body);
    return { body: Buffer.from(JSON.stringify(body)), dropped: notes.header(), own, places };
  }

  /** Returns which places of a written body an error may name to the client. */
  #places({ dialect }: Upstream, request: MessagesRequest, body: JsonObject): ToldPlaces {
    return dialect === this.#facts.dialect
      ? clientPlaces(this.#client, body)
      : foreignPlaces(this.carry, request, dialect, body);
  }

  reading(upstream: Upstream, limit?: number): CodecContext {
    return readingOf(this.#facts, this.carry, this.context, upstream, limit);
  }

  hoistSystemTurns(): boolean {
    const hoisted = hoistSystemTurns(this.request, this.carry);
    if (hoisted === null) return false;
    if (demandsCall(this.request) && !demandsCall(hoisted)) this.#lost.push("tool_choice");
    this.request = hoisted;
    return true;
  }
}

const IN_TURNS = "messages.";

/** @param client null: `body` has the client's own turns. */
function readRequest(
  { dialect }: ConversionFacts,
  context: CodecContext,
  body: JsonObject,
  client: JsonObject | null,
) {
  const codec = codecs[dialect];
  try {
    return codec.readRequest(body, context);
  } catch (error) {
    if (client === null || !(error instanceof ApiError)) throw error;
    codec.readRequest(client, context);
    // The fault is in rewritten turns.
    throw error.param?.startsWith(IN_TURNS) === true ? withoutPlace(error, error.param) : error;
  }
}

/** Leaves out places in rewritten turns, which are not the client's. */
const outsideOfTurns = (places: Carry["places"]): Carry["places"] => ({
  get: (node) => {
    const place = places.get(node);
    return place?.startsWith(IN_TURNS) === true ? undefined : place;
  },
});

const withoutPlace = (error: ApiError, place: string): ApiError =>
  new ApiError(error.code, error.message.replace(`${place}: `, ""), { cause: error });

/** Parses the client's body. */
export function parsedBody({ body: bytes, dialect }: Pick<Inspection, "body" | "dialect">): JsonObject {
  // `inspectBody` has found it to be a JSON object without duplicate keys.
  const body = JSON.parse(bytes.toString("utf8")) as JsonObject;
  if (dialect === "messages") rememberInputs(body, bytes);
  return body;
}

/** Parses it to be written for an upstream: its schemas keep the digits of large numbers. */
export function exactBody(seen: Pick<Inspection, "body" | "dialect">): JsonObject {
  const body = parsedBody(seen);
  keepSchemas(body, seen.body);
  return body;
}

/** Makes a conversion without server tools: their blocks of earlier turns become text, as no upstream may see them (rule 3.4). */
export function plainConversion(
  facts: ConversionFacts,
  context: CodecContext,
  seen: Pick<Inspection, "body" | "dialect">,
  sealer: Sealer,
): Conversion {
  const client = exactBody(seen);
  if (seen.dialect !== "messages") return new Conversion(facts, context, client);
  const { messages } = restoreConversation(client["messages"], new Set(), false, sealer);
  const isPlain = messages === client["messages"] || messages === undefined;
  const body = isPlain ? client : { ...client, messages };
  return new Conversion(facts, context, body, body, client);
}
