/**
 * One request on its way through Messages form (design.md §4.3): read once in the client's dialect, written anew
 * for each upstream that is tried, which may speak another dialect than the one before.
 */
import type { Route, Upstream } from "../config/schema.ts";
import type { Carry, CodecContext, Sealer } from "../dialects/codecs.ts";
import { rememberInputs } from "../dialects/exact-inputs.ts";
import { hoistSystemTurns } from "../dialects/instructions.ts";
import { DropNotes } from "../dialects/losses.ts";
import type { JsonObject, MessagesRequest } from "../dialects/messages/types.ts";
import { codecs } from "../dialects/registry.ts";
import { newId } from "../lib/ids.ts";
import { restoreConversation } from "../loop/continuation.ts";
import type { InferenceCall } from "./call.ts";
import { possibleUsage, usualInputTokens } from "./estimate.ts";
import { keeperOf } from "./item-references.ts";
import type { Look } from "./look.ts";

export interface Written {
  readonly body: Buffer;
  /** The value of `x-gapura-dropped`; null when nothing was. */
  readonly dropped: string | null;
}

export class Conversion {
  /** As it was read, or as it was asked again. */
  request: MessagesRequest;
  readonly carry: Carry;
  readonly context: CodecContext;
  readonly #route: Route;
  readonly #strict: boolean;
  readonly #choices: number;

  /**
   * @param body the client's, without blocks that only our server tools make.
   * @param loop what the tool loop has to do with it.
   * @throws ApiError naming the field that cannot be read.
   */
  constructor(
    call: InferenceCall,
    seen: Look,
    route: Route,
    sealer: Sealer,
    body: JsonObject,
    loop: Pick<CodecContext, "owed" | "serverTools"> = {},
  ) {
    const keepItem = keeperOf(call, seen);
    this.context = {
      newId,
      createdAt: Math.floor(call.acceptedAt / 1000),
      sealer,
      model: route.model,
      requestId: call.id,
      estimatedInputTokens: usualInputTokens(seen),
      ...loop,
      ...(keepItem !== undefined && { keepItem }),
    };
    const { request, carry } = codecs[call.dialect].readRequest(body, this.context);
    this.request = request;
    this.carry = carry;
    this.#route = route;
    this.#choices = seen.choices;
    this.#strict = call.headers["x-gapura-strict"] === "true";
  }

  /**
   * The request as this upstream gets it.
   * @param encryptedReasoning whether a Responses upstream is asked for the content of its reasoning.
   * @throws ApiError when the upstream's dialect cannot hold it, or under strict would lose a field.
   */
  write(upstream: Upstream, request: MessagesRequest = this.request, encryptedReasoning = true): Written {
    const { capabilities, limits } = this.#route;
    const notes = new DropNotes(this.#strict);
    const target = {
      upstreamModel: upstream.model,
      maxOutputTokens: limits.maxOutputTokens,
      samplingParameters: capabilities.samplingParameters,
      thinking: capabilities.thinking,
      encryptedReasoning,
      imageInput: capabilities.imageInput,
      pdfInput: capabilities.pdfInput,
    };
    const body = codecs[upstream.dialect].writeRequest(request, this.carry, target, notes);
    return { body: Buffer.from(JSON.stringify(body)), dropped: notes.header() };
  }

  /** What this upstream's answer is read with: it is believed no more than this call can use. */
  reading({ dialect }: Upstream, { max_tokens }: MessagesRequest = this.request): CodecContext {
    return { ...this.context, possible: possibleUsage(this.#route, dialect, max_tokens, this.#choices) };
  }

  /** Puts system turns among the leading instructions. @returns whether there were any. */
  hoistSystemTurns(): boolean {
    const hoisted = hoistSystemTurns(this.request);
    if (hoisted !== null) this.request = hoisted;
    return hoisted !== null;
  }
}

/** The client's body. */
export function parsedBody({ body: bytes, dialect }: Look): JsonObject {
  // `look` has found it to be a JSON object without duplicate keys.
  const body = JSON.parse(bytes.toString("utf8")) as JsonObject;
  if (dialect === "messages") rememberInputs(body, bytes);
  return body;
}

/** The client's body with what our server tools wrote in earlier turns as text: no upstream sees their blocks (rule 3.4). */
export function plainBody(seen: Look, sealer: Sealer): JsonObject {
  const body = parsedBody(seen);
  if (seen.dialect !== "messages") return body;
  const { messages } = restoreConversation(body["messages"], new Set(), false, sealer);
  return messages === body["messages"] || messages === undefined ? body : { ...body, messages };
}
