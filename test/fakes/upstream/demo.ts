/**
 * How the scripted upstream answers when no script says otherwise: like a small, polite model. It greets, counts,
 * does sums, repeats, fills in a schema, calls a declared tool when the question asks for it, and afterwards tells
 * what the tool said with links.
 */
import type { Json, ReadRequest, ReadTool } from "./read-request.ts";
import type { Answer, Part, Step } from "./script.ts";

export function demoStep(request: ReadRequest): Step {
  const scripted = inlineScript(request);
  if (scripted !== null) return scripted;
  const tool = chooseTool(request);
  const thinking: Part[] = request.thinking
    ? [{ type: "thinking", text: `The user asks: ${shorten(request.question, 120)}` }]
    : [];
  if (tool !== null) {
    const calls = tool.map(({ name, schema }): Part => ({
      type: "tool",
      name,
      input: fillArguments(schema, request),
    }));
    return { answer: { parts: [...thinking, ...calls] } };
  }
  return { answer: limited(request, thinking, reply(request)) };
}

/**
 * `{{script: STEP}}` or `{{script: [STEP, …]}}` in the question: one step for each round of tool calls, the last one
 * for all that follow. So a fault can be asked for through any client.
 */
function inlineScript({ question, rounds }: ReadRequest): Step | null {
  const start = question.indexOf("{{script:");
  const end = question.lastIndexOf("}}");
  if (start === -1 || end < start) return null;
  try {
    const parsed: unknown = JSON.parse(question.slice(start + "{{script:".length, end));
    const steps = (Array.isArray(parsed) ? parsed : [parsed]) as Step[];
    return steps[Math.min(rounds, steps.length - 1)] ?? null;
  } catch (error) {
    return {
      error: {
        status: 400,
        message: `the script is not JSON: ${error instanceof Error ? error.message : ""}`,
      },
    };
  }
}

/** Cuts the text at the token limit (a token is four characters here) or at a stop sequence. */
function limited(request: ReadRequest, thinking: readonly Part[], full: string): Answer {
  const stop = request.stopSequences.find((sequence) => sequence !== "" && full.includes(sequence));
  if (stop !== undefined) {
    const text = full.slice(0, full.indexOf(stop));
    return { parts: [...thinking, { type: "text", text }], stop: "stop_sequence", stopSequence: stop };
  }
  const room = request.maxTokens === null ? Infinity : request.maxTokens * 4;
  if (full.length <= room) return { parts: [...thinking, { type: "text", text: full }] };
  return {
    parts: [...thinking, { type: "text", text: full.slice(0, room) }],
    stop: "length",
    usage: { output: request.maxTokens ?? 0 },
  };
}

/** The tools to call now; null: answer in words. */
function chooseTool({
  tools,
  toolChoice,
  parallel,
  question,
  rounds,
}: ReadRequest): readonly ReadTool[] | null {
  if (tools.length === 0 || toolChoice === "none") return null;
  if (typeof toolChoice === "object") return tools.filter(({ name }) => name === toolChoice.name);
  const wanted = tools.filter((tool) => isWanted(tool, question));
  if (toolChoice === "required" && wanted.length === 0) return tools.slice(0, 1);
  if (wanted.length === 0 || rounds > 0) return null;
  return wanted.slice(0, parallel ? 3 : 1);
}

const intents: Readonly<Record<string, RegExp>> = {
  web_search: /\b(search|look up|google|find out|news|latest|today|current)\b/i,
  x_search: /\b(tweets?|posts?|on x|twitter)\b/i,
  web_fetch: /https?:\/\//i,
};

function isWanted({ name }: ReadTool, question: string): boolean {
  if (question.toLowerCase().includes(name.toLowerCase())) return true;
  const intent = Object.hasOwn(intents, name) ? intents[name] : undefined;
  if (intent !== undefined) return intent.test(question);
  const words = name
    .replaceAll(/([a-z])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z]+/)
    .filter((word) => word.length > 3);
  return words.some((word) => new RegExp(`\\b${word}`, "i").test(question));
}

function fillArguments(schema: Json, request: ReadRequest): Json {
  const filled = fillSchema(schema, request.question, "", 0);
  return typeof filled === "object" && filled !== null ? (filled as Json) : {};
}

/** A value that fits the schema, made from the question where it can be. */
function fillSchema(schema: Json, question: string, name: string, depth: number): unknown {
  if ("const" in schema) return schema["const"];
  if (Array.isArray(schema["enum"])) {
    const named = schema["enum"].find((value) =>
      question.toLowerCase().includes(String(value).toLowerCase()),
    );
    return named ?? schema["enum"][0];
  }
  const alternatives = schema["anyOf"] ?? schema["oneOf"];
  if (Array.isArray(alternatives)) return fillSchema(alternatives[0] as Json, question, name, depth);
  const type = Array.isArray(schema["type"]) ? schema["type"][0] : schema["type"];
  switch (type) {
    case "string":
      return fillString(name, question);
    case "integer":
      return Math.trunc(Number(/-?\d+/.exec(question)?.[0] ?? 1));
    case "number":
      return Number(/-?\d+(\.\d+)?/.exec(question)?.[0] ?? 1);
    case "boolean":
      return true;
    case "null":
      return null;
    case "array":
      return depth > 4 ? [] : [fillSchema((schema["items"] ?? {}) as Json, question, name, depth + 1)];
    default: {
      if (depth > 4) return {};
      const properties = (schema["properties"] ?? {}) as Record<string, Json>;
      const required = Array.isArray(schema["required"])
        ? (schema["required"] as string[])
        : Object.keys(properties);
      return Object.fromEntries(
        required.map((key) => [key, fillSchema(properties[key] ?? {}, question, key, depth + 1)]),
      );
    }
  }
}

function fillString(name: string, question: string): string {
  if (/url|link/i.test(name)) return /https?:\/\/[^\s"'<>)]+/.exec(question)?.[0] ?? "https://example.com/";
  if (/city|location|place/i.test(name)) {
    return /\b(?:in|at|for|of)\s+([A-Z][\p{L}-]*(?:\s[A-Z][\p{L}-]*)*)/u.exec(question)?.[1] ?? "Jakarta";
  }
  return shorten(question.replaceAll(/\s+/g, " ").trim(), 200) || "example";
}

const capitals: Readonly<Record<string, string>> = {
  france: "Paris",
  germany: "Berlin",
  indonesia: "Jakarta",
  italy: "Rome",
  japan: "Tokyo",
  spain: "Madrid",
};

function reply(request: ReadRequest): string {
  const { question, outputSchema, toolResults, model } = request;
  if (outputSchema !== null) return JSON.stringify(fillSchema(outputSchema, question, "", 0));
  if (toolResults.length > 0) return retell(toolResults);
  const counting = /\bcount (?:from 1 )?(?:up )?to (\d{1,4})\b/i.exec(question);
  if (counting !== null) {
    return Array.from({ length: Number(counting[1]) }, (_, index) => index + 1).join(" ");
  }
  const sum = /(-?\d+(?:\.\d+)?)\s*([-+*/x×])\s*(-?\d+(?:\.\d+)?)/.exec(question);
  if (sum !== null) return `${sum[0]} = ${calculate(Number(sum[1]), sum[2] ?? "+", Number(sum[3]))}`;
  const capital = /\bcapital of (\w+)/i.exec(question)?.[1];
  if (capital !== undefined && Object.hasOwn(capitals, capital.toLowerCase())) {
    return `The capital of ${capital} is ${capitals[capital.toLowerCase()]}.`;
  }
  const said = /\b(?:say|repeat|echo)(?: after me)?(?: exactly)?:?\s+["“']?(.+?)["”']?\s*$/is.exec(question);
  if (said !== null) return said[1] ?? "";
  if (/\b(hello|hi|hey|halo|good (morning|evening))\b/i.test(question)) {
    return `Hello! I am ${model}, a scripted model that runs on this machine. How can I help you?`;
  }
  if (question === "") return "I received your message.";
  return (
    `You asked: “${shorten(question, 300)}”. I am ${model}, a scripted model on this machine, so I know little: ` +
    "I can greet, count, do sums, repeat what you say, fill in a JSON schema and call the tools you declare."
  );
}

function calculate(left: number, operator: string, right: number): number {
  if (operator === "+") return left + right;
  if (operator === "-") return left - right;
  return operator === "/" ? left / right : left * right;
}

/** Tells what the tools said, citing each address as a markdown link. */
function retell(results: readonly string[]): string {
  const all = results.join("\n");
  const links = [...new Set(all.match(/https?:\/\/[^\s"'<>)\]]+/g))].slice(0, 3);
  const summary = shorten(
    all
      .replaceAll(/https?:\/\/\S+/g, "")
      .replaceAll(/\s+/g, " ")
      .trim(),
    240,
  );
  const sources = links.map((link) => `[${new URL(link).hostname}](${link})`).join(", ");
  return sources === "" ? `The tool says: ${summary}` : `Here is what I found: ${summary} (${sources})`;
}

function shorten(value: string, length: number): string {
  const characters = Array.from(value);
  return characters.length <= length ? value : `${characters.slice(0, length).join("")}…`;
}
