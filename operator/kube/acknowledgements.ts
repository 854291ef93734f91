/**
 * Asks every pod what it holds, each on its own, so that one that hangs holds up nothing else (rule 6.1). Pods that are
 * not ready are asked too: the schema version has to be one that they can read, or they would never become ready.
 */
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { Agent, request } from "undici";
import type { ConfigStatus } from "../../dataplane/config/schema.ts";
import type { PodReport } from "../plan/conditions.ts";
import { MAX_STATUS_BYTES, parseStatus, readAtMost } from "../read-answer.ts";
import type { Pod } from "./pods.ts";

const TIMEOUT_MS = 3000;
/** While a snapshot is on its way the pods are asked often, later only to see that they still hold it. */
const ASK_PENDING_MS = 300;
const ASK_SETTLED_MS = 5000;
/** Interval for a pod that is not ready, or gives no usable answer. */
const ASK_IDLE_MS = 2000;
/** How often it is checked whether a pod has to be asked before its interval is over. */
const STEP_MS = 300;
/** How long the last answer counts when later ones are lost. */
const TRUST_MS = 12_000;
/** A ready pod that has not acknowledged for this long is reported as silent. */
const SILENT_MS = 30_000;

interface Asked {
  pod: Pod;
  readonly stop: AbortController;
  /** Whether an attempt has ended since the pod became ready, with an answer or without. */
  answered: boolean;
  /** Whether the pod became ready since the last attempt began. */
  isDue: boolean;
  status: ConfigStatus | null;
  /** Why there is no usable answer; null: there is one. */
  silence: string | null;
  digest: string;
  /** Monotonic milliseconds. */
  heardAt: number;
  /** The `silence` that was reported last. */
  told: string | null;
  /** Since when the pod is ready and neither holds the newest serial nor takes newer ones; null: it is not. */
  behindSince: number | null;
  isSilent: boolean;
}

/** A pod's body, or why there is none. */
type Answer = { readonly body: Buffer } | { readonly silence: string };

type Held = ConfigStatus["objects"][number];

export interface AcknowledgementsOptions {
  /** Running pods, ready or not. */
  readonly pods: () => readonly Pod[];
  /** Whether a snapshot is on its way. */
  readonly pending: () => boolean;
  /** Called when the reports differ from those before. */
  readonly changed: () => void;
  /** The newest published serial; null: none. */
  readonly serial: () => number | null;
  /** Called once when a ready pod gives no usable answer, and again when the reason changes. */
  readonly unheard: (pod: string, reason: string) => void;
  /** Called once when a ready pod has not acknowledged for 30 s. */
  readonly silent: (pod: string, reason: string) => void;
  /** Default: 30 s. */
  readonly silentMs?: number;
}

export class Acknowledgements {
  readonly #options: AcknowledgementsOptions;
  readonly #asked = new Map<string, Asked>();
  /** Objects of the last answer, by uid: equal ones of other answers are held once. */
  #known: ReadonlyMap<string, Held> = new Map();
  readonly #agent = new Agent({ connect: { timeout: TIMEOUT_MS }, connections: 1, pipelining: 1 });

  constructor(options: AcknowledgementsOptions) {
    this.#options = options;
  }

  /** Begins to ask new pods and forgets those that are gone. */
  refresh(): void {
    const pods = new Map(this.#options.pods().map((pod) => [pod.uid, pod]));
    let changed = false;
    for (const [uid, asked] of this.#asked) {
      const pod = pods.get(uid);
      if (pod === undefined) {
        asked.stop.abort();
        this.#asked.delete(uid);
      }
      if (pod?.isReady !== asked.pod.isReady) changed = true;
      if (pod === undefined) continue;
      if (pod.isReady && !asked.pod.isReady) Object.assign(asked, { answered: false, isDue: true });
      if (!pod.isReady) Object.assign(asked, { told: null, behindSince: null, isSilent: false });
      asked.pod = pod;
    }
    for (const [uid, pod] of pods) {
      if (this.#asked.has(uid)) continue;
      const asked: Asked = {
        pod,
        stop: new AbortController(),
        answered: false,
        isDue: false,
        status: null,
        silence: null,
        digest: "",
        heardAt: -Infinity,
        told: null,
        behindSince: null,
        isSilent: false,
      };
      this.#asked.set(uid, asked);
      this.#ask(asked).catch((error: unknown) => {
        // The next refresh begins anew.
        if (this.#asked.get(uid) === asked) this.#asked.delete(uid);
        this.#options.silent(
          pod.name,
          `it cannot be asked: ${error instanceof Error ? error.message : "unknown"}`,
        );
      });
    }
    if (changed) this.#options.changed();
  }

  /**
   * Returns every pod's last answer. null: a pod that has just become ready has not been asked yet; it is waited for,
   * a few seconds at most, so that a rollout does not look like a pod without configuration (rule 6.2).
   */
  reports(): readonly PodReport[] | null {
    const all = [...this.#asked.values()];
    if (all.some(({ answered, pod }) => pod.isReady && !answered)) return null;
    return all.map(({ pod, status, isSilent }) => ({
      pod: pod.name,
      ready: pod.isReady,
      status,
      isSilent,
    }));
  }

  /** How many ready pods have not acknowledged for 30 s. */
  get silentCount(): number {
    return [...this.#asked.values()].filter(({ isSilent }) => isSilent).length;
  }

  async close(): Promise<void> {
    for (const { stop } of this.#asked.values()) stop.abort();
    this.#asked.clear();
    await this.#agent.destroy();
  }

  async #ask(asked: Asked): Promise<void> {
    const { signal } = asked.stop;
    const { pending } = this.#options;
    while (!signal.aborted) {
      asked.isDue = false;
      const answer = await this.#read(asked.pod, signal);
      if (signal.aborted) return;
      // An answer from before the pod became ready does not count.
      if (!asked.isDue) this.#note(asked, answer);
      const isWell = () => asked.pod.isReady && asked.silence === null;
      const wait = !isWell() ? ASK_IDLE_MS : pending() ? ASK_PENDING_MS : ASK_SETTLED_MS;
      for (let waited = 0; waited < wait && !signal.aborted && !asked.isDue; waited += STEP_MS) {
        await sleep(STEP_MS, undefined, { signal, ref: false }).catch(() => {});
        // A new snapshot makes every well pod worth asking.
        if (isWell() && pending()) break;
      }
    }
  }

  #note(asked: Asked, answer: Answer): void {
    const before = asked.status;
    const first = !asked.answered;
    asked.answered = true;
    const now = performance.now();
    let silence: string | null = null;
    if ("body" in answer) {
      // The same bytes are the same answer: megabytes need not be parsed again.
      const digest = createHash("sha256").update(answer.body).digest("base64");
      if (digest !== asked.digest) {
        asked.status = this.#parse(answer.body);
        asked.digest = digest;
      }
      if (asked.status === null) silence = "its answer is malformed";
      else if (asked.status.podUid === asked.pod.uid) asked.heardAt = now;
      else {
        // Addresses are reused: another pod answers at this one's.
        silence = "another pod answers at its address";
        asked.status = null;
        asked.digest = "";
      }
    } else {
      ({ silence } = answer);
      if (now - asked.heardAt > TRUST_MS) {
        asked.status = null;
        asked.digest = "";
      }
    }
    asked.silence = silence;
    if (silence === null) asked.told = null;
    else if (silence !== asked.told && asked.pod.isReady) {
      asked.told = silence;
      this.#options.unheard(asked.pod.name, silence);
    }
    const wasSilent = asked.isSilent;
    this.#noteSilence(asked, before, now);
    if (first || asked.status !== before || asked.isSilent !== wasSilent) this.#options.changed();
  }

  /** Notes whether the pod is ready and has not acknowledged for too long. */
  #noteSilence(asked: Asked, before: ConfigStatus | null, now: number): void {
    const newest = this.#options.serial();
    const { pod, status } = asked;
    if (!pod.isReady || newest === null || status?.serial === newest) {
      Object.assign(asked, { behindSince: null, isSilent: false });
      return;
    }
    // A pod that takes newer serials, edit after edit, is behind and not silent.
    if (asked.behindSince === null || (status?.serial ?? -1) > (before?.serial ?? Infinity)) {
      Object.assign(asked, { behindSince: now, isSilent: false });
      return;
    }
    if (asked.isSilent || now - asked.behindSince < (this.#options.silentMs ?? SILENT_MS)) return;
    asked.isSilent = true;
    this.#options.silent(pod.name, asked.silence ?? whyBehind(status, newest));
  }

  /** Returns null when the answer is malformed. */
  #parse(body: Buffer): ConfigStatus | null {
    const status = parseStatus(body);
    if (status === null) return null;
    const objects = status.objects.map((object) => {
      const known = this.#known.get(object.uid);
      return known !== undefined && isDeepStrictEqual(known, object) ? known : object;
    });
    this.#known = new Map(objects.map((object) => [object.uid, object]));
    return { ...status, objects };
  }

  async #read(pod: Pod, signal: AbortSignal): Promise<Answer> {
    if (pod.statusUrl === null) return { silence: "it has no address, or no port named ops" };
    try {
      const answer = await request(pod.statusUrl, {
        dispatcher: this.#agent,
        signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
      });
      const body = await readAtMost(answer.body, MAX_STATUS_BYTES);
      if (body === null) return { silence: "its answer is too large" };
      if (answer.statusCode !== 200) return { silence: `it answers with status ${answer.statusCode}` };
      return { body };
    } catch (error) {
      const isLate = error instanceof Error && error.name === "TimeoutError";
      return { silence: isLate ? "it does not answer in time" : "it cannot be reached" };
    }
  }
}

/** Says why a pod that answers does not serve the newest serial. */
function whyBehind(status: ConfigStatus | null, newest: number): string {
  if (status?.rejected?.error !== undefined) return `it rejects the snapshot: ${status.rejected.error}`;
  return `it serves serial ${status?.serial ?? "none"}, and ${newest} is published; its volume may not be refreshed`;
}
