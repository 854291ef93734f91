/** Small bodies of each dialect, and what `inspectBody` sees in them. */
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import { inspectBody, type Inspection } from "../../dataplane/inference/inspect/body.ts";

const basics: Record<Dialect, object> = {
  messages: { model: "m", max_tokens: 9, messages: [{ role: "user", content: "hi" }] },
  chat: { model: "m", messages: [{ role: "user", content: "hi" }] },
  responses: { model: "m", input: "hi" },
};
export const lookAt = (dialect: Dialect, more: object): Inspection =>
  inspectBody(dialect, Buffer.from(JSON.stringify({ ...basics[dialect], ...more })));

export const blocks = (...content: object[]) => ({ messages: [{ role: "user", content }] });
export const items = (...input: object[]) => ({ input });
export const tools = (...list: object[]) => ({ tools: list });
