/**
 * Asks every ready pod what it holds, each in its own time, so that one that hangs holds up nothing else (rule 6.1).
 */
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import { type ConfigStatus, statusSchema } from "../../dataplane/config/schema.ts";
import type { PodReport } from "../plan/conditions.ts";
import type { Pod } from "./pods.ts";

const TIMEOUT_MS = 3000;
/** 10,000 objects need about 2 MiB. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;
/** While a snapshot is on its way the pods are asked often, later only to see that it is still there. */
const ASK_PENDING_MS = 300;
const ASK_SETTLED_MS = 5000;
/** One lost answer is no news: the last one counts for so long. */
const TRUST_MS = 12_000;

interface Asked {
  pod: Pod;
  readonly stop: AbortController;
  /** The last attempt is over, whatever it gave. */
  answered: boolean;
  status: ConfigStatus | null;
  digest: string;
  /** Monotonic milliseconds. */
  heardAt: number;
}

export interface AcknowledgementsOptions {
  readonly pods: () => readonly Pod[];
  /** Whether a snapshot is on its way. */
  readonly pending: () => boolean;
  /** Told when the reports are others than before. */
  readonly changed: () => void;
}

export class Acknowledgements {
  readonly #options: AcknowledgementsOptions;
  readonly #asked = new Map<string, Asked>();
  readonly #agent = new Agent({ connect: { timeout: TIMEOUT_MS }, connections: 1, pipelining: 1 });

  constructor(options: AcknowledgementsOptions) {
    this.#options = options;
  }

  /** Begins to ask pods that became ready and forgets those that no longer are. */
  refresh(): void {
    const ready = new Map(this.#options.pods().map((pod) => [pod.uid, pod]));
    let changed = false;
    for (const [uid, asked] of this.#asked) {
      const pod = ready.get(uid);
      if (pod === undefined) {
        asked.stop.abort();
        this.#asked.delete(uid);
        changed = true;
      } else asked.pod = pod;
    }
    for (const [uid, pod] of ready) {
      if (this.#asked.has(uid)) continue;
      const asked: Asked = {
        pod,
        stop: new AbortController(),
        answered: false,
        status: null,
        digest: "",
        heardAt: -Infinity,
      };
      this.#asked.set(uid, asked);
      void this.#ask(asked);
    }
    if (changed) this.#options.changed();
  }

  /**
   * What every ready pod said last. null: one that has just become ready was not heard yet; it is waited for, a few
   * seconds at most, so that a rollout does not look like a pod without configuration (rule 6.2).
   */
  reports(): readonly PodReport[] | null {
    const all = [...this.#asked.values()];
    if (all.some(({ answered }) => !answered)) return null;
    return all.map(({ pod, status }) => ({ pod: pod.name, status }));
  }

  async close(): Promise<void> {
    for (const { stop } of this.#asked.values()) stop.abort();
    this.#asked.clear();
    await this.#agent.destroy();
  }

  async #ask(asked: Asked): Promise<void> {
    const { signal } = asked.stop;
    while (!signal.aborted) {
      const answer = await this.#read(asked.pod, signal);
      if (signal.aborted) return;
      this.#note(asked, answer);
      const wait = this.#options.pending() ? ASK_PENDING_MS : ASK_SETTLED_MS;
      // Waits in short steps: a new snapshot makes every pod worth asking.
      for (let waited = 0; waited < wait && !signal.aborted; waited += ASK_PENDING_MS) {
        await sleep(ASK_PENDING_MS, undefined, { signal, ref: false }).catch(() => {});
        if (this.#options.pending()) break;
      }
    }
  }

  #note(asked: Asked, answer: string | null): void {
    const before = asked.status;
    const first = !asked.answered;
    asked.answered = true;
    const now = performance.now();
    if (answer === null) {
      if (now - asked.heardAt > TRUST_MS) {
        asked.status = null;
        asked.digest = "";
      }
    } else {
      // The same text is the same answer: megabytes need not be parsed again.
      const digest = createHash("sha256").update(answer).digest("base64");
      if (digest !== asked.digest) {
        const status = parseStatus(answer);
        asked.status = status?.podUid === asked.pod.uid ? status : null;
        asked.digest = digest;
      }
      if (asked.status !== null) asked.heardAt = now;
    }
    if (first || asked.status !== before) this.#options.changed();
  }

  /** The body; null when there is none in time, or too much of it. */
  async #read(pod: Pod, signal: AbortSignal): Promise<string | null> {
    if (pod.statusUrl === null) return null;
    try {
      const answer = await request(pod.statusUrl, {
        dispatcher: this.#agent,
        signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
      });
      const chunks: Buffer[] = [];
      let size = 0;
      for await (const chunk of answer.body as AsyncIterable<Buffer>) {
        size += chunk.length;
        if (size > MAX_ANSWER_BYTES) return null;
        chunks.push(chunk);
      }
      return answer.statusCode === 200 ? Buffer.concat(chunks).toString() : null;
    } catch {
      return null;
    }
  }
}

function parseStatus(text: string): ConfigStatus | null {
  try {
    return statusSchema.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}
