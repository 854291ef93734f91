/** What a program of a soak holds: asked from itself (inside.ts) and from Linux. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseRss } from "../bench/proc.ts";
import type { Asked, Told } from "./inside.ts";
import type { Life } from "./world.ts";

const ANSWERS_WITHIN_MS = 20_000;

/** What a program held at one moment. */
export interface Sample {
  readonly life: Life;
  /** Milliseconds since the soak began. */
  readonly at: number;
  /** Bytes. */
  readonly heap: number;
  readonly resident: number;
  readonly descriptors: number;
  readonly timers: number;
  /** Sockets, pipes, requests: whatever keeps the loop alive and is no timer. */
  readonly handles: number;
}

/** What each life was last told of its clocks. */
const clocks = new WeakMap<Life, Asked>();

/** Sets a program's clocks, where `change` says so, and asks what it holds. @throws Error when it does not answer. */
export async function askInside(
  life: Life,
  change: { readonly wallMs?: number; readonly passMs?: number } = {},
): Promise<Told> {
  const before = clocks.get(life) ?? { serial: 0, wallMs: 0, passedMs: 0 };
  const asked: Asked = {
    serial: before.serial + 1,
    wallMs: change.wallMs ?? before.wallMs,
    passedMs: before.passedMs + (change.passMs ?? 0),
  };
  clocks.set(life, asked);
  writeFileSync(`${life.inside}.ask`, JSON.stringify(asked));
  life.process.kill("SIGUSR2");
  for (const until = performance.now() + ANSWERS_WITHIN_MS; performance.now() < until; await sleep(20)) {
    try {
      const told = JSON.parse(readFileSync(`${life.inside}.told`, "utf8")) as Told;
      if (told.serial >= asked.serial) return told;
    } catch {
      // Not written yet.
    }
  }
  throw new Error(`${life.name} does not say what it holds`);
}

export async function sampleLife(life: Life, at: number): Promise<Sample> {
  const { heap, resources } = await askInside(life);
  const { pid } = life.process;
  const { Timeout: timers = 0, ...others } = resources;
  return {
    life,
    at,
    heap,
    resident: parseRss(readFileSync(`/proc/${pid}/status`, "utf8")),
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
    timers,
    handles: Object.values(others).reduce((sum, count) => sum + count, 0),
  };
}
