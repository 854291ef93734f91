/**
 * Refuses what no upstream may see, on every path and before anything is spent (design.md §4.1): hosted tools, fields
 * that would read or write state of the shared upstream account, planned features, foreign ids. Sources: service.md
 * "Errors", rules 2.10, 2.11, 2.16, 3.1–3.3, dialects.md §B1, §B3, §F.
 */
import type { Policy, Prices, Route } from "../../config/schema.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { isServerToolName, serverToolNames, serverToolOf } from "../../dialects/find-server-tool.ts";
import { serverTools, type ServerToolName } from "../../dialects/server-tools.ts";
import { dialectErrorFamily } from "../../dialects/errors.ts";
import { ApiError } from "../../lib/api-error.ts";
import { fieldPath, type PathStep } from "../../lib/field-path.ts";
import { allToolsOff, toolCapabilities } from "../../tools/capabilities.ts";
import type { Facts } from "../inspect/body.ts";
import type { ToolEntry } from "../inspect/content.ts";
import { present } from "../inspect/fields.ts";
import type { InspectedChoice } from "../inspect/tools.ts";
import { bodyFieldError } from "../inspect/walk.ts";
import { noSuchFile } from "./put-files.ts";

/** What an entry of `tools` is: run by the client, run by this service, or not supported. */
type ToolClass = "client" | "unsupported" | ServerToolName;

/** Typed tools that the client itself runs (dialects.md §D1). */
const messagesClientTools =
  /^(?:custom|(?:bash|text_editor|memory|computer|browser|computer_toolset|browser_toolset)_\d{8})$/;

const responsesClientTools = /^(?:function|custom|namespace|local_shell|shell|apply_patch)$/;
/** Tools that the provider runs unless they say `execution: "client"`, as Codex' own do. */
const eitherSideTools = new Set(["tool_search"]);
const chatClientTools = /^(?:function|custom)$/;

/** Choices of a Responses `tool_choice` that name no hosted tool. */
const plainChoices = /^(?:|none|auto|required|function|custom|allowed_tools|local_shell|shell|apply_patch)$/;

/** Tools that a provider runs, in all their versions. Any other choice in Chat, and any other word, is for the upstream to judge. */
const hostedTools = new RegExp(
  `^(?:${serverToolNames.join("|")}|file_search|code_interpreter|code_execution|image_generation|computer|mcp)(?:_|$)`,
);

/** The fields of a Chat request that declare a server tool. */
const chatDeclarations = serverToolNames.flatMap((name) => {
  const { chatField } = serverTools[name];
  return chatField === null ? [] : [{ name, field: chatField }];
});

/** Refused in each dialect (service.md "Errors"): an aggregator's upstream takes them in all of its own. */
const unavailable = {
  container: "containers are not available yet",
  mcp_servers: "remote MCP servers are not supported",
};

/** Fields that are refused whatever they hold, and why. */
const refusedFields: Readonly<Record<Dialect, Readonly<Record<string, string>>>> = {
  messages: unavailable,
  chat: unavailable,
  responses: {
    ...unavailable,
    previous_response_id: "responses are not stored here; send the whole conversation in `input`",
    conversation: "conversations are not stored here; send the whole conversation in `input`",
    prompt: "stored prompts are not supported; send `instructions` and `input`",
  },
};

/** Fields that are checked by their presence. */
export const judgedFields: ReadonlySet<string> = new Set([
  ...Object.values(refusedFields).flatMap((fields) => Object.keys(fields)),
  "thread",
  "background",
  "max_tool_calls",
  ...chatDeclarations.map(({ field }) => field),
  "store",
]);

/** @throws ApiError 400 or 404, naming the field. */
export function refuse(look: Facts): void {
  refuseFields(look);
  for (const tool of look.tools) refuseTool(look, tool);
  refuseNamesInTurns(look);
  refuseToolChoice(look);
  refuseContent(look);
}

function refuseFields(look: Facts): void {
  const { dialect, fields } = look;
  for (const [name, reason] of Object.entries(refusedFields[dialect]))
    if (present(fields, name) !== undefined)
      throw bodyFieldError("unsupported_parameter", dialect, [name], reason);
  if (dialect === "messages" && present(fields, "thread") !== undefined)
    // The one code on which the SDKs fall back to sending the whole history (rule 2.16).
    throw new ApiError("thread_unsupported", "thread: message threads are not supported", {
      param: "thread",
      details: { unsupported: ["thread"] },
    });
  if (dialect === "responses") refuseCallCap(look);
  const background = dialect === "responses" ? present(fields, "background") : undefined;
  if (background !== undefined && look.background !== false)
    throw bodyFieldError(
      "unsupported_parameter",
      dialect,
      ["background"],
      "background responses are not supported",
    );
}

/** Checks `max_tool_calls`, also without a server tool (service.md "Errors"), so that the error is ours and not an upstream's. */
function refuseCallCap({ fields, maxToolCalls: value }: Facts): void {
  if (present(fields, "max_tool_calls") === undefined) return;
  if (value === undefined || !Number.isSafeInteger(value) || value < 1)
    throw bodyFieldError(
      "invalid_request_error",
      "responses",
      ["max_tool_calls"],
      "must be an integer of at least 1",
    );
}

function refuseTool(look: Facts, tool: ToolEntry): void {
  if (classOf(look.dialect, tool) !== "unsupported") return;
  // A shell is refused for its container, any other tool for its type.
  const isTaken = classOf(look.dialect, { ...tool, container: false }) !== "unsupported";
  const what = isTaken ? "hosted containers are not available" : `"${tool.type}" is not supported here`;
  throw bodyFieldError("unsupported_tool", look.dialect, [...tool.path, "type"], what);
}

/** Refuses a turn's tool with the name of a declared server tool; those of `tools` are checked where they are read. */
function refuseNamesInTurns(look: Facts): void {
  const clash = look.tools.filter(({ inTurn, name }) => inTurn && isServerToolName(name));
  if (clash.length === 0) return;
  const declared = declaredServerTools(look);
  for (const { name, path } of clash)
    if (isServerToolName(name) && declared.has(name))
      throw bodyFieldError(
        "invalid_request_error",
        look.dialect,
        [...path, "name"],
        `"${name}" is the name of a declared server tool`,
      );
}

function classOf(dialect: Dialect, { type, container, clientRun, inTurn }: ToolEntry): ToolClass {
  if (container) return "unsupported";
  // Without a type it is a client's own tool in Messages; elsewhere the upstream says what is missing.
  if (type === null) return "client";
  if (dialect === "chat") return chatClientTools.test(type) ? "client" : "unsupported";
  const server = serverToolOf(dialect, type);
  if (server !== undefined) return inTurn ? "unsupported" : server;
  const client = dialect === "messages" ? messagesClientTools : responsesClientTools;
  const ownSide = dialect === "responses" && clientRun && eitherSideTools.has(type);
  return ownSide || client.test(type) ? "client" : "unsupported";
}

/** Returns the fields of a Chat request that declare a server tool. */
const declaringFields = (look: Facts) =>
  look.dialect === "chat"
    ? chatDeclarations.filter(({ field }) => present(look.fields, field) !== undefined)
    : [];

/** Returns the server tools that a request declares, each with the path that names it. */
export function declaredServerTools(look: Facts): ReadonlyMap<ServerToolName, string> {
  const byField = declaringFields(look);
  if (look.tools.length === 0 && byField.length === 0) return noServerTools;
  const declared = new Map<ServerToolName, string>();
  const style = dialectErrorFamily[look.dialect];
  for (const tool of look.tools) {
    const kind = classOf(look.dialect, tool);
    if (kind === "client" || kind === "unsupported" || isOffline(look, tool)) continue;
    if (!declared.has(kind)) declared.set(kind, fieldPath(style, [...tool.path, "type"]));
  }
  for (const { name, field } of byField) declared.set(name, field);
  return declared;
}

const noServerTools: ReadonlyMap<ServerToolName, string> = new Map();

/** Whether a search tool may only read an index, which we do not have: it counts as not sent (dialects.md §H3). */
export const isOffline = (look: Facts, tool: ToolEntry): boolean =>
  look.dialect === "responses" && tool.offline && classOf(look.dialect, tool) === "web_search";

/** @throws ApiError when a declared server tool cannot run on this route (service.md "Errors"). */
export function checkServerTools(look: Facts, route: Route, policy: Policy | undefined): void {
  const declared = declaredServerTools(look);
  if (declared.size === 0) return;
  const [byField] = declaringFields(look);
  if (allToolsOff(policy) && byField !== undefined)
    throw bodyFieldError(
      "unsupported_parameter",
      look.dialect,
      [byField.field],
      "server tools are switched off",
    );
  const capabilities = toolCapabilities(route, policy);
  for (const [tool, param] of declared) {
    if (!route.capabilities.toolCalling)
      throw new ApiError("unsupported_content", `${param}: the model does not support this content`, {
        param,
      });
    if (!capabilities[tool])
      throw new ApiError("unsupported_tool", `${param}: this tool is not available for this model`, {
        param,
      });
  }
}

/** @throws ApiError for an image or a PDF that the model cannot read, whatever its upstreams speak (rule 2.3). */
export function checkMedia(look: Facts, { capabilities }: Route): void {
  const { firstImage, firstPdf } = look.content;
  if (firstImage !== null && !capabilities.imageInput) throw noMedia(look, firstImage, "images");
  if (firstPdf !== null && !capabilities.pdfInput) throw noMedia(look, firstPdf, "PDF documents");
}

/** @throws ApiError for audio, or for outputs beside text, that the model has no price for (rule 10.5). */
export function checkPricedMedia(look: Facts, prices: Prices): void {
  const { firstAudio } = look.content;
  if (firstAudio !== null && prices.audioInput === undefined)
    throw noMedia(look, [...firstAudio, "type"], "audio");
  if (
    look.otherOutputs ||
    (look.speaks && prices.audioOutput === undefined) ||
    (look.draws && prices.imageOutput === undefined)
  )
    throw noOutput(look);
}

/**
 * Refuses audio and generated images, which only upstreams of the client's dialect serve, without a tool loop.
 * @throws ApiError
 */
export function checkTextOnly(look: Facts): void {
  const { firstAudio } = look.content;
  if (firstAudio !== null) throw noMedia(look, [...firstAudio, "type"], "audio");
  if (look.speaks || look.draws) throw noOutput(look);
}

const noOutput = (look: Facts) =>
  bodyFieldError(
    "unsupported_content",
    look.dialect,
    ["modalities"],
    "the model is not offered with such outputs",
  );

const noMedia = ({ dialect }: Facts, path: readonly PathStep[], what: string) =>
  bodyFieldError("unsupported_content", dialect, path, `the model does not support ${what} as content`);

/** Refuses the choice of a server tool that is not among the tools (rule 3.2). Any other choice is for the upstream to judge. */
function refuseToolChoice(look: Facts): void {
  const choice = look.toolChoice;
  if (choice === null) return;
  if (look.dialect === "messages") return refuseNamedChoice(look, choice);
  const refuseChoice = look.dialect === "chat" || choice.isWord ? refuseHostedChoice : refuseResponsesChoice;
  refuseChoice(look, choice.type);
  for (const type of choice.allowed) if (!isClientTool(look, type)) refuseChoice(look, type);
}

const isClientTool = ({ dialect, tools }: Facts, type: string): boolean =>
  tools.some((tool) => tool.type === type && classOf(dialect, tool) === "client");

/** A client's own tool may have the name of a server tool that is not declared. */
function refuseNamedChoice(look: Facts, { type, name }: InspectedChoice): void {
  if (type !== "tool" || !isServerToolName(name)) return;
  const isOwn = look.tools.some((tool) => tool.name === name && classOf(look.dialect, tool) === "client");
  if (!isOwn) refuseUndeclared(look, name, name);
}

function refuseHostedChoice(look: Facts, type: string): void {
  if (!hostedTools.test(type)) return;
  const wanted = serverToolNames.find((name) => type === name || type.startsWith(`${name}_`));
  refuseUndeclared(look, type, wanted);
}

function refuseResponsesChoice(look: Facts, type: string): void {
  if (!plainChoices.test(type)) refuseUndeclared(look, type, serverToolOf("responses", type));
}

/** @param wanted the server tool that `chosen` names; undefined for a tool that is not ours. */
function refuseUndeclared(look: Facts, chosen: string, wanted: ServerToolName | undefined): void {
  const declared = declaredServerTools(look);
  if (wanted !== undefined && declared.has(wanted)) return;
  const code = wanted !== undefined && declared.size > 0 ? "invalid_request_error" : "unsupported_tool";
  throw bodyFieldError(code, look.dialect, ["tool_choice"], `"${chosen}" is not among the tools`);
}

/** Refuses searches of earlier turns whose tool is not declared now; one that may not go online counts as declared. */
function refuseSearchCalls(look: Facts): void {
  const declared = new Set<string>();
  for (const name of declaredServerTools(look).keys()) declared.add(serverTools[name].item);
  if (look.tools.some((tool) => isOffline(look, tool))) declared.add(serverTools.web_search.item);
  for (const { type, path } of look.content.searchCalls)
    if (!declared.has(type))
      throw bodyFieldError(
        "invalid_request_error",
        look.dialect,
        path,
        `"${type}" needs the same tool in \`tools\``,
      );
}

function refuseContent(look: Facts): void {
  const { dialect, content } = look;
  const [hosted] = content.hosted;
  if (hosted !== undefined)
    throw bodyFieldError(
      "unsupported_content",
      dialect,
      hosted.path,
      `"${hosted.type}" is not supported here`,
    );
  if (content.searchCalls.length > 0) refuseSearchCalls(look);
  for (const { kind, path, id } of content.references) {
    if (kind === "file") throw noSuchFile(dialect, path, id);
    if (kind === "item")
      throw bodyFieldError(
        "unsupported_parameter",
        dialect,
        path,
        "item_reference: this item is not known here; send whole items, which SDKs do with `store: false`",
      );
    throw bodyFieldError(
      "unsupported_parameter",
      dialect,
      path,
      "objects of an upstream account cannot be used here",
    );
  }
}
