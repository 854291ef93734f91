/** One answer through the program: an upstream's body or events in, a client's body or bytes out. For tests. */
import { answerCodecs } from "../../dataplane/dialects/answer-codecs.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import type { Annotate, Carry, CodecContext, SseEvent } from "../../dataplane/dialects/codecs.ts";
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import type { JsonObject } from "../../dataplane/dialects/messages/types.ts";
import { writeEvents } from "../../dataplane/dialects/write-events.ts";
import { chatFaults } from "./chat.ts";
import { messagesFaults } from "./messages.ts";
import { responsesFaults } from "./responses.ts";
import { framesOf } from "./sse.ts";

/** Ids that count up, a seal that only wraps: equal runs give equal bytes. */
export function testContext(): CodecContext {
  let count = 0;
  return {
    newId: (prefix) => `${prefix}_${(count += 1)}`,
    createdAt: 1_790_000_000,
    sealer: {
      seal: (plain) => `<${plain}>`,
      open: (sealed) => (/^<.*>$/s.test(sealed) ? sealed.slice(1, -1) : null),
    },
    model: "public-model",
    requestId: "req_test",
    estimatedInputTokens: 7,
  };
}

export const testCarry = (dialect: Dialect, request: JsonObject = {}, more: Partial<Carry> = {}): Carry => ({
  dialect,
  request,
  serverTools: false,
  aliases: new Map(),
  namespaces: new Map(),
  stops: [],
  compacts: false,
  places: new WeakMap(),
  ...more,
});

export function convertWhole(from: Dialect, body: JsonObject, carry: Carry, annotate?: Annotate): JsonObject {
  const context = testContext();
  const response = answerCodecs[from].readResponse(body, context);
  return answerCodecs[carry.dialect].writeResponse(response, carry, context, annotate);
}

/** What a client receives: everything up to the terminal bytes, and those. An ApiError becomes the in-band error. */
export function convertStream(
  from: Dialect,
  events: readonly SseEvent[],
  carry: Carry,
  annotate?: Annotate,
): { bytes: string; terminal: string; error: ApiError | null } {
  const context = testContext();
  const reader = answerCodecs[from].readStream(context);
  const writer = answerCodecs[carry.dialect].writeStream(carry, context, annotate);
  let bytes = "";
  let terminal = "";
  const take = (written: { bytes: string; terminal: string }) => {
    bytes += written.bytes;
    terminal += written.terminal;
  };
  try {
    for (const event of events) take(writeEvents(writer, reader.step(event)));
    take(writeEvents(writer, reader.end({ kind: "eof" })));
    return { bytes, terminal, error: null };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { bytes, terminal: terminal + writer.fail(error), error };
  }
}

/** Events of an upstream's script. */
export const eventsOf = (script: readonly string[]): SseEvent[] => framesOf(script.join(""));

/** What is wrong with a client's stream, in its own dialect's grammar. */
export function faultsOf(stream: string, carry: Carry, end: "end" | "error" | "either"): string[] {
  switch (carry.dialect) {
    case "messages":
      return messagesFaults(stream, end === "end" ? "message" : end);
    case "responses":
      return responsesFaults(stream, end === "end" ? "response" : end);
    case "chat": {
      const options = carry.request["stream_options"] as JsonObject | undefined;
      return chatFaults(stream, {
        end: end === "end" ? "done" : end,
        includeUsage: options?.["include_usage"] === true,
      });
    }
  }
}
