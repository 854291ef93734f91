/** What the tests stand on that kill data planes in the middle of batches (test/chaos/batches*.test.ts). */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { sql } from "slonik";
import { expect } from "vitest";
import { z } from "zod";
import type { BatchStep } from "../../dataplane/batches/steps.ts";
import type { MoneyStep } from "../../dataplane/billing/steps.ts";
import { hasEnded, stopProcess } from "../../hack/processes.ts";
import { watchForSurprises } from "../fakes/surprises.ts";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../fakes/upstream/server.ts";
import { BatchPlane, bodyOf, type PlaneOptions, type Stores } from "../integration/batches-world.ts";
import { makeOrganization } from "../integration/money-world.ts";
import { freshPostgres, freshRedis, type TestStore } from "../integration/stores.ts";

/** A worker that was silent for so long is dead. */
export const LEASE_MS = 1_000;
/** Of all workers, unless a test says otherwise. */
export const RHYTHM = { beatMs: 200, leaseMs: LEASE_MS, pollMs: 200 };
/** At once in one data plane. */
export const PLACES = 32;
const DIES_WITHIN_MS = 60_000;

/** A data plane in a process of its own. */
export interface Victim {
  readonly url: string;
  kill(): Promise<void>;
  /** Resolves when it has killed itself at its step. @throws Error when it does not. */
  died(): Promise<void>;
}

/** Stores and an upstream that may be hurt, and data planes on them. */
export class BatchWorld {
  readonly postgres: TestStore;
  readonly redis: TestStore;
  readonly upstream: FakeUpstream;
  /** How long the upstream thinks before it answers: at least, and at most so much longer, by the number and the try. */
  thinkMs = 30;
  spreadMs = 0;
  /** By number: what has to come before a request is answered. */
  readonly #held = new Map<string, Promise<void>>();
  readonly #open = new Set<() => Promise<void>>();

  private constructor(postgres: TestStore, redis: TestStore, upstream: FakeUpstream) {
    this.postgres = postgres;
    this.redis = redis;
    this.upstream = upstream;
  }

  static async open(): Promise<BatchWorld> {
    const [postgres, redis] = await Promise.all([freshPostgres(), freshRedis()]);
    const world = new BatchWorld(postgres, redis, await startUpstream());
    const plane = await world.plane({ working: false });
    await makeOrganization(plane.pool, "org_acme", 1_000_000_000_000n);
    return world;
  }

  /**
   * Each request is told by its number, and each try of it by its last digits: so many output tokens it costs. Every
   * tenth fails at its first try.
   */
  answer(): void {
    this.upstream.reset();
    const asked = new Map<string, number>();
    this.spreadMs = 0;
    this.#held.clear();
    for (const model of ["upstream-messages", "upstream-chat"]) {
      this.upstream.model(model, async (_read, logged) => {
        const number = /item (\d+)/.exec(logged.text)?.[1] ?? "0";
        const tries = (asked.get(number) ?? 0) + 1;
        asked.set(number, tries);
        const faulty = number.endsWith("7") && tries === 1;
        await this.#held.get(number);
        return withFaults(
          faulty
            ? { error: { status: 500 } }
            : text(`answer ${number}`, { input: 10, output: tries + 10 * Number(number) }),
          { delayHeadersMs: this.thinkMs + this.spreadMs * part(31 * Number(number) + 7 * tries) },
        );
      });
    }
  }

  /** Answers no try of this request from now on. @returns what answers them all. */
  hold(number: number): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#held.set(String(number), promise);
    return resolve;
  }

  #options(more: Partial<PlaneOptions>): PlaneOptions {
    const worker = { rhythm: RHYTHM, limits: { places: PLACES, placesOfOne: PLACES } };
    const upkeep = { heartbeatMs: 300, sweepMs: 500, staleMs: 3_000, accountsMs: 500 };
    return { upstreamUrl: this.upstream.url, worker, upkeep, ...more };
  }

  get #stores(): Stores {
    return { redisUrl: this.redis.url, postgresUrl: this.postgres.url };
  }

  /** A data plane in this process. */
  async plane(more: Partial<PlaneOptions> = {}): Promise<BatchPlane> {
    const plane = await BatchPlane.open(this.#stores, this.#options(more));
    this.#open.add(() => plane.close());
    return plane;
  }

  /**
   * One in a process of its own; with `dieAt` it kills itself the N-th time it reaches that step. `stores`: other ways
   * to them.
   */
  async victim(
    dieAt?: `${BatchStep | MoneyStep}:${number}`,
    { stores, ...more }: Partial<PlaneOptions> & { readonly stores?: Partial<Stores> } = {},
  ): Promise<Victim> {
    const folder = import.meta.dirname;
    const child = spawn(
      process.execPath,
      [
        "--import",
        join(folder, "die-at.ts"),
        join(folder, "batch-plane.ts"),
        JSON.stringify({ stores: { ...this.#stores, ...stores }, options: this.#options(more) }),
      ],
      {
        stdio: ["ignore", "pipe", "pipe"],
        env: { ...process.env, GAPURA_TEST_DIE_AT: dieAt ?? "" },
      },
    );
    watchForSurprises(child, "a data plane");
    child.stderr.pipe(process.stderr, { end: false });
    const kill = () => stopProcess(child, "SIGKILL", 5_000);
    this.#open.add(kill);
    const ended = once(child, "exit");
    // It may meet its step while it starts.
    const [line] = (await Promise.race([once(child.stdout, "data"), ended])) as [unknown];
    return {
      url: /ready (\S+)/.exec(String(line))?.[1] ?? "",
      kill,
      died: async () => {
        const late = sleep(DIES_WITHIN_MS, undefined, { ref: false });
        await Promise.race([ended, late]);
        if (!hasEnded(child)) throw new Error(`a data plane never reached ${dieAt}`);
        expect(child.signalCode, `killed at ${dieAt}`).toBe("SIGKILL");
      },
    };
  }

  /** Ends the data planes of a test. */
  async closePlanes(): Promise<void> {
    for (const close of this.#open) await close();
    this.#open.clear();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.closePlanes();
    await Promise.all([this.postgres[Symbol.asyncDispose](), this.redis[Symbol.asyncDispose]()]);
    await this.upstream.close();
  }
}

/** Spreads numbers over 0 to 1, the same at each run. */
const part = (number: number) => (number * 0.618_034) % 1;

/** More than any item's answer says: an upstream that reports more than was asked for is not believed (rule 7.9). */
const MAX_TOKENS = 60_000;

export const requestsOf = (items: number) =>
  Array.from({ length: items }, (_, index) => ({
    custom_id: `i${index}`,
    params: bodyOf.messages(`item ${index}`, { max_tokens: MAX_TOKENS }),
  }));

/** @returns its id. */
export async function startBatch(plane: BatchPlane, items: number): Promise<string> {
  const { body } = await plane.json("POST", "/v1/messages/batches", { requests: requestsOf(items) });
  return String(body["id"]);
}

/** How many items of a batch are over. */
export const over = (plane: BatchPlane, id: string) =>
  plane.count(sql.fragment`from batch_items where batch_id = ${id} and state in ('succeeded', 'errored')`);

/** The batch ends with exactly one line for each item; each was charged once, for what its line says. */
export async function expectExact(
  plane: BatchPlane,
  id: string,
  items: number,
  withinMs = 60_000,
): Promise<void> {
  const ended = await plane.ended(`/v1/messages/batches/${id}`, withinMs, (batch) => {
    const counts = Object.values(batch["request_counts"] as Record<string, number>);
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(items);
  });
  expect(ended["request_counts"]).toMatchObject({ succeeded: items });
  const results = await plane.lines(`/v1/messages/batches/${id}/results`);
  expect(results.map((result) => result["custom_id"])).toEqual(
    Array.from({ length: items }, (_, index) => `i${index}`),
  );
  await expectCharges(plane, id, items);
}

/** Rule 4.2: one usage row for each of so many successes, equal to the usage in its line; and the books agree. */
export async function expectCharges(plane: BatchPlane, id: string, succeeded: number): Promise<void> {
  expect(await plane.count(sql.fragment`from usage where batch_id = ${id}`)).toBe(succeeded);
  const different = await plane.pool.any(sql.type(z.object({ customId: z.string() }))`
    select item.custom_id as "customId"
    from batch_items item left join usage on usage.id = item.request_id
    where item.batch_id = ${id} and item.state = 'succeeded' and usage.output_tokens is distinct from
      (convert_from(item.line, 'utf8')::json #>> '{result,message,usage,output_tokens}')::int8
  `);
  expect(different).toEqual([]);
  await expect.poll(() => plane.broken(), { timeout: 20_000 }).toEqual([]);
}
