/** Bodies at the limits of body-limits.ts, made by code; each about as expensive as its bytes allow. */
import type { Dialect } from "../../../dataplane/dialects/dialect.ts";
import { bodyLimits } from "../../../dataplane/lib/body-limits.ts";

const MIB = 1024 * 1024;
/** What does not look at its place is made once. */
function repeated(count: number, item: (index: number) => string): string {
  if (item.length > 0) return Array.from({ length: count }, (_, index) => item(index)).join(",");
  const one = item(0);
  return `${one},`.repeat(count - 1) + one;
}

const textPart = (dialect: Dialect) =>
  `{"type":"${dialect === "responses" ? "input_text" : "text"}","text":"x"}`;
const tool = (dialect: Dialect, index: number) => {
  const schema = `{"type":"object","properties":{"a${index}":{"type":"string","enum":["x","y"]}}}`;
  if (dialect === "messages") return `{"name":"t${index}","input_schema":${schema}}`;
  if (dialect === "chat") return `{"type":"function","function":{"name":"t${index}","parameters":${schema}}}`;
  return `{"type":"function","name":"t${index}","parameters":${schema},"strict":false}`;
};
const image: Record<Dialect, string> = {
  messages: '{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}',
  chat: '{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}',
  responses: '{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="}',
};
/** A call with an id that needs an alias, and its result. */
function called(dialect: Dialect, index: number): string {
  const id = `call number ${index}`;
  if (dialect === "messages")
    return `{"role":"assistant","content":[{"type":"tool_use","id":"${id}","name":"f","input":{"n":${index}}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"${id}","content":[{"type":"text","text":"ok"}]}]}`;
  if (dialect === "chat")
    return `{"role":"assistant","content":null,"tool_calls":[{"id":"${id}","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"${id}","content":"ok"}`;
  return `{"type":"function_call","call_id":"${id}","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"${id}","output":"ok"}`;
}
/** Reasoning of earlier turns that we sealed. */
function reasoned(dialect: Dialect, blob: string): string {
  if (dialect === "messages")
    return `{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"${blob}"},{"type":"text","text":"b"}]}`;
  if (dialect === "responses")
    return `{"role":"user","content":"a"},{"type":"reasoning","summary":[],"encrypted_content":"${blob}"}`;
  return `{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning_content":"c"}`;
}

const user = (content: string) => `{"role":"user","content":${content}}`;
const filled = (unit: string) => `"${unit.repeat(Math.floor((30 * MIB) / Buffer.byteLength(unit)))}"`;

/** The conversation, and what stands beside it. */
type Shape = (dialect: Dialect, sealed: string) => readonly [conversation: string, more?: string];

export const largeShapes: Readonly<Record<string, Shape>> = {
  "100,000 messages": () => [repeated(bodyLimits.messages, () => user('"x"'))],
  "10,000 content blocks in each of 60 messages": (dialect) => [
    repeated(60, () => user(`[${repeated(bodyLimits.blocks, () => textPart(dialect))}]`)),
  ],
  "4,096 tools": (dialect) => [
    user('"x"'),
    `"tools":[${repeated(bodyLimits.tools - 1, (index) => tool(dialect, index))}]`,
  ],
  "100,000 keys at the top": () => [user('"x"'), repeated(bodyLimits.keys - 10, (index) => `"k${index}":0`)],
  "100,000 keys in each of 20 objects": () => [
    user('"x"'),
    `"extra":[${repeated(20, () => `{${repeated(bodyLimits.keys, (index) => `"k${index}":0`)}}`)}]`,
  ],
  "a million objects of one key each": () => [
    user('"x"'),
    `"extra":[${repeated(bodyLimits.containers - 10, (index) => `{"k${index.toString(36)}":0}`)}]`,
  ],
  "a string of 30 MiB": () => [user(filled("a"))],
  "a string of escapes": () => [user(filled(String.raw`\n\"`))],
  "a string of \\u escapes": () => [user(filled(String.raw`\u00e9`))],
  "Chinese characters": () => [user(filled("中"))],
  addresses: () => [user(filled("see http://a.example/path "))],
  nesting: () => [user('"x"'), `"extra":[${repeated(7_000, () => "[".repeat(100) + "]".repeat(100))}]`],
  "16 million numbers": () => [user('"x"'), `"extra":[${"1,".repeat(15 * MIB)}1]`],
  "100,000 images": (dialect) => [repeated(20, () => user(`[${repeated(5_000, () => image[dialect])}]`))],
  "50,000 tool calls and results": (dialect) => [
    `${user('"x"')},${repeated(bodyLimits.messages / 2 - 1, (index) => called(dialect, index))}`,
  ],
  "20,000 sealed blobs": (dialect, sealed) => [
    `${repeated(20_000, () => reasoned(dialect, sealed))},${user('"x"')}`,
  ],
};

/** @param more members beside the conversation and the shape's own. */
export function largeBody(dialect: Dialect, shape: string, sealed: string, more = ""): Buffer {
  const [conversation, beside] = (largeShapes[shape] as Shape)(dialect, sealed);
  const field = dialect === "responses" ? "input" : "messages";
  const members = [
    `"model":"public-model"`,
    dialect === "messages" ? `"max_tokens":9` : "",
    more,
    beside ?? "",
    `"${field}":[${conversation}]`,
  ];
  const tools = members.filter((member) => member.startsWith('"tools":['));
  const others = members.filter((member) => member !== "" && !tools.includes(member));
  const merged = tools.length === 0 ? [] : [`"tools":[${tools.map((list) => list.slice(9, -1)).join(",")}]`];
  return Buffer.from(`{${[...others, ...merged].join(",")}}`);
}
