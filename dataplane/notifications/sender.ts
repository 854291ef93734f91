/**
 * Sends what has crossed a threshold (rule 9.8). Every pod has one and all do the same: what one has taken the others leave
 * alone for a minute, and what one has not finished when it dies is taken by another, under the same id.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import type { Snapshot } from "../config/snapshot.ts";
import { DAY_MS, HOUR_MS, type Clock } from "../lib/clock.ts";
import { Recurring } from "../lib/recurring.ts";
import { isStoreAway } from "../store/store-away.ts";
import { metrics } from "../telemetry/metrics.ts";
import {
  claimDeliveries,
  endDelivery,
  forgetMessages,
  postponeDelivery,
  type DueDelivery,
  type DeliveryFailure,
} from "./deliveries.ts";
import { messageBody, messageHeaders, signerOf } from "./message.ts";
import { sendMessage, type SendDeps } from "./send.ts";

/** The first try comes within 10 s of the charge. */
const LOOK_MS = 1_000;
const FORGET_MS = HOUR_MS;
/** Tries of this process at once, and of them those of one organization. A namespace gets no more while it has as many as are free. */
const PLACES = 128;
const OF_ONE = 8;
/** Of the free places a namespace gets this part at once. */
const NAMESPACE_PART = 8;
const GIVEN_UP_MS = DAY_MS;
const FIRST_PAUSE_MS = 10_000;
const LONGEST_PAUSE_MS = 2 * HOUR_MS;
/** What is wrong here may be mended at any time, and costs the receiver nothing. */
const OWN_PAUSE_MS = 60_000;
/** Useless secrets that are remembered as told. */
const MOST_TOLD = 1_000;
/** Before it is tried again to note what became of a try, while Postgres is away. */
const NOTE_PAUSE_MS = 250;
/** A Postgres that is away for longer costs a receiver a message that it has. */
const NOTED_WITHIN_MS = HOUR_MS;

/** After so many tries: 10 s, 30 s, 90 s … 2 h, each up to half as long again. `random`: 0 to 1. */
export const pauseAfter = (tries: number, random: number): number =>
  Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 3 ** Math.min(tries - 1, 10)) * (1 + random / 2);

export interface SenderOptions extends SendDeps {
  readonly pool: DatabasePool;
  readonly clock: Clock;
  readonly log: Logger;
  /** What is served now; null before the first one. */
  readonly snapshot: () => Snapshot | null;
  readonly random: () => number;
  /** Milliseconds between two looks; `LOOK_MS` unless a test has less patience. */
  readonly lookMs?: number;
}

export class NotificationSender {
  readonly #options: SenderOptions;
  readonly #loops: readonly Recurring[];
  /** What is being tried, by its message and receiver. */
  readonly #trying = new Map<string, DueDelivery>();
  readonly #running = new Set<Promise<void>>();
  /** Secrets that sign nothing and were told, by organization and receiver: one that is changed is told again. */
  readonly #told = new Map<string, string>();
  #stopped = false;

  constructor(options: SenderOptions) {
    this.#options = options;
    const { log, pool, clock, lookMs = LOOK_MS } = options;
    this.#loops = [
      new Recurring(log, "notifications", lookMs, () => this.#look()),
      new Recurring(log, "old notifications", FORGET_MS, () => forgetMessages(pool, clock.now())),
    ];
  }

  start(): void {
    for (const loop of this.#loops) loop.start();
  }

  /** Takes nothing more, and waits for the tries under way. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#loops.map((loop) => loop.stop()));
    await Promise.all(this.#running);
  }

  async #look(): Promise<void> {
    const { lookMs = LOOK_MS } = this.#options;
    while (!this.#stopped) {
      let isAny = false;
      // Each namespace gets some at once, so that none gets all places before another has its turn.
      for (let isMore = true; isMore && !this.#stopped;) {
        const { taken, most } = await this.#claim();
        for (const delivery of taken) this.#begin(delivery);
        isAny ||= taken.length > 0;
        isMore = taken.length >= most;
      }
      if (!isAny) return;
      // More may be due than an organization gets at once.
      await Promise.race([...this.#running, new Promise((done) => setTimeout(done, lookMs))]);
    }
  }

  /** @returns what this process has to try now, and how much one namespace got of it at the most. */
  async #claim(): Promise<{ readonly taken: readonly DueDelivery[]; readonly most: number }> {
    const free = PLACES - this.#running.size;
    const most = Math.ceil(free / NAMESPACE_PART);
    if (free <= 0) return { taken: [], most: Infinity };
    const trying = [...this.#trying.values()];
    const having = (of: (delivery: DueDelivery) => string, places: number) =>
      [...Map.groupBy(trying, of)].flatMap(([id, own]) => (own.length >= places ? [id] : []));
    const taken = await claimDeliveries(this.#options.pool, {
      most: free,
      ofOrganization: OF_ONE,
      ofNamespace: most,
      busy: {
        organizations: having(({ organizationId }) => organizationId, OF_ONE),
        namespaces: having(({ namespace }) => namespace, free),
      },
    });
    return { taken, most };
  }

  #begin(delivery: DueDelivery): void {
    // Its time to be done with it ran out while Postgres was away: what became of it is noted all the same.
    if (this.#trying.has(nameOf(delivery))) return;
    // What fails is told once, and neither breaks off this look nor the end of the process.
    const trying = this.#try(delivery)
      .catch((error: unknown) =>
        this.#options.log.error({ err: error, message: delivery.id }, "a notification failed"),
      )
      .finally(() => this.#running.delete(trying));
    this.#running.add(trying);
  }

  async #try(delivery: DueDelivery): Promise<void> {
    const name = nameOf(delivery);
    this.#trying.set(name, delivery);
    try {
      await this.#settle(delivery, await this.#send(delivery));
    } finally {
      this.#trying.delete(name);
    }
  }

  /** null: it was taken. */
  async #send(delivery: DueDelivery): Promise<DeliveryFailure | null> {
    const { clock, log } = this.#options;
    const { id, organizationId, url } = delivery;
    const snapshot = this.#options.snapshot();
    const declared = snapshot?.organization(organizationId)?.notifications?.find((one) => one.url === url);
    const secret = snapshot?.credential(declared?.credential ?? "");
    if (declared === undefined || secret === undefined) return "not declared";
    const signer = signerOf(secret);
    this.#tellUseless(delivery, signer === null ? secret : null);
    if (signer === null) return "no signing secret";
    const body = messageBody(delivery);
    const headers = messageHeaders(id, clock.now(), body, signer);
    const outcome = await sendMessage(declared, headers, body, this.#options);
    metrics.notifications.inc({ outcome: outcome.kind });
    if (outcome.kind === "taken") return null;
    log.warn(
      { organizationId, message: id, tries: delivery.tries, reason: outcome.reason },
      "a notification was not taken",
    );
    return outcome.kind;
  }

  /** Warns once of each secret that signs nothing, however many messages wait. @param secret null: the present one signs. */
  #tellUseless({ id, organizationId, url }: DueDelivery, secret: string | null): void {
    const receiver = `${organizationId} ${url}`;
    if (this.#told.get(receiver) === (secret ?? undefined)) return;
    this.#told.delete(receiver);
    if (secret === null) return;
    const [oldest] = this.#told.keys();
    if (oldest !== undefined && this.#told.size >= MOST_TOLD) this.#told.delete(oldest);
    this.#told.set(receiver, secret);
    this.#options.log.warn({ organizationId, message: id }, "a notification's secret signs nothing");
  }

  /** Tried again while Postgres is away: what was taken would be sent once more otherwise. */
  async #settle(delivery: DueDelivery, failure: DeliveryFailure | null): Promise<void> {
    for (const until = performance.now() + NOTED_WITHIN_MS; ;) {
      try {
        return await this.#note(delivery, failure);
      } catch (error) {
        if (this.#stopped || !isStoreAway(error) || performance.now() > until) throw error;
        await sleep(NOTE_PAUSE_MS);
      }
    }
  }

  async #note(delivery: DueDelivery, failure: DeliveryFailure | null): Promise<void> {
    const { pool, clock, random } = this.#options;
    if (failure === null || clock.now() - delivery.crossedAt >= GIVEN_UP_MS)
      return await endDelivery(pool, delivery, failure);
    const waitMs = failure === "failed" ? pauseAfter(delivery.tries, random()) : OWN_PAUSE_MS;
    await postponeDelivery(pool, delivery, failure, waitMs);
  }
}

const nameOf = ({ id, url }: DueDelivery): string => `${id} ${url}`;
