/** Asks one data plane what it holds. */
import { request } from "undici";
import type { ConfigStatus } from "../../dataplane/config/schema.ts";
import type { PodReport } from "../plan/conditions.ts";
import { MAX_STATUS_BYTES, parseStatus, readAtMost } from "../read-answer.ts";
import { WakeSignal } from "../wake-signal.ts";

const TIMEOUT_MS = 2000;

/** While a snapshot is on its way the data plane is asked often, later only to see that it still holds it. */
const ASK_PENDING_MS = 150;
const ASK_SETTLED_MS = 5000;

/** Reads `/config/status`. No answer, an endless or a malformed one counts as no acknowledgement (rule 6.1). */
async function readStatus(url: string, signal: AbortSignal): Promise<ConfigStatus | null> {
  try {
    // Not fetch, which calls nobody on ports such as 10080.
    const answer = await request(url, {
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    });
    const body = await readAtMost(answer.body, MAX_STATUS_BYTES);
    return body === null || answer.statusCode !== 200 ? null : parseStatus(body);
  } catch {
    return null;
  }
}

/** Returns a function that reports the data plane of one machine as the one ready pod. */
const askOne = (url: string, signal: AbortSignal) => async (): Promise<readonly PodReport[]> => {
  const status = await readStatus(url, signal);
  // Without an answer there is no pod: a folder has no API server that knows of ready ones.
  return status === null ? [] : [{ pod: status.podUid, ready: true, status }];
};

/** Asks the data plane apart from the rounds, so that one that hangs delays no edit. */
export class AcknowledgementPoller {
  readonly #url: string | null;
  readonly #pending: () => boolean;
  readonly #answered: WakeSignal;
  readonly #signal: AbortSignal;
  readonly #hurry = new WakeSignal();
  #answer: readonly PodReport[] | null = null;
  stopped: Promise<void> = Promise.resolve();

  /** `pending`: whether a snapshot is on its way. `answered` is raised at each answer. */
  constructor(url: string | null, pending: () => boolean, answered: WakeSignal, signal: AbortSignal) {
    this.#url = url;
    this.#pending = pending;
    this.#answered = answered;
    this.#signal = signal;
  }

  start(): void {
    if (this.#url === null) return;
    const ask = askOne(this.#url, this.#signal);
    this.#signal.addEventListener("abort", () => this.#hurry.raise(), { once: true });
    this.stopped = (async () => {
      while (!this.#signal.aborted) {
        this.#answer = await ask();
        this.#answered.raise();
        await this.#hurry.wait(this.#pending() ? ASK_PENDING_MS : ASK_SETTLED_MS);
      }
    })();
  }

  /** Asks at once, as something was published. */
  hurry(): void {
    this.#hurry.raise();
  }

  /** Returns the newest answer, only once; null: there is no new one. */
  takeAnswer(): readonly PodReport[] | null {
    const answer = this.#answer;
    this.#answer = null;
    return answer;
  }
}
