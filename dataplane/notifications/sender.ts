/**
 * Sends messages of crossed thresholds (rule 9.8). Every pod has a sender and all do the same: a delivery that one has claimed
 * is left to it for a minute, and one that it has not finished when it dies is claimed by another, under the same id.
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

/** Pause between two looks for deliveries: the first try must come within 10 s of the charge. */
const LOOK_MS = 1_000;
const FORGET_MS = HOUR_MS;
/** Tries of this process at once, and those of one organization. A namespace that has as many as are free gets no more. */
const PLACES = 128;
const OF_ONE = 8;
/** A namespace gets at most one in this many of the free places at once. */
const NAMESPACE_PART = 8;
const GIVEN_UP_MS = DAY_MS;
const FIRST_PAUSE_MS = 10_000;
const LONGEST_PAUSE_MS = 2 * HOUR_MS;
/** Pause after a failure of our side: it may be mended at any time, and trying costs the receiver nothing. */
const OWN_PAUSE_MS = 60_000;
/** Useless secrets that are remembered as logged. */
const MOST_TOLD = 1_000;
/** Pause between attempts to store the outcome of a try while Postgres is away. */
const NOTE_PAUSE_MS = 250;
/** How long that is attempted; if Postgres is away for longer, a receiver gets a message again that it has. */
const NOTED_WITHIN_MS = HOUR_MS;

/** Returns the pause after this many tries: 10 s, 30 s, 90 s … 2 h, each up to half as long again. `random`: 0 to 1. */
export const pauseAfter = (tries: number, random: number): number =>
  Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 3 ** Math.min(tries - 1, 10)) * (1 + random / 2);

export interface SenderOptions extends SendDeps {
  readonly pool: DatabasePool;
  readonly clock: Clock;
  readonly log: Logger;
  /** The snapshot that is served now; null before the first one. */
  readonly snapshot: () => Snapshot | null;
  readonly random: () => number;
  /** Milliseconds between two looks; `LOOK_MS` except in tests. */
  readonly lookMs?: number;
}

export class NotificationSender {
  readonly #options: SenderOptions;
  readonly #loops: readonly Recurring[];
  /** Deliveries that are being tried, by message and receiver. */
  readonly #trying = new Map<string, DueDelivery>();
  readonly #running = new Set<Promise<void>>();
  /** Useless secrets that were logged, by organization and receiver: one that changes is logged again. */
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

  /** Claims nothing more, and waits for the tries in progress. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#loops.map((loop) => loop.stop()));
    await Promise.all(this.#running);
  }

  async #look(): Promise<void> {
    const { lookMs = LOOK_MS } = this.#options;
    while (!this.#stopped) {
      let isAny = false;
      // A claim takes only a part for each namespace, so that none gets all places before another has its turn.
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

  /** @returns the deliveries to try now, and the most that one namespace may have got of them. */
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
    // This process is trying it already: its lease ran out while Postgres was away, and the outcome is stored all the same.
    if (this.#trying.has(nameOf(delivery))) return;
    // A failure is logged once, and breaks off neither this look nor `stop`.
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

  /** Tries once; null: the receiver accepted it. */
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

  /** Logs each useless secret once, however many messages wait. @param secret null: the present one signs. */
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

  /** Stores the outcome, again and again while Postgres is away: otherwise an accepted message would be sent once more. */
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
