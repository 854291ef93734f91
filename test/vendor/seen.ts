/** What an answer of the gateway holds that one of the vendors' types describes. */
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import { type VendorType, vendorType } from "./vendor-type.ts";

export interface Seen {
  readonly type: VendorType;
  readonly value: unknown;
}

/** A body as its client got it. */
export interface SeenBody {
  readonly dialect: Dialect;
  readonly status: number;
  /** `content-type` */
  readonly type: string;
  readonly text: string;
  /** It came to its end. */
  readonly ended: boolean;
}

/** Its objects and events, each with the type that it has to fit. Of a body that was cut: whole events alone. */
export function seenIn({ dialect, status, type, text, ended }: SeenBody): Seen[] {
  if (type.startsWith("text/event-stream"))
    return eventsIn(text).flatMap((event) => seenEvent(dialect, event));
  if (!ended || !type.startsWith("application/json")) return [];
  const value = JSON.parse(text) as unknown;
  return [{ type: status < 300 ? vendorType(dialect, "Answer") : errorType(dialect), value }];
}

/** Pings and `[DONE]` have no type. */
export function seenEvent(dialect: Dialect, event: object): Seen[] {
  const { type } = event as { readonly type?: unknown };
  if (type === "ping") return [];
  const isError = type === "error" || (dialect === "chat" && "error" in event);
  // Responses has a type for the event of an error.
  const judged = isError && dialect !== "responses" ? errorType(dialect) : vendorType(dialect, "Event");
  return [{ type: judged, value: event }];
}

const errorType = (dialect: Dialect): VendorType =>
  dialect === "messages" ? "MessagesError" : "OpenaiError";

/** The data of whole events. */
function eventsIn(stream: string): object[] {
  return stream
    .split(/\r?\n\r?\n/)
    .slice(0, -1)
    .flatMap((block) => {
      const lines = block.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      const data = lines.map((line) => line.slice(5).trimStart()).join("\n");
      return data === "" || data === "[DONE]" ? [] : [JSON.parse(data) as object];
    });
}

/** Texts of these keys are of few kinds, and say what the object around them is. */
const telling = new Set([
  "type",
  "object",
  "role",
  "status",
  "reason",
  "finish_reason",
  "stop_reason",
  "code",
]);

/** What a value looks like, whatever it says: of values with the same shape one judgement is enough. */
export function shapeOf(value: unknown, key = ""): string {
  if (Array.isArray(value)) return `[${[...new Set(value.map((one) => shapeOf(one, key)))].join()}]`;
  if (value === null) return "null";
  if (typeof value === "object")
    return `{${Object.entries(value)
      .map(([name, inner]) => `${name}:${shapeOf(inner, name)}`)
      .join()}}`;
  return typeof value === "string" && telling.has(key) ? JSON.stringify(value) : typeof value;
}
