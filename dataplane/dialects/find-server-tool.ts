/** Looks things up in the catalogue of server tools. */
import { serverTools, type ServerToolName } from "./server-tools.ts";

export const serverToolNames = Object.keys(serverTools) as readonly ServerToolName[];

export const isServerToolName = (name: unknown): name is ServerToolName =>
  typeof name === "string" && Object.hasOwn(serverTools, name);

/** Tools by the `type` that declares them, for each dialect of a client. */
const declared = {
  messages: byText(({ messages }) => messages),
  responses: byText(({ responses }) => responses),
};

function byText(
  texts: (row: (typeof serverTools)[ServerToolName]) => readonly string[],
): ReadonlyMap<string, ServerToolName> {
  return new Map(serverToolNames.flatMap((name) => texts(serverTools[name]).map((type) => [type, name])));
}

/** The tool that a `type` in a client's `tools` declares; undefined for any other tool, and for unknown versions. */
export const serverToolOf = (dialect: "messages" | "responses", type: unknown): ServerToolName | undefined =>
  typeof type === "string" ? declared[dialect].get(type) : undefined;

/** Messages blocks that only server tools make: calls and results. */
export const serverToolBlocks: ReadonlySet<string> = new Set([
  "server_tool_use",
  ...serverToolNames.map((name) => serverTools[name].resultBlock),
]);

/** Responses items that only server tools make. */
export const serverToolItems: ReadonlySet<string> = new Set(
  serverToolNames.map((name) => serverTools[name].item),
);
