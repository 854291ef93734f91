/** The law of rules.md §7: what one key sends neither makes others wait nor fills the memory, and is answered honestly. */
import { setTimeout as sleep } from "node:timers/promises";
import { runAttack, type Attack } from "./attack.ts";
import type { AbuseWorld } from "./world.ts";

export interface Figures {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly worstMs: number;
  readonly answers: number;
  readonly faults: Readonly<Record<string, number>>;
}

export interface Verdict {
  readonly name: string;
  readonly outcomes: Readonly<Record<string, number>>;
  readonly neighbour: Figures;
  /** The most that was resident at once. */
  readonly residentMb: number;
  /**
   * Parts of the attack's time that the data plane's main thread was on a core, and that it was ready but had none
   * because attacker, stores and neighbour had them: what is ours and what is the machine's.
   */
  readonly busy: number;
  readonly starved: number;
  /** What is against the law; empty: nothing. */
  readonly breaches: readonly string[];
}

export interface Bounds {
  /** How long each attack lasts. */
  readonly ms: number;
  /** The neighbour's p99 before any attack. */
  readonly before: Figures;
  /** A p99 below this is no breach whatever it was before: attacker, stores and neighbour share the machine's cores. */
  readonly floorMs: number;
  readonly residentMb: number;
}

const MEMORY_EVERY_MS = 20;

export async function observe(world: AbuseWorld, ms: number): Promise<Figures> {
  await world.neighbour();
  await sleep(ms);
  return figuresOf(await world.neighbour());
}

function figuresOf(report: Awaited<ReturnType<AbuseWorld["neighbour"]>>): Figures {
  const sorted = report.latenciesMs.toSorted((one, other) => one - other);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return {
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    worstMs: at(1),
    answers: sorted.length,
    faults: report.faults,
  };
}

export async function judge(world: AbuseWorld, attack: Attack, bounds: Bounds): Promise<Verdict> {
  let residentMb = 0;
  const watch = setInterval(() => {
    if (world.alive) residentMb = Math.max(residentMb, world.residentMb());
  }, MEMORY_EVERY_MS);
  try {
    // What is sent is made before it is measured.
    attack.prepare?.();
    await world.neighbour();
    const from = { ...world.mainThread(), at: performance.now() };
    const { outcomes } = await runAttack(attack, world, bounds.ms);
    const to = world.alive ? world.mainThread() : from;
    const tookMs = performance.now() - from.at;
    const neighbour = figuresOf(await world.neighbour());
    const breaches = [
      ...Object.keys(outcomes)
        .filter((outcome) => !attack.expected.some((one) => String(one) === outcome))
        .map((outcome) => `${outcomes[outcome]} × ${outcome}, expected ${attack.expected.join(" or ")}`),
      ...breachesOfNeighbour(neighbour, bounds),
      ...(residentMb > bounds.residentMb ? [`${residentMb.toFixed(0)} MB resident`] : []),
      ...(world.alive ? [] : ["the process has ended"]),
    ];
    const busy = (to.cpuMs - from.cpuMs) / tookMs;
    const starved = (to.waitMs - from.waitMs) / tookMs;
    return { name: attack.name, outcomes, neighbour, residentMb, busy, starved, breaches };
  } finally {
    clearInterval(watch);
  }
}

function breachesOfNeighbour({ p99Ms, faults }: Figures, { before, floorMs }: Bounds): string[] {
  const most = Math.max(2 * before.p99Ms, floorMs);
  const told = Object.entries(faults).map(([what, times]) => `${times} × ${what} for the neighbour`);
  return p99Ms > most
    ? [`the neighbour's p99 is ${p99Ms.toFixed(0)} ms, at most ${most.toFixed(0)}`, ...told]
    : told;
}
