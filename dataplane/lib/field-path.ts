/** One step into a request body: a key, or an index of an array. */
export type PathStep = string | number;

/**
 * A field's path as the caller's dialect writes it: `messages.3.content` in Messages style,
 * `messages[3].content` in OpenAI style (dialects.md §A2).
 */
export function fieldPath(style: "messages" | "openai", steps: readonly PathStep[]): string {
  if (style === "messages") return steps.join(".");
  let path = "";
  for (const step of steps) {
    if (typeof step === "number") path += `[${step}]`;
    else path += path === "" ? step : `.${step}`;
  }
  return path;
}
