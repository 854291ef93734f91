/** Clients behind a Service: they ask whichever pods are its endpoints, and remember every request that failed. */
import { setTimeout as sleep } from "node:timers/promises";
import type { DataPlanePod } from "./data-plane-pod.ts";

const PAUSE_MS = 20;

export class Service {
  readonly #pods: () => readonly DataPlanePod[];
  readonly #key: string;
  readonly failures: string[] = [];
  answered = 0;
  #turn = 0;

  constructor(pods: () => readonly DataPlanePod[], key: string) {
    this.#pods = pods;
    this.#key = key;
  }

  /** The answer's text of one request to this pod. @throws when it is not a whole answer. */
  async ask(pod: DataPlanePod, model: string, stream = false): Promise<string> {
    const response = await fetch(`${pod.url}/v1/messages`, {
      method: "POST",
      headers: { "x-api-key": this.#key, "content-type": "application/json" },
      body: JSON.stringify({ model, max_tokens: 50, stream, messages: [{ role: "user", content: "hello" }] }),
      signal: AbortSignal.timeout(20_000),
    });
    const text = await response.text();
    const isWhole = stream ? text.includes("event: message_stop") : text.includes('"stop_reason"');
    if (response.status !== 200 || !isWhole) throw new Error(`${response.status} ${text.slice(0, 300)}`);
    return text;
  }

  /** Asks all the time until `during` is over, `width` at a time, every second request as a stream. */
  async load(model: string, width: number, during: () => Promise<void>): Promise<void> {
    let isOver = false;
    const worker = async () => {
      while (!isOver) {
        const endpoints = this.#pods().filter(({ isEndpoint }) => isEndpoint);
        this.#turn += 1;
        const pod = endpoints[this.#turn % Math.max(1, endpoints.length)];
        try {
          if (pod === undefined) throw new Error("the Service has no endpoint");
          await this.ask(pod, model, this.#turn % 2 === 0);
          this.answered += 1;
        } catch (error) {
          this.failures.push(String(error));
        }
        await sleep(PAUSE_MS);
      }
    };
    const workers = Array.from({ length: width }, worker);
    try {
      await during();
    } finally {
      isOver = true;
      await Promise.all(workers);
    }
  }
}
