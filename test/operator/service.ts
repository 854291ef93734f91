/** Clients behind a Service: they ask whichever pods are its endpoints, and remember every request that failed. */
import { setTimeout as sleep } from "node:timers/promises";
import type { DataPlanePod } from "./data-plane-pod.ts";

const PAUSE_MS = 40;
/** A data plane sheds load while its core is busy with other programs; clients come again, as the SDKs do. */
const TRIES = 20;
const TRY_AGAIN_MS = 250;

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
    for (let left = TRIES; ; left -= 1) {
      const response = await fetch(`${pod.url}/v1/messages`, {
        method: "POST",
        headers: { "x-api-key": this.#key, "content-type": "application/json" },
        body: JSON.stringify({
          model,
          max_tokens: 50,
          stream,
          messages: [{ role: "user", content: "hello" }],
        }),
        signal: AbortSignal.timeout(20_000),
      });
      const text = await response.text();
      const isWhole = text.includes(stream ? "event: message_stop" : '"stop_reason"');
      if (response.status === 200 && isWhole) return text;
      const isShed = response.status === 503 && text.includes("The service is overloaded");
      if (!isShed || left === 1 || !pod.isEndpoint)
        throw new Error(`${response.status} ${text.slice(0, 300)}`);
      await sleep(TRY_AGAIN_MS);
    }
  }

  /** Asks all the time until `during` is over, `width` at a time, every second request as a stream. */
  async load(model: string, width: number, during: () => Promise<void>): Promise<void> {
    const over = new AbortController();
    const worker = async () => {
      while (!over.signal.aborted) {
        try {
          await this.#askAny(model);
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
      over.abort();
      await Promise.all(workers);
    }
  }
  async #askAny(model: string): Promise<void> {
    const endpoints = this.#pods().filter(({ isEndpoint }) => isEndpoint);
    this.#turn += 1;
    const pod = endpoints[this.#turn % Math.max(1, endpoints.length)];
    if (pod === undefined) throw new Error("the Service has no endpoint");
    await this.ask(pod, model, this.#turn % 2 === 0);
  }
}
