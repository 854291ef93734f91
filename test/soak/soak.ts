/**
 * One soak: load and faults side by side, and every few faults a quiet point, at which nothing may be left open and all that
 * was seen is judged.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { seeded } from "../abuse/bodies.ts";
import { askSomething } from "./clients.ts";
import { edit } from "./edits.ts";
import { Jobs } from "./jobs.ts";
import { isShed, judgeBatches, judgeCharges, judgeExchanges } from "./judge.ts";
import { readItems, readRows, reconcileWorld, servedEverywhere } from "./ledger.ts";
import type { Exchange, Row } from "./log.ts";
import { faultText, harmClass, planFaults, subjectOf, type Fault } from "./plan.ts";
import { sampleLife, type Sample } from "./probe.ts";
import { judgeSamples, tellSamples } from "./samples.ts";
import { watchStarvation } from "./starvation.ts";
import { strike } from "./strike.ts";
import { SoakWorld } from "./world.ts";

export interface SoakOptions {
  readonly seed: number;
  readonly faults: number;
  /** Of the plan, only so many. */
  readonly prefix: number;
  readonly everyMs: number;
  /** No fault begins later than this after the start of this process. */
  readonly withinMs: number;
  /** Faults between two quiet points. */
  readonly faultsAQuiet: number;
  readonly disks: boolean;
  /** Go on after a breach. */
  readonly goOn: boolean;
  readonly say: (line: string) => void;
  /** Hears of the world, which has to be closed when this process is to end early. */
  readonly opened?: (world: SoakWorld) => void;
}

export interface SoakReport {
  readonly seed: number;
  readonly hours: number;
  /** How many faults were made, by their class. */
  readonly faults: Readonly<Record<string, number>>;
  readonly made: number;
  readonly quiets: number;
  readonly outcomes: Readonly<Record<string, number>>;
  readonly jobs: Jobs["done"];
  readonly rows: number;
  /** Requests that a data plane was too busy for. */
  readonly sheds: number;
  /** Seconds in which the machine gave our programs too little. */
  readonly starved: number;
  readonly breaches: readonly string[];
  /** What each program held over its life, in words. */
  readonly slopes: readonly string[];
  /** Where the logs of its programs are; null: gone, as nothing was wrong. */
  readonly folder: string | null;
}

/** Under load, after the last fault is over: no failure is explained then. */
const CALM_MS = 8_000;
const IDLE_WITHIN_MS = 100_000;
const BATCHES_WITHIN_MS = 240_000;
/** Rule 1.9: dead holds are settled within 90 s; and the sweep's charge has to be drained. */
const EXACT_WITHIN_MS = 130_000;
const DRAINED_WITHIN_MS = 10_000;

interface Worker {
  readonly thinkMs: readonly [number, number];
  readonly work: () => Promise<void>;
}

export async function soak(options: SoakOptions): Promise<SoakReport> {
  const { seed, say } = options;
  const plan = planFaults(seed, options).slice(0, options.prefix);
  for (const fault of plan) say(faultText(fault));
  const random = seeded(seed + 1);
  const world = await SoakWorld.open({ disks: options.disks, random });
  options.opened?.(world);
  const run = new Run(world, options, random);
  try {
    const report = await run.through(plan);
    await world.close(report.breaches.length > 0);
    return report;
  } catch (error) {
    await world.close(true);
    throw error;
  }
}

class Run {
  readonly #world: SoakWorld;
  readonly #options: SoakOptions;
  readonly #random: () => number;
  readonly #exchanges: Exchange[] = [];
  readonly #jobs: Jobs;
  readonly #samples: Sample[] = [];
  readonly #breaches = new Set<string>();
  readonly #made: Record<string, number> = {};
  #strikes: Promise<void>[] = [];
  readonly #subjects = new Map<string, Promise<void>>();
  /** Exchanges before this one were judged. */
  #judged = 0;
  #rows = 0;
  #quiets = 0;
  /** Waited for before each job; null: go on. */
  #gate: PromiseWithResolvers<void> | null = null;
  #quiet = new AbortController();
  readonly #stop = new AbortController();
  #busy = 0;

  constructor(world: SoakWorld, options: SoakOptions, random: () => number) {
    this.#world = world;
    this.#options = options;
    this.#random = random;
    this.#jobs = new Jobs({ world, log: this.#exchanges, random });
  }

  async through(plan: readonly Fault[]): Promise<SoakReport> {
    const starvedMs = watchStarvation(this.#world, this.#stop.signal);
    const workers = this.#workers().map((worker) => this.#runWorker(worker));
    await sleep(CALM_MS);
    await this.#quietPoint();
    let made = 0;
    for (const fault of plan) {
      if (this.#breaches.size > 0 && !this.#options.goOn) break;
      await sleep(fault.afterMs);
      if (performance.now() > this.#options.withinMs) break;
      this.#begin(fault);
      made += 1;
      if (made % this.#options.faultsAQuiet === 0) await this.#quietPoint();
    }
    if (this.#strikes.length > 0) await this.#quietPoint();
    this.#stop.abort();
    this.#gate?.resolve();
    await Promise.all(workers);
    for (const breach of judgeSamples(this.#samples)) this.#breach(breach);
    return this.#report(made, starvedMs() / 1000);
  }

  #workers(): Worker[] {
    const world = this.#world;
    const client = { world, log: this.#exchanges, random: this.#random };
    const jobs = this.#jobs;
    const usual = { thinkMs: [200, 1_800] as const, work: () => askSomething(client, false) };
    return [
      ...Array.from({ length: 6 }, () => usual),
      { thinkMs: [1_000, 3_000], work: () => askSomething(client, true) },
      { thinkMs: [1_000, 4_000], work: () => jobs.batch(this.#quiet.signal) },
      { thinkMs: [1_000, 4_000], work: () => jobs.batch(this.#quiet.signal) },
      { thinkMs: [500, 2_500], work: () => jobs.file() },
      { thinkMs: [3_000, 8_000], work: () => jobs.key() },
      { thinkMs: [2_000, 5_000], work: () => jobs.report() },
      { thinkMs: [5_000, 15_000], work: async () => edit(world, this.#random) },
    ];
  }

  async #runWorker({ thinkMs: [least, most], work }: Worker): Promise<void> {
    while (!this.#stop.signal.aborted) {
      if (this.#gate !== null) await this.#gate.promise;
      if (this.#stop.signal.aborted) return;
      this.#busy += 1;
      try {
        await work();
      } catch (error) {
        this.#breach(`the soak itself failed: ${(error as Error).stack}`);
      } finally {
        this.#busy -= 1;
      }
      await sleep(least + this.#random() * (most - least));
    }
  }

  /** Two faults of one subject follow one another. */
  #begin(fault: Fault): void {
    const subject = subjectOf(fault.harm);
    const name = harmClass(fault.harm);
    const before = this.#subjects.get(subject) ?? Promise.resolve();
    const strikes = before.then(async () => {
      this.#options.say(`${(this.#world.now() / 1000).toFixed(0)} s: ${faultText(fault).trim()}`);
      await strike(this.#world, fault);
      this.#made[name] = (this.#made[name] ?? 0) + 1;
    });
    const done = strikes.catch((error: Error) => this.#breach(`fault ${fault.number}: ${error.message}`));
    this.#subjects.set(subject, done);
    this.#strikes.push(done);
  }

  #breach(text: string): void {
    if (this.#breaches.has(text)) return;
    this.#breaches.add(text);
    this.#options.say(`BREACH at ${(this.#world.now() / 1000).toFixed(1)} s: ${text}`);
  }

  async #quietPoint(): Promise<void> {
    const world = this.#world;
    await Promise.all(this.#strikes);
    this.#strikes = [];
    await sleep(CALM_MS);
    this.#gate = Promise.withResolvers<void>();
    this.#quiet.abort();
    if (!(await this.#until(IDLE_WITHIN_MS, async () => this.#busy === 0)))
      this.#breach("clients still wait for answers");
    const open = () => this.#jobs.batches.filter(({ ended }) => !ended);
    const over = await this.#until(BATCHES_WITHIN_MS, async () => {
      for (const batch of open()) await this.#jobs.look(batch);
      return open().length === 0;
    });
    if (!over)
      this.#breach(
        `batches do not end: ${open()
          .map(({ id }) => id)
          .join(", ")}`,
      );
    let lines: readonly string[] = [];
    const exact = await this.#until(EXACT_WITHIN_MS, async () => {
      lines = await reconcileWorld(world);
      return lines.length === 0;
    });
    if (!exact) for (const line of lines) this.#breach(`reconcile: ${line}`);
    if (!(await this.#until(30_000, async () => Number(await this.#jobs.held()) === 0)))
      this.#breach("the organization is told that credit is held");
    if (!(await this.#until(60_000, () => servedEverywhere(world)))) this.#breach("an edit is not served");
    for (const file of this.#jobs.files)
      if (!(await this.#jobs.readFile(file))) this.#breach(`file ${file.id} cannot be read`);
    await this.#judge();
    await this.#sample();
    for (const surprise of world.surprises.splice(0)) this.#breach(surprise);
    world.provider.trim();
    this.#quiets += 1;
    this.#options.say(
      `${(world.now() / 1000).toFixed(0)} s: quiet point ${this.#quiets}: ${this.#exchanges.length} exchanges, ${this.#rows} rows, ${this.#breaches.size} breaches`,
    );
    this.#quiet = new AbortController();
    this.#gate.resolve();
    this.#gate = null;
  }

  async #judge(): Promise<void> {
    const world = this.#world;
    const { calls } = world.provider;
    const fresh = this.#exchanges.slice(this.#judged);
    this.#judged = this.#exchanges.length;
    const rows = await this.#drainedRows();
    this.#rows = rows.length;
    const all = { exchanges: this.#exchanges, calls, windows: world.windows };
    const breaches = [
      ...judgeExchanges({ ...all, exchanges: fresh }),
      ...judgeCharges(all, rows),
      ...judgeBatches(this.#jobs.batches, await readItems(world), rows, calls),
    ];
    for (const breach of breaches) this.#breach(breach);
    if (this.#breaches.size > 0) this.#keepLog(rows);
  }

  /** The ledger's rows. Redis has a charge before its answer ends, the ledger a moment later. */
  async #drainedRows(): Promise<readonly Row[]> {
    const answered = this.#exchanges.filter(({ outcome }) => outcome === "complete");
    let rows: readonly Row[] = [];
    await this.#until(DRAINED_WITHIN_MS, async () => {
      rows = await readRows(this.#world);
      const charged = new Set(rows.map(({ marker }) => marker));
      return answered.every(({ marker }) => marker === null || charged.has(marker));
    });
    return rows;
  }

  /** For whoever looks into it. */
  #keepLog(rows: readonly Row[]): void {
    const calls = [...this.#world.provider.calls.values()]
      .flat()
      .map((call) => ({ ...call, ended: call.ended() }));
    const log = { exchanges: this.#exchanges, windows: this.#world.windows, calls, rows };
    const text = JSON.stringify(
      log,
      (_, value: unknown) => (typeof value === "bigint" ? Number(value) : value),
      1,
    );
    writeFileSync(join(this.#world.folder, "log.json"), text);
  }

  async #sample(): Promise<void> {
    const world = this.#world;
    for (const life of world.lives) {
      try {
        this.#samples.push(await sampleLife(life, world.now()));
      } catch (error) {
        this.#breach((error as Error).message);
      }
    }
  }

  async #until(withinMs: number, holds: () => Promise<boolean>): Promise<boolean> {
    const deadline = performance.now() + withinMs;
    while (!(await holds())) {
      if (performance.now() > deadline) return false;
      await sleep(500);
    }
    return true;
  }

  #report(made: number, starved: number): SoakReport {
    const outcomes: Record<string, number> = {};
    for (const { outcome } of this.#exchanges) outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    return {
      seed: this.#options.seed,
      hours: this.#world.now() / 3_600_000,
      faults: this.#made,
      made,
      quiets: this.#quiets,
      outcomes,
      jobs: this.#jobs.done,
      rows: this.#rows,
      sheds: this.#exchanges.filter(isShed).length,
      starved,
      breaches: [...this.#breaches],
      slopes: tellSamples(this.#samples),
      folder: this.#breaches.size > 0 ? this.#world.folder : null,
    };
  }
}
