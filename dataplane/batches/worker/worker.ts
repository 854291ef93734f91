/**
 * A data plane's worker on batches: claims items as places become free, runs them, and looks after the batches'
 * beginnings and ends. Every pod has one; all of them do the same, and any of them may be killed at any moment.
 */
import type { Account } from "../../billing/ledger/accounts.ts";
import type { UsageRow } from "../../billing/ledger/usage-row.ts";
import { findRoute } from "../../config/find-route.ts";
import { ApiError } from "../../lib/api-error.ts";
import { inBackground } from "../../lib/in-background.ts";
import { Recurring } from "../../lib/recurring.ts";
import { within } from "../../lib/within.ts";
import { nowAndThen } from "../../store/once-there.ts";
import {
  claimItems,
  batchesInLine,
  mayBegin,
  readBodyOf,
  SMALL_BODY_BYTES,
  type ClaimedItem,
} from "./claim.ts";
import type { BatchContext } from "../context.ts";
import { expireOverdue } from "../expire.ts";
import { closeFinished, workOnOne } from "../finish.ts";
import { Headroom, LOOK_MS, type LiveLoad } from "./headroom.ts";
import { measureQueue } from "./queue-depth.ts";
import { BatchBackOff } from "../back-off.ts";
import { sweepBatches } from "../retention.ts";
import { ItemLease, NOT_BEGUN } from "./item-lease.ts";
import { notBegun } from "./outcome.ts";
import { LimitWaits } from "./limit-waits.ts";
import { SUSPECT_LOSSES } from "./losses.ts";
import { runItem, type ItemEnd, type RunServices } from "./run.ts";
import { Settler } from "./settle.ts";
import { reachedBatchStep } from "../steps.ts";
import { BatchScheduler, type SchedulerLimits } from "./scheduler.ts";
import { Turns } from "../turns.ts";
import { beat, handBack, leave, takeFromDead, takeUnknown } from "./workers.ts";

/** Milliseconds. */
export interface WorkerRhythm {
  readonly beatMs: number;
  /** A worker that was silent for this long counts as dead: others run its items (rule 4.4). */
  readonly leaseMs: number;
  /** Workers look for work this often even when nobody wakes them. */
  readonly pollMs: number;
  readonly sweepMs: number;
}

const usualRhythm: WorkerRhythm = { beatMs: 5_000, leaseMs: 30_000, pollMs: 1_000, sweepMs: 30_000 };
const usualLimits: SchedulerLimits = { places: 64, placesOfOne: 56 };
/** Between two looks for limits that were raised. */
const LIMITS_LOOK_MS = 1_000;
/** Places that become free within this time are filled together. */
const GATHER_MS = 5;
/** How long a stopping worker waits for Postgres to store that it leaves. */
const LEAVE_MS = 5_000;

export interface WorkerOptions {
  readonly context: BatchContext;
  readonly run: Omit<RunServices, "log" | "succeededSince">;
  /** `Charges.ledgerCharged`. */
  readonly charged: (rows: readonly UsageRow[], accounts: readonly Account[]) => void;
  /** True while live requests overload this process, or it has no configuration yet. */
  readonly busy?: () => boolean;
  /** How much time live requests have left this process since the last call. */
  readonly liveLoad?: () => LiveLoad;
  readonly rhythm?: Partial<WorkerRhythm>;
  readonly limits?: Partial<SchedulerLimits>;
}

/** An item's route. Organizations may have routes of their own under one name, or upstreams of a route dedicated to them. */
interface RouteOfItem {
  readonly name: string;
  /** True when the route or one of its upstreams serves only the organization, or only its namespace. */
  readonly isOwn: boolean;
}

export class BatchWorker {
  readonly #engine: BatchContext;
  readonly #options: WorkerOptions;
  readonly #run: RunServices;
  readonly #scheduler: BatchScheduler;
  readonly #headroom: Headroom;
  readonly #settler: Settler;
  readonly #backOff = new BatchBackOff();
  readonly #sweeping = new BatchBackOff();
  readonly #turns = new Turns();
  readonly #limitWaits = new LimitWaits();
  readonly #heartbeat: Recurring;
  readonly #loops: Recurring[];
  readonly #filling: WakingLoop;
  readonly #ending: WakingLoop;
  readonly #beatMs: number;
  #running = new Set<Promise<void>>();
  /** Claims of items that run here or have yet to be stored. */
  readonly #claims = new Set<string>();
  /** Running items that may end this process (losses.ts). */
  #suspects = 0;
  /** When this worker last looked for claims of its own that it does not know of, as `performance.now()`. */
  #lookedAt = Number.NEGATIVE_INFINITY;
  /** When it last looked for limits that were raised, as `performance.now()`. */
  #lookedAtLimits = Number.NEGATIVE_INFINITY;

  constructor(options: WorkerOptions) {
    const { context } = options;
    this.#engine = context;
    this.#options = options;
    const rhythm = { ...usualRhythm, ...options.rhythm };
    const limits = { ...usualLimits, ...options.limits };
    this.#beatMs = rhythm.beatMs;
    this.#scheduler = new BatchScheduler(limits);
    this.#headroom = new Headroom(limits.places, options.liveLoad ?? (() => "none"));
    const succeededSince: RunServices["succeededSince"] = (item, since) =>
      this.#scheduler.succeededSince(this.#routeOf(item)?.name ?? null, since);
    this.#run = { ...options.run, log: context.log, succeededSince };
    this.#settler = new Settler(context, options.charged, () => this.#ending.wake());
    const { log } = context;
    this.#filling = new WakingLoop(context, "batch items", rhythm.pollMs, () => this.#fill());
    this.#ending = new WakingLoop(context, "batch ends", rhythm.pollMs, () => this.#tend());
    this.#heartbeat = new Recurring(log, "batch heartbeat", rhythm.beatMs, () => beat(context));
    this.#loops = [
      new Recurring(log, "batch leases", rhythm.beatMs, () => this.#takeFromDead(rhythm.leaseMs)),
      new Recurring(log, "batch sweep", rhythm.sweepMs, () => sweepBatches(context, this.#sweeping)),
      new Recurring(log, "batch queue", rhythm.sweepMs / 2, () => measureQueue(context)),
    ];
  }

  async start(): Promise<void> {
    // A worker without a heartbeat is given no items, so the first one is sent now.
    await beat(this.#engine).catch(() => undefined);
    for (const loop of [this.#heartbeat, ...this.#loops]) loop.start();
    this.#filling.start();
    this.#ending.start();
  }

  /** Looks for work at once. */
  wake(): void {
    this.#filling.wake();
    this.#ending.wake();
  }

  /**
   * Claims nothing more; waits until running items are stored, at most `timeoutMs` and no longer once `hurry` is aborted. The
   * rest runs elsewhere. Does not wait for a Postgres that does not answer.
   * @returns whether all of them were stored.
   */
  async stop(timeoutMs: number, hurry?: AbortSignal): Promise<boolean> {
    const ended = async () => {
      await Promise.all([this.#filling.stop(), this.#ending.stop()]);
      await Promise.all(this.#running);
    };
    const isEnded = await within(timeoutMs, ended, hurry);
    // Awaited only after `leave`: a sweep may take longer than there is time.
    const others = Promise.all(this.#loops.map((loop) => loop.stop()));
    await within(LEAVE_MS, async () => {
      await this.#heartbeat.stop();
      await handBack(this.#engine).catch(() => undefined);
      // If this fails, the others take this worker for dead later.
      await leave(this.#engine).catch(() => undefined);
      await others;
    });
    return isEnded;
  }

  async #fill(): Promise<NextLook> {
    const { pool, clock, workerId } = this.#engine;
    await this.#takeUnknown();
    this.#scheduler.places = this.#headroom.places(performance.now(), this.#scheduler.running.size);
    if (this.#options.busy?.() === true) return null;
    if (this.#scheduler.free <= 0) return this.#whenFull();
    await this.#wakeLimited();
    const now = clock.now();
    const asked = this.#scheduler.askedRooms(now);
    const blocked = {
      models: this.#scheduler.blockedModels(now),
      asked: asked.filter(({ room }) => room <= 0),
      batches: this.#scheduler.blockedBatches(now),
      suspects: this.#suspects > 0,
    };
    const shares = this.#scheduler.share(await batchesInLine(pool, now, blocked), now);
    if (shares.size === 0) return null;
    const rooms = {
      modelRooms: this.#scheduler.modelRooms(now),
      askedRooms: asked.filter(({ room }) => room > 0),
    };
    const items = await claimItems(pool, workerId, now, { shares, blocked, ...rooms });
    if (items.length > 0) reachedBatchStep("claim.done");
    for (const item of items) this.#start(item);
    if (items.length === 0) return null;
    return this.#scheduler.free > 0 ? GATHER_MS : this.#whenFull();
  }

  /** An item that ends wakes the worker. Items may take minutes, so the places that live requests held back do not wait for one. */
  #whenFull(): NextLook {
    return this.#headroom.isShort ? LOOK_MS : null;
  }

  /** Called between two claims, as `takeUnknown` allows none in progress. */
  async #takeUnknown(): Promise<void> {
    const now = performance.now();
    if (now - this.#lookedAt < this.#beatMs) return;
    const items = await takeUnknown(this.#engine, [...this.#claims]);
    this.#lookedAt = now;
    if (items > 0)
      this.#engine.log.info({ items }, "took back batch items of claims that were never answered");
  }

  async #wakeLimited(): Promise<void> {
    const now = performance.now();
    if (now - this.#lookedAtLimits < LIMITS_LOOK_MS) return;
    this.#lookedAtLimits = now;
    const { pool, clock } = this.#engine;
    for (const batchId of await this.#limitWaits.wake(pool, clock.now()))
      this.#scheduler.limitChanged(batchId);
  }

  #start(item: ClaimedItem): void {
    this.#scheduler.begin(item);
    this.#headroom.began();
    this.#claims.add(item.claim);
    const isSuspect = item.losses >= SUSPECT_LOSSES;
    if (isSuspect) this.#suspects += 1;
    const running = this.#work(item).finally(() => {
      if (isSuspect) this.#suspects -= 1;
      this.#scheduler.end(item);
      this.#claims.delete(item.claim);
      this.#running.delete(running);
      this.#filling.wake(GATHER_MS);
    });
    this.#running.add(running);
    inBackground(running, this.#engine.log, "a batch item");
  }

  /** Never fails. */
  async #work(item: ClaimedItem): Promise<void> {
    // Small bodies came with their items and are not counted: all of them together are no more than one large body.
    const { pool, bodies, clock } = this.#engine;
    const lease = new ItemLease(bodies, item.organizationId, () => mayBegin(pool, item, clock.now()));
    let beganAt = clock.now();
    let end: ItemEnd;
    try {
      if (item.bodyBytes > SMALL_BODY_BYTES) await lease.take(item.bodyBytes);
      beganAt = clock.now();
      const body = item.body ?? (await readBodyOf(pool, item));
      // The item was taken from this worker.
      if (body === null) return;
      end = await runItem(this.#run, item, body, lease);
    } catch (error) {
      if (error instanceof ApiError && error.cause === NOT_BEGUN) end = notBegun;
      else {
        this.#engine.log.warn(
          { err: error, request_id: item.requestId },
          "the body of a batch item could not be read",
        );
        end = { kind: "again", waitMs: 1_000, because: "stores" };
      }
    } finally {
      lease.release();
    }
    reachedBatchStep("item.answered");
    this.#learn(item, end, beganAt);
    const answer = bodies.lease(item.organizationId);
    if (end.kind === "over") answer.count(end.line.length);
    await this.#settler.store(item, end);
    answer.release();
    this.#noteLimit(item, end);
  }

  #learn(item: ClaimedItem, end: ItemEnd, beganAt: number): void {
    const now = this.#engine.clock.now();
    if (end.kind === "over") {
      if (end.state === "succeeded")
        this.#scheduler.succeeded(item, beganAt, this.#routeOf(item)?.name ?? null);
      else if (end.answered) this.#scheduler.answered(item);
    } else if (end.kind === "again" && end.because === "model")
      this.#scheduler.modelRefused(item, now, end.waitMs, this.#routeOf(item)?.isOwn === true);
    else if (end.kind === "again" && end.because === "credit")
      this.#scheduler.creditRefused(item, now, end.waitMs);
    else if (end.kind === "again" && end.because === "limit")
      this.#scheduler.limitRefused(item, now, end.waitMs);
    else if (end.kind === "again" && end.because === "stores")
      this.#scheduler.storesAway(item, now, end.waitMs);
    else if (end.kind === "fault" && end.restMs !== null) this.#scheduler.unanswered(item, now, end.restMs);
  }

  #noteLimit({ batchId, organizationId }: ClaimedItem, end: ItemEnd): void {
    if (end.kind === "over" || end.keyEpoch === undefined) return;
    const until = this.#engine.clock.now() + end.waitMs;
    this.#limitWaits.add({ batchId, organizationId, keyEpoch: end.keyEpoch, until });
  }

  /** The route that serves the item; null: it is gone. */
  #routeOf({ organizationId, model }: ClaimedItem): RouteOfItem | null {
    const user = { organizationId, limits: [] };
    const route = model === null ? undefined : findRoute(this.#run.snapshot(), user, model);
    if (route === undefined) return null;
    const isDedicated = route.upstreams.some(({ dedicatedTo }) => dedicatedTo !== null);
    return {
      name: [route.source.uid, route.model, isDedicated ? organizationId : ""].join("\n"),
      isOwn: isDedicated || route.servesNamespace !== undefined,
    };
  }

  async #takeFromDead(leaseMs: number): Promise<void> {
    const taken = await takeFromDead(this.#engine, leaseMs);
    if (taken === 0) return;
    this.#engine.log.info({ items: taken }, "took batch items from workers that are gone");
    this.wake();
  }

  async #tend(): Promise<NextLook> {
    await expireOverdue(this.#engine);
    await closeFinished(this.#engine);
    return (await workOnOne(this.#engine, this.#backOff, this.#turns)) ? GATHER_MS : null;
  }
}

/** Milliseconds until a task that nobody wakes runs again; null: as usual. */
type NextLook = number | null;

/** Runs its task when woken, and every `pollMs`, or when the task says, without. Never twice at the same time. */
class WakingLoop {
  /** While a store is away every run fails. */
  readonly #failed: (error: Error) => void;
  readonly #pollMs: number;
  readonly #task: () => Promise<NextLook>;
  #timer: NodeJS.Timeout | undefined;
  #dueAt = Number.POSITIVE_INFINITY;
  #woken = false;
  #stopped = true;
  #running: Promise<void> | null = null;

  constructor(context: BatchContext, name: string, pollMs: number, task: () => Promise<NextLook>) {
    this.#failed = nowAndThen((error) =>
      context.log.warn({ err: error, task: name }, "work on batches failed; it is tried again"),
    );
    this.#pollMs = pollMs;
    this.#task = task;
  }

  start(): void {
    this.#stopped = false;
    this.wake();
  }

  wake(delayMs = 0): void {
    if (this.#stopped) return;
    if (this.#running !== null) this.#woken = true;
    else this.#schedule(delayMs);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#running;
  }

  #schedule(delayMs: number): void {
    const dueAt = performance.now() + delayMs;
    if (this.#stopped || dueAt >= this.#dueAt) return;
    clearTimeout(this.#timer);
    this.#dueAt = dueAt;
    this.#timer = setTimeout(() => {
      this.#dueAt = Number.POSITIVE_INFINITY;
      this.#woken = false;
      this.#running = this.#once();
    }, delayMs);
  }

  async #once(): Promise<void> {
    let next: NextLook = null;
    try {
      next = await this.#task();
    } catch (error) {
      this.#woken = false;
      this.#failed(error as Error);
    }
    this.#running = null;
    this.#schedule(this.#woken ? GATHER_MS : (next ?? this.#pollMs));
  }
}
