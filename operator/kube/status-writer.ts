/**
 * Writes statuses that changed in meaning, a few at a time and apart from the rounds: 10,000 writes hold up no edit.
 * Of each object only the newest status waits; a failed write is tried again with back-off. Statuses that differ only
 * in a number of pods wait until the data plane is at rest, and are then written one by one
 * (docs/decisions/pods-in-statuses.md).
 */
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import type { Kind } from "../api/kinds.ts";
import { conditionOf, type ObjectStatus } from "../plan/conditions.ts";
import { type Declared, reference } from "../plan/objects.ts";
import { oncePer } from "../plan/once-per.ts";
import { isStatus, type KubeApi, KubeError, retryAfterMs } from "./client.ts";
import { type CustomObject, type CustomObjects, customPath } from "./custom-objects.ts";
import { isDoneWithin } from "./in-parallel.ts";
import { NotLeading } from "./lease.ts";
import { NamespaceTurns } from "./namespace-turns.ts";
import { changeKind, statusAt, statusChange } from "./status-change.ts";
import { TurnQueue } from "./turn-queue.ts";

const WRITERS = 6;
/** How long a writer waits for a write. A slower one (a webhook of the namespace may cause it) goes on without it. */
const LATE_MS = 1000;
const MOST_LATE = 16;
/** Writers for namespaces where a write took longer than `LATE_MS`. */
const SLOW_WRITERS = 6;
/** The progress of a rollout is written this long after the last write, then at most once a minute. */
const FIRST_COUNT_MS = 5000;
const NEXT_COUNT_MS = 60_000;
/** When the number of pods has not changed for this long, no rollout is under way. */
const REST_MS = 15_000;
/** Pause between two statuses that differ only in a number of pods: 10,000 take eight minutes. */
const REFRESH_PAUSE_MS = 50;
/** How often outdated numbers are looked for when there were none. */
const IDLE_MS = 2000;
const LONGEST_WAIT_MS = 30_000;
/** Pause before a status is put right a second time, then twice as long, and so on. */
const FIRST_CONTEST_MS = 1000;
/** A status that stood this long is no longer contested. */
const PEACE_MS = 60_000;
/** How often in a row a status is put right before `contested` reports that somebody else writes it. */
const TOLD_CONTESTS = 3;

export interface StatusWriterOptions {
  readonly api: KubeApi;
  readonly objects: CustomObjects;
  readonly permit: () => void;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** Called after each write; `before` is the status that it replaced. */
  readonly written: (status: ObjectStatus, before: unknown) => void;
  /** Called for a status that somebody else overwrites again and again, once each time that this begins. */
  readonly contested: (status: ObjectStatus) => void;
  /**
   * Called once for each generation of an object whose status the API server refuses, with its words: an object that was stored
   * before its definition was tightened may be so wrong that no rule can be judged, and then nothing may be written to it.
   */
  readonly refused: (status: ObjectStatus, words: string) => void;
  readonly failed: (error: unknown) => void;
}

/**
 * The status that an object shall have, and how writing went. Moments are monotonic milliseconds: a clock that is
 * set right must not hold up statuses.
 */
interface Wanted {
  status: ObjectStatus;
  writtenAt: number;
  counted: boolean;
  failures: number;
  /** Not before this moment. */
  notBefore: number;
  /** The last generation whose status the API server refused; null: it refused none. */
  refused: number | null;
  /** What was written last; null: nothing yet. */
  last: ObjectStatus | null;
  /** How often in a row the same status was written again because somebody else had overwritten it. */
  contests: number;
}

const nothingWritten = {
  writtenAt: -Infinity,
  counted: false,
  failures: 0,
  notBefore: -Infinity,
  refused: null,
  last: null,
  contests: 0,
} as const;

/** Returns when the next status that only shows the progress of a rollout may be written. */
const countDue = ({ writtenAt, counted, notBefore }: Wanted): number =>
  Math.max(notBefore, writtenAt + (counted ? NEXT_COUNT_MS : FIRST_COUNT_MS));

/**
 * Returns when an overwritten status may be put right: the first time at once, then with growing pauses, as two releases
 * that watch one namespace would otherwise overwrite each other as fast as the API server can write. At most half of the
 * minute of rule 6.6.
 */
const contestDue = ({ writtenAt, contests }: Wanted): number =>
  contests === 0 ? -Infinity : writtenAt + Math.min(LONGEST_WAIT_MS, FIRST_CONTEST_MS * 2 ** (contests - 1));

const saysTheSame = (one: ObjectStatus, { observedGeneration, conditions, facts }: ObjectStatus): boolean =>
  changeKind(one, { observedGeneration, conditions, ...facts }) === "none";

const keyOf = oncePer((object: Declared): string => `${object.kind} ${reference(object)}`);

const namespaceIn = (key: string): string => key.slice(key.indexOf(" ") + 1, key.indexOf("/"));

export class StatusWriter {
  readonly #options: StatusWriterOptions;
  readonly #wanted = new Map<string, Wanted>();
  readonly #queue = new TurnQueue();
  /** Keys in namespaces where writing takes long, so that they delay no others. */
  readonly #slowQueue = new TurnQueue();
  readonly #turns = new NamespaceTurns();
  /** Writes that no writer waits for. */
  readonly #late = new Set<Promise<unknown>>();
  /** Statuses being written now, by key; true: it may have to be written again afterwards. */
  readonly #underWay = new Map<string, boolean>();
  /** Served objects whose status names another number of pods than there are. */
  readonly #outdated = new Set<string>();
  #podsMovedAt = performance.now();
  /** Keys that are looked at again, and when. */
  readonly #delayed = new Map<string, { readonly at: number; readonly timer: NodeJS.Timeout }>();
  #wake: (() => void)[] = [];

  constructor(options: StatusWriterOptions) {
    this.#options = options;
  }

  /** Sets the status that every object shall have from now on. */
  want(statuses: readonly ObjectStatus[]): void {
    for (const status of statuses) {
      const key = keyOf(status.object);
      const known = this.#wanted.get(key);
      if (known?.status.object.uid === status.object.uid) known.status = status;
      else this.#wanted.set(key, { status, ...nothingWritten });
      this.#enqueue(key, status);
    }
    if (this.#wanted.size > statuses.length) {
      const keys = new Set(statuses.map(({ object }) => keyOf(object)));
      for (const key of this.#wanted.keys()) if (!keys.has(key)) this.#wanted.delete(key);
    }
    this.#ring();
  }

  /** Notes that the number of ready pods changed: a rollout may be under way. */
  podsMoved(): void {
    this.#podsMovedAt = performance.now();
  }

  /** Looks at an object whose status changed in the API server: it may have been tampered with. */
  check(kind: Kind, key: string): void {
    const name = `${kind} ${key}`;
    const wanted = this.#wanted.get(name);
    if (wanted === undefined) return;
    this.#enqueue(name, wanted.status);
    this.#ring();
  }

  async run(signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => this.#ring(), { once: true });
    const serve = async (key: string) => await this.#serve(key, signal);
    const serveSlowly = async (key: string) => await this.#serveSlowly(key, signal);
    await Promise.all([
      ...Array.from({ length: WRITERS }, () => this.#work(this.#queue, signal, serve)),
      ...Array.from({ length: SLOW_WRITERS }, () => this.#work(this.#slowQueue, signal, serveSlowly)),
      this.#refresh(signal),
    ]);
    await Promise.all(this.#late);
  }

  #enqueue(key: string, status: ObjectStatus): void {
    // Until a write is answered, the object still shows its old status.
    if (this.#underWay.has(key)) {
      this.#underWay.set(key, true);
      return;
    }
    const actual = this.#actual(status);
    if (actual === undefined) return;
    const present = statusAt(status, actual.status, this.#options.now());
    const kind = changeKind(present.status, actual.status);
    if (kind === "refresh") this.#outdated.add(key);
    // A status that changes with time is queued too: `#write` sets the timer for it.
    else if (kind !== "none" || present.inMs !== null) this.#queue.add(namespaceIn(key), key);
  }

  async #work(queue: TurnQueue, signal: AbortSignal, act: (key: string) => Promise<void>): Promise<void> {
    while (!signal.aborted) {
      const key = queue.next();
      if (key === undefined) await this.#rung();
      else await act(key);
    }
  }

  async #serve(key: string, signal: AbortSignal): Promise<void> {
    const namespace = namespaceIn(key);
    if (this.#turns.isSlow(namespace)) {
      this.#slowQueue.add(namespace, key);
      this.#ring();
    } else await this.#waitAWhile(namespace, this.#bringUpToDate(key, signal));
  }

  async #serveSlowly(key: string, signal: AbortSignal): Promise<void> {
    const startedAt = performance.now();
    const isWritten = await this.#bringUpToDate(key, signal);
    if (isWritten && performance.now() - startedAt < LATE_MS) this.#turns.wasQuick(namespaceIn(key));
  }

  async #rung(): Promise<void> {
    await new Promise<void>((resolve) => this.#wake.push(resolve));
  }

  async #waitAWhile(namespace: string, writing: Promise<boolean>): Promise<void> {
    if (await isDoneWithin(LATE_MS, writing)) return;
    this.#turns.tookLong(namespace);
    if (this.#late.size >= MOST_LATE) {
      await writing;
      return;
    }
    const late: Promise<unknown> = writing.catch(this.#options.failed).finally(() => this.#late.delete(late));
    this.#late.add(late);
  }

  /** @returns whether it was written. */
  async #bringUpToDate(key: string, signal: AbortSignal): Promise<boolean> {
    const wanted = this.#wanted.get(key);
    if (wanted === undefined) return false;
    // A key may be both queued and outdated: one write at a time.
    if (this.#underWay.has(key)) {
      this.#underWay.set(key, true);
      return false;
    }
    this.#underWay.set(key, false);
    const { last } = wanted;
    await this.#write(key, wanted, signal);
    const again = this.#underWay.get(key) === true;
    this.#underWay.delete(key);
    const present = this.#wanted.get(key);
    if (again && present !== undefined) {
      this.#enqueue(key, present.status);
      this.#ring();
    }
    return wanted.last !== last;
  }

  /** Brings outdated numbers of pods up to date while the data plane is at rest. */
  async #refresh(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const [key] = this.#outdated;
      const wait = key === undefined ? IDLE_MS : Math.max(REFRESH_PAUSE_MS, this.#restMs());
      await sleep(wait, undefined, { signal, ref: false }).catch(() => {});
      if (key === undefined || this.#restMs() > 0 || signal.aborted) continue;
      this.#outdated.delete(key);
      await this.#serve(key, signal);
    }
  }

  /** Milliseconds until the data plane is at rest; 0 or less: it is. */
  #restMs(): number {
    return this.#podsMovedAt + REST_MS - performance.now();
  }

  async #write(key: string, wanted: Wanted, signal: AbortSignal): Promise<void> {
    const { api, objects, permit, written, contested, failed } = this.#options;
    const { status } = wanted;
    const { kind, namespace, name, uid } = status.object;
    const actual = this.#actual(status);
    if (actual === undefined) return;
    const seconds = new Date(this.#options.now()).toISOString().replace(/\.\d+Z$/, "Z");
    const before = actual.status;
    const present = statusAt(status, before, this.#options.now());
    if (present.inMs !== null) this.#later(key, present.inMs);
    const change = statusChange(present.status, before, seconds);
    if (change.kind === "none") return;
    if (change.kind === "refresh" && this.#restMs() > 0) {
      this.#outdated.add(key);
      return;
    }
    const isContest = wanted.last !== null && saysTheSame(present.status, wanted.last);
    if (!isContest || performance.now() - wanted.writtenAt > PEACE_MS) wanted.contests = 0;
    const due = change.kind === "count" ? countDue(wanted) : wanted.notBefore;
    const untilDue = Math.max(due, contestDue(wanted)) - performance.now();
    if (untilDue > 0) {
      this.#later(key, untilDue);
      return;
    }
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
      wanted.writtenAt = performance.now();
      wanted.counted = change.kind === "count";
      wanted.failures = 0;
      wanted.last = present.status;
      if (isContest) wanted.contests += 1;
      if (wanted.contests === TOLD_CONTESTS) contested(status);
      objects.accept(kind, object);
      written(status, before);
    } catch (error) {
      if (signal.aborted) return;
      // 404, 409: the object is gone or was made anew, as the watch soon shows; what is still wanted is tried again.
      if (!(error instanceof NotLeading) && !isStatus(error, 404, 409)) failed(error);
      if (error instanceof KubeError && error.status === 422)
        this.#tellRefused(wanted, status, error.message);
      wanted.failures += 1;
      const wait = Math.max(retryAfterMs(error), Math.min(LONGEST_WAIT_MS, 250 * 2 ** wanted.failures));
      wanted.notBefore = performance.now() + wait;
      this.#later(key, wait);
    }
  }

  #tellRefused(wanted: Wanted, status: ObjectStatus, words: string): void {
    if (wanted.refused === status.observedGeneration) return;
    wanted.refused = status.observedGeneration;
    this.#options.refused(status, words);
  }

  /** Returns the object as it was last observed; undefined: it is gone, or was made anew since it was compiled. */
  #actual({ object }: ObjectStatus): CustomObject | undefined {
    const actual = this.#options.objects.get(object.kind, reference(object));
    return actual?.declared.uid === object.uid ? actual : undefined;
  }

  /** Looks at the key again after `waitMs`. Of several moments the earliest counts: what the later ones are for is found then. */
  #later(key: string, waitMs: number): void {
    const at = performance.now() + waitMs;
    const known = this.#delayed.get(key);
    if (known !== undefined && known.at <= at) return;
    clearTimeout(known?.timer);
    const timer = setTimeout(() => {
      this.#delayed.delete(key);
      const wanted = this.#wanted.get(key);
      if (wanted !== undefined) this.#enqueue(key, wanted.status);
      this.#ring();
    }, waitMs).unref();
    this.#delayed.set(key, { at, timer });
  }

  #ring(): void {
    const waiting = this.#wake;
    this.#wake = [];
    for (const wake of waiting) wake();
  }
}

const toldSchema = z.object({ conditions: z.array(z.object({ reason: z.string(), message: z.string() })) });

/** Whether a condition of this status, as the API server had it, has the same reason and message. */
export function isToldBy(status: unknown, { reason, message }: { reason: string; message: string }): boolean {
  const conditions = toldSchema.safeParse(status).data?.conditions ?? [];
  return conditions.some((condition) => condition.reason === reason && condition.message === message);
}

/** Returns what a person has to act on in this status; null: nothing. */
export function actionNeeded(
  status: ObjectStatus,
): { readonly reason: string; readonly message: string } | null {
  const stalled = conditionOf(status, "Stalled");
  if (stalled !== undefined) return stalled;
  const programmed = conditionOf(status, "Programmed");
  const acute = ["Rejected", "PublishFailed"];
  return programmed !== undefined && acute.includes(programmed.reason) ? programmed : null;
}
