/** What the scripted upstream understands of a request, whatever its dialect. Tolerant: nonsense reads as empty. */
import type { Dialect } from "../../../dataplane/dialects/dialect.ts";

export interface ReadTool {
  readonly name: string;
  /** JSON schema of the arguments. */
  readonly schema: Json;
}

export interface ReadRequest {
  readonly dialect: Dialect;
  readonly model: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly includeReasoning: boolean;
  readonly choices: number;
  /** All texts of the last message of the user that is not only tool results. */
  readonly question: string;
  /** Results of tools since that message, oldest first. */
  readonly toolResults: readonly string[];
  /** Rounds of tool calls since that message. */
  readonly rounds: number;
  readonly tools: readonly ReadTool[];
  readonly toolChoice: "auto" | "none" | "required" | { readonly name: string };
  /** False: one call at a time. */
  readonly parallel: boolean;
  readonly maxTokens: number | null;
  readonly stopSequences: readonly string[];
  readonly thinking: boolean;
  /** Schema of the structured output that was asked for. */
  readonly outputSchema: Json | null;
  /** Responses: `text.format`. */
  readonly textFormat: Json;
  /** Rough count of the whole body. */
  readonly inputTokens: number;
}

export type Json = { readonly [key: string]: unknown };

const object = (value: unknown): Json =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const string = (value: unknown): string => (typeof value === "string" ? value : "");

export function readRequest(dialect: Dialect, bodyText: string): ReadRequest {
  let body: Json;
  try {
    body = object(JSON.parse(bodyText));
  } catch {
    body = {};
  }
  const turns = dialect === "responses" ? responsesTurns(body["input"]) : messageTurns(body["messages"]);
  const lastQuestion = turns.findLastIndex(({ role, text }) => role === "user" && text !== "");
  const after = turns.slice(lastQuestion + 1);
  return {
    dialect,
    model: string(body["model"]),
    stream: body["stream"] === true,
    includeUsage: object(body["stream_options"])["include_usage"] === true,
    includeReasoning: list(body["include"]).includes("reasoning.encrypted_content"),
    choices: typeof body["n"] === "number" ? Math.min(Math.max(1, body["n"]), 8) : 1,
    question: turns[lastQuestion]?.text ?? "",
    toolResults: after.flatMap(({ results }) => results),
    rounds: after.filter(({ calls }) => calls).length,
    tools: list(body["tools"]).flatMap(readTool),
    toolChoice: readToolChoice(body["tool_choice"]),
    parallel:
      body["parallel_tool_calls"] !== false &&
      object(body["tool_choice"])["disable_parallel_tool_use"] !== true,
    maxTokens: firstNumber(body["max_tokens"], body["max_completion_tokens"], body["max_output_tokens"]),
    stopSequences: [body["stop_sequences"], body["stop"]].flat().filter((stop) => typeof stop === "string"),
    thinking:
      ["enabled", "adaptive"].includes(string(object(body["thinking"])["type"])) ||
      !["", "none"].includes(string(body["reasoning_effort"])) ||
      !["", "none"].includes(string(object(body["reasoning"])["effort"])),
    outputSchema: readOutputSchema(body),
    textFormat: { type: "text", ...object(object(body["text"])["format"]) },
    inputTokens: Math.max(1, Math.ceil(bodyText.length / 4)),
  };
}

interface Turn {
  readonly role: string;
  readonly text: string;
  readonly results: readonly string[];
  readonly calls: boolean;
}

/** Messages and Chat. */
function messageTurns(messages: unknown): Turn[] {
  return list(messages).map((raw) => {
    const message = object(raw);
    const role = string(message["role"]);
    const content = message["content"];
    const parts = typeof content === "string" ? [{ type: "text", text: content }] : list(content).map(object);
    return {
      role,
      text: role === "tool" ? "" : textOf(parts),
      results:
        role === "tool"
          ? [textOf(parts)]
          : parts.filter(({ type }) => type === "tool_result").map((part) => deepText(part["content"])),
      calls: list(message["tool_calls"]).length > 0 || parts.some(({ type }) => type === "tool_use"),
    };
  });
}

function responsesTurns(input: unknown): Turn[] {
  if (typeof input === "string") return [{ role: "user", text: input, results: [], calls: false }];
  const turns = list(input).map((raw): Turn => {
    const item = object(raw);
    const type = string(item["type"]);
    if (type === "function_call") return { role: "assistant", text: "", results: [], calls: true };
    if (type === "function_call_output") {
      return { role: "tool", text: "", results: [deepText(item["output"])], calls: false };
    }
    const content = item["content"];
    const text = typeof content === "string" ? content : textOf(list(content).map(object));
    return { role: string(item["role"]), text, results: [], calls: false };
  });
  // Calls that stand side by side are one round.
  return turns.map((turn, index) => ({
    ...turn,
    calls: turn.calls && turns[index - 1]?.calls !== true,
  }));
}

function textOf(parts: readonly Json[]): string {
  return parts
    .filter(({ type }) => type === "text" || type === "input_text" || type === "output_text")
    .map((part) => string(part["text"]))
    .join("\n");
}

/** Every string below `text`, `title`, `source`, `url` or `data`, for tool results of any shape. */
function deepText(value: unknown): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(deepText).join("\n");
  const known = ["title", "url", "source", "text", "content", "data"];
  return known
    .map((key) => deepText(object(value)[key] ?? ""))
    .filter((text) => text !== "")
    .join("\n");
}

function readTool(raw: unknown): ReadTool[] {
  const tool = object(raw);
  const inner = object(tool["function"]);
  const name = string(tool["name"]) || string(inner["name"]);
  const schema = object(tool["input_schema"] ?? tool["parameters"] ?? inner["parameters"]);
  return name === "" ? [] : [{ name, schema }];
}

function readToolChoice(value: unknown): ReadRequest["toolChoice"] {
  if (value === "none" || value === "required") return value;
  const choice = object(value);
  const name = string(choice["name"]) || string(object(choice["function"])["name"]);
  if (name !== "") return { name };
  if (choice["type"] === "any") return "required";
  return choice["type"] === "none" ? "none" : "auto";
}

function readOutputSchema(body: Json): Json | null {
  const formats = [
    object(body["output_config"])["format"],
    body["output_format"],
    body["response_format"],
    object(body["text"])["format"],
  ].map(object);
  for (const format of formats) {
    if (format["type"] === "json_object") return {};
    if (format["type"] === "json_schema") {
      return object(format["schema"] ?? object(format["json_schema"])["schema"]);
    }
  }
  return null;
}

function firstNumber(...values: unknown[]): number | null {
  return values.find((value) => typeof value === "number") ?? null;
}
