/** What a request may cost, and what its answer says that it did. */
import { fieldsOf, json } from "../grammar/sse.ts";
import { framesIn } from "./frames.ts";
import type { Answer, Question } from "./client.ts";

/** What vendors add to a request by themselves: its framing, and the instructions about tools. */
const OVERHEAD_TOKENS = 20;
const TOOLS_OVERHEAD_TOKENS = 400;

/** The most that a request can cost: a token is at least one byte. Other paths than the three dialects' cost nothing. */
export function boundOf({ method, body }: Pick<Question, "method" | "body">): number {
  if (method !== "POST" || body === undefined) return 0;
  const fields = fieldsOf(json(body.toString()));
  const limits = ["max_tokens", "max_completion_tokens", "max_output_tokens"].map((name) => fields[name]);
  const output = limits.find((limit) => typeof limit === "number" && limit > 0) ?? 0;
  const tools = Array.isArray(fields["tools"]) ? TOOLS_OVERHEAD_TOKENS : 0;
  return Buffer.byteLength(body) + Number(output) + OVERHEAD_TOKENS + tools;
}

/** What an answer reports; `bound` where it succeeded and reports nothing. */
export function reportedTokens({ status, headers, text }: Omit<Answer, "question">, bound: number): number {
  if (status !== 200) return 0;
  const isStream = headers.get("content-type")?.includes("event-stream") === true;
  const bodies = isStream ? framesIn(text).frames.map(({ data }) => json(data)) : [json(text)];
  const totals = bodies.map((body) => {
    const fields = fieldsOf(body);
    const usage = fieldsOf(
      fields["usage"] ?? fieldsOf(fields["message"])["usage"] ?? fieldsOf(fields["response"])["usage"],
    );
    const sum = (...names: string[]) =>
      names.reduce((total, name) => total + (typeof usage[name] === "number" ? usage[name] : 0), 0);
    return sum(
      "input_tokens",
      "cache_creation_input_tokens",
      "cache_read_input_tokens",
      "output_tokens",
      "prompt_tokens",
      "completion_tokens",
    );
  });
  const total = Math.max(0, ...totals);
  return total === 0 ? bound : total;
}
