/**
 * Writes statuses that changed in meaning, a few at a time and beside everything else: 10,000 writes hold up no edit.
 * Of one object only the newest status waits; a failed write is tried again with back-off.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import type { Kind } from "../api/kinds.ts";
import { conditionOf, type ObjectStatus } from "../plan/conditions.ts";
import { reference } from "../plan/objects.ts";
import { isStatus, type KubeApi } from "./client.ts";
import { type CustomObjects, customPath } from "./custom-objects.ts";
import { NotLeading } from "./lease.ts";
import { statusChange } from "./status-change.ts";

const WRITERS = 6;
/** How far a rollout has come is told this long after the last write, and then not again for a minute. */
const FIRST_COUNT_MS = 5000;
const NEXT_COUNT_MS = 60_000;
const LONGEST_WAIT_MS = 30_000;

export interface StatusWriterOptions {
  readonly api: KubeApi;
  readonly objects: CustomObjects;
  readonly permit: () => void;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** Told after a write that changed what a person must know. */
  readonly written: (status: ObjectStatus, before: unknown) => void;
  readonly failed: (error: unknown) => void;
}

interface History {
  writtenAt: number;
  counted: boolean;
  failures: number;
  /** Not before this moment. */
  notBefore: number;
}

export class StatusWriter {
  readonly #options: StatusWriterOptions;
  #wanted = new Map<string, ObjectStatus>();
  readonly #queue = new Set<string>();
  /** By uid. */
  #histories = new Map<string, History>();
  /** Keys that come back to the queue at a later moment. */
  readonly #delayed = new Set<string>();
  #wake: (() => void)[] = [];

  constructor(options: StatusWriterOptions) {
    this.#options = options;
  }

  /** What every object's status shall be from now on. */
  want(statuses: readonly ObjectStatus[]): void {
    const histories = new Map<string, History>();
    this.#wanted = new Map();
    for (const status of statuses) {
      const key = `${status.object.kind} ${reference(status.object)}`;
      this.#wanted.set(key, status);
      const history = this.#histories.get(status.object.uid);
      if (history !== undefined) histories.set(status.object.uid, history);
      if (this.#change(status).kind !== "none") this.#queue.add(key);
    }
    this.#histories = histories;
    this.#ring();
  }

  /** The object's status changed in the API server: it may have been tampered with. */
  check(kind: Kind, key: string): void {
    const name = `${kind} ${key}`;
    const status = this.#wanted.get(name);
    if (status === undefined || this.#change(status).kind === "none") return;
    this.#queue.add(name);
    this.#ring();
  }

  async run(signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => this.#ring(), { once: true });
    await Promise.all(Array.from({ length: WRITERS }, () => this.#work(signal)));
  }

  async #work(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const [key] = this.#queue;
      if (key === undefined) {
        await new Promise<void>((resolve) => this.#wake.push(resolve));
        continue;
      }
      this.#queue.delete(key);
      const status = this.#wanted.get(key);
      if (status !== undefined) await this.#write(key, status, signal);
    }
  }

  async #write(key: string, status: ObjectStatus, signal: AbortSignal): Promise<void> {
    const { api, objects, permit, now, written, failed } = this.#options;
    const { kind, namespace, name, uid } = status.object;
    const history = this.#history(uid);
    const change = this.#change(status);
    if (change.kind === "none") return;
    const due = change.kind === "count" ? this.#countDue(history) : history.notBefore;
    if (due > now()) {
      this.#later(key, due - now(), signal);
      return;
    }
    const before = objects.get(kind, reference(status.object))?.status;
    try {
      const object = await api.call({
        method: "PATCH",
        path: `${customPath(kind, namespace, name)}/status`,
        patch: "merge",
        // The uid: an object made anew does not inherit a status.
        body: { metadata: { uid }, status: change.status },
        permit,
        signal,
      });
      history.writtenAt = now();
      history.counted = change.kind === "count";
      history.failures = 0;
      objects.accept(kind, namespace, object);
      written(status, before);
    } catch (error) {
      if (signal.aborted || error instanceof NotLeading || isStatus(error, 404, 409)) return;
      failed(error);
      history.failures += 1;
      history.notBefore = now() + Math.min(LONGEST_WAIT_MS, 250 * 2 ** history.failures);
      this.#later(key, history.notBefore - now(), signal);
    }
  }

  #change(status: ObjectStatus) {
    const actual = this.#options.objects.get(status.object.kind, reference(status.object));
    // Gone, or made anew since it was compiled.
    if (actual === undefined || actual.declared.uid !== status.object.uid) return { kind: "none" as const };
    const seconds = new Date(this.#options.now()).toISOString().replace(/\.\d+Z$/, "Z");
    return statusChange(status, actual.status, seconds);
  }

  #history(uid: string): History {
    const known = this.#histories.get(uid);
    if (known !== undefined) return known;
    const history: History = { writtenAt: 0, counted: false, failures: 0, notBefore: 0 };
    this.#histories.set(uid, history);
    return history;
  }

  #countDue({ writtenAt, counted, notBefore }: History): number {
    return Math.max(notBefore, writtenAt + (counted ? NEXT_COUNT_MS : FIRST_COUNT_MS));
  }

  #later(key: string, waitMs: number, signal: AbortSignal): void {
    if (this.#delayed.has(key)) return;
    this.#delayed.add(key);
    void sleep(waitMs, undefined, { signal, ref: false }).then(
      () => {
        this.#delayed.delete(key);
        this.#queue.add(key);
        this.#ring();
      },
      () => {},
    );
  }

  #ring(): void {
    const waiting = this.#wake;
    this.#wake = [];
    for (const wake of waiting) wake();
  }
}

const toldSchema = z.object({ conditions: z.array(z.object({ reason: z.string(), message: z.string() })) });

/** Whether a status as it stood in the API server says the same already. */
export function isToldBy(status: unknown, { reason, message }: { reason: string; message: string }): boolean {
  const conditions = toldSchema.safeParse(status).data?.conditions ?? [];
  return conditions.some((condition) => condition.reason === reason && condition.message === message);
}

/** What a person has to act on in this status; null: nothing. */
export function actionNeeded(
  status: ObjectStatus,
): { readonly reason: string; readonly message: string } | null {
  const stalled = conditionOf(status, "Stalled");
  if (stalled !== undefined) return stalled;
  const programmed = conditionOf(status, "Programmed");
  const acute = ["Rejected", "TooLarge", "PublishFailed"];
  return programmed !== undefined && acute.includes(programmed.reason) ? programmed : null;
}
