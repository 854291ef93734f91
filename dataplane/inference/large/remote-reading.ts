/** `Carry` and `CodecContext` as plain data, for a request that was read in another thread or whose answer is read there. */
import type { Carry, CodecContext, Sealer } from "../../dialects/codecs.ts";
import type { JsonObject } from "../../dialects/messages/types.ts";
import { newId } from "../../lib/ids.ts";
import { nowInSeconds } from "../request/conversion.ts";
import { fewSeals } from "../request/sealed-reasoning.ts";

/** The part of a `Carry` that an answer is written with. */
export interface RemoteCarry extends Pick<Carry, "dialect" | "serverTools" | "stops" | "compacts"> {
  readonly aliases: ReadonlyMap<string, string>;
  readonly namespaces: Carry["namespaces"];
  /** JSON of the request's fields that its answer repeats or depends on. */
  readonly echo: string;
}

/** Most characters of JSON that an answer repeats of its request; fields for which no room is left are left out. */
const MAX_ECHO = 256 * 1024;
/** Fields of a request that a Responses answer repeats, and those that shape a Chat or Responses answer. */
const echoed = [
  "include",
  "logprobs",
  "stream_options",
  "max_output_tokens",
  "max_tool_calls",
  "parallel_tool_calls",
  "prompt_cache_key",
  "reasoning",
  "safety_identifier",
  "temperature",
  "text",
  "tool_choice",
  "top_logprobs",
  "top_p",
  "truncation",
  "user",
  "metadata",
  "instructions",
  "tools",
  "functions",
];

export function remoteCarry({
  dialect,
  request,
  serverTools,
  stops,
  compacts,
  aliases,
  namespaces,
}: Carry): RemoteCarry {
  const echo: JsonObject = {};
  let room = MAX_ECHO;
  for (const field of dialect === "messages" ? [] : echoed) {
    const value = request[field];
    if (value === undefined) continue;
    // For Chat only the presence of these fields matters.
    const shown = dialect === "chat" && Array.isArray(value) ? [] : value;
    const length = JSON.stringify(shown).length;
    if (length <= room) echo[field] = shown;
    if (length <= room) room -= length;
  }
  return { dialect, serverTools, stops, compacts, aliases, namespaces, echo: JSON.stringify(echo) };
}

/** Keeps only the aliases of tools' names, which answers need; the aliases of earlier calls' ids may be very many. */
export function leanCarry(carry: RemoteCarry, tools: unknown): RemoteCarry {
  const names = toolNames(tools);
  return { ...carry, aliases: new Map([...carry.aliases].filter(([alias]) => names.has(alias))) };
}

const toolNames = (tools: unknown): ReadonlySet<string> =>
  new Set(
    Array.isArray(tools)
      ? tools.map((tool: unknown) =>
          typeof tool === "object" && tool !== null && "name" in tool ? String(tool.name) : "",
        )
      : [],
  );

export const carryOf = ({ echo, ...carry }: RemoteCarry): Carry => ({
  ...carry,
  request: JSON.parse(echo) as JsonObject,
  // Places serve to name a field in an error, and such errors are thrown where the request was read.
  places: { get: () => undefined },
});

/** The part of a `CodecContext` that is plain data. */
export interface RemoteContext extends Omit<CodecContext, "newId" | "now" | "sealer" | "keepItem"> {
  /** Whether output items are kept. */
  readonly keepsItems: boolean;
}

export function remoteContext({
  newId: _newId,
  now: _now,
  sealer: _sealer,
  keepItem,
  ...context
}: CodecContext): RemoteContext {
  return { ...context, keepsItems: keepItem !== undefined };
}

/** Makes the context again. Its `keepItem` does nothing: passed-on.ts holds the output items. */
export const contextFrom = ({ keepsItems, ...context }: RemoteContext, sealer: Sealer): CodecContext => ({
  ...context,
  newId,
  now: nowInSeconds,
  sealer: fewSeals(sealer),
  ...(keepsItems && { keepItem: () => undefined }),
});
