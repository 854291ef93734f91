/** What the bench of batches asks of a data plane. */
import { setTimeout as sleep } from "node:timers/promises";

const POLL_MS = 50;
const JSON_TYPE = { "content-type": "application/json" };
const terminal = ["completed", "failed", "expired", "cancelled"];

export class BatchClient {
  readonly #origin: string;
  readonly #key: string;

  constructor(port: number, key: string) {
    this.#origin = `http://127.0.0.1:${port}`;
    this.#key = key;
  }

  /** @returns the id of a message batch. */
  async createMessages(body: string | AsyncIterable<Uint8Array>): Promise<string> {
    // `duplex` is missing in the types of Node's fetch.
    const options = { body, duplex: "half", headers: JSON_TYPE } as RequestInit;
    return textOf(await this.#json("POST", "/v1/messages/batches", options), "id");
  }

  /** @returns the id of a batch of so many Chat requests. */
  async createFile(count: number): Promise<string> {
    const url = "/v1/chat/completions";
    const lines = Array.from({ length: count }, (_, index) =>
      JSON.stringify({ custom_id: `i${index}`, method: "POST", url, body: requestOf("json", ONE_KB) }),
    );
    const form = new FormData();
    form.append("file", new File([lines.join("\n")], "in.jsonl"));
    const input = textOf(await this.#json("POST", "/v1/files", { body: form }), "id");
    const body = JSON.stringify({ input_file_id: input, endpoint: url, completion_window: "24h" });
    return textOf(await this.#json("POST", "/v1/batches", { body, headers: JSON_TYPE }), "id");
  }

  async completed(id: string): Promise<number> {
    const { request_counts: counts } = await this.#json("GET", pathOf(id));
    return (counts as { readonly completed: number }).completed;
  }

  async ended(id: string): Promise<void> {
    for (;;) {
      const batch = await this.#json("GET", pathOf(id));
      if (batch["processing_status"] === "ended" || terminal.includes(String(batch["status"]))) return;
      await sleep(POLL_MS);
    }
  }

  async cancel(id: string): Promise<void> {
    await this.#json("POST", `${pathOf(id)}/cancel`);
  }

  /** Number of lines. */
  async results(id: string): Promise<number> {
    const text = await (await this.#ask("GET", `${pathOf(id)}/results`, {})).text();
    return text.split("\n").length - 1;
  }

  async #json(method: string, path: string, options: RequestInit = {}): Promise<Json> {
    return (await (await this.#ask(method, path, options)).json()) as Json;
  }

  async #ask(method: string, path: string, options: RequestInit): Promise<Response> {
    const headers = new Headers(options.headers);
    headers.set("authorization", `Bearer ${this.#key}`);
    for (;;) {
      const answer = await fetch(`${this.#origin}${path}`, { ...options, method, headers });
      if (answer.ok) return answer;
      const said = await answer.text();
      // Overloaded: a poll waits.
      if (answer.status !== 503 || method !== "GET") throw new Error(`${path}: ${answer.status} ${said}`);
      await sleep(POLL_MS);
    }
  }
}

type Json = Readonly<Record<string, unknown>>;
const textOf = (json: Json, field: string): string => String(json[field]);
const pathOf = (id: string) =>
  id.startsWith("msgbatch_") ? `/v1/messages/batches/${id}` : `/v1/batches/${id}`;

/** Makes a request of about one kilobyte. */
const ONE_KB = "x".repeat(900);
const requestOf = (model: "json" | "whole", content: string) => ({
  model,
  max_tokens: 300,
  messages: [{ role: "user", content }],
});
const itemOf = (index: number, content: string) =>
  JSON.stringify({ custom_id: `i${index}`, params: requestOf("whole", content) });

/** The body of a message batch of so many requests of one kilobyte. */
export function messagesBody(count: number): string {
  return `{"requests":[${Array.from({ length: count }, (_, index) => itemOf(index, ONE_KB)).join(",")}]}`;
}

/** The same with larger requests, piece by piece. */
export async function* bodyPieces(count: number, content: string): AsyncGenerator<Buffer> {
  yield Buffer.from('{"requests":[');
  for (let index = 0; index < count; index += 1)
    yield Buffer.from(`${index === 0 ? "" : ","}${itemOf(index, content)}`);
  yield Buffer.from("]}");
}
