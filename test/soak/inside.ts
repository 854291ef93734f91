/**
 * Preloaded into the programs of a soak (`node --expose-gc --import`): their clocks can be set, and they tell what they
 * hold. On SIGUSR2 what GAPURA_SOAK_INSIDE.ask says is done, and GAPURA_SOAK_INSIDE.told is written.
 */
import { readFileSync, renameSync, writeFileSync } from "node:fs";

/** `.ask`: by how much each clock is to be wrong from now on, and the number of the question. */
export interface Asked {
  readonly serial: number;
  readonly wallMs: number;
  readonly passedMs: number;
}

/** `.told`. */
export interface Told {
  readonly serial: number;
  /** Bytes that live after a collection. */
  readonly heap: number;
  /** What keeps the loop alive, by its kind: timers, sockets, … */
  readonly resources: Readonly<Record<string, number>>;
}

const file = process.env["GAPURA_SOAK_INSIDE"] ?? "";
const wall = Date.now.bind(Date);
const passed = performance.now.bind(performance);
let wrong: Pick<Asked, "wallMs" | "passedMs"> = { wallMs: 0, passedMs: 0 };
Date.now = () => wall() + wrong.wallMs;
performance.now = () => passed() + wrong.passedMs;

process.on("SIGUSR2", () => {
  const asked = JSON.parse(readFileSync(`${file}.ask`, "utf8")) as Asked;
  wrong = asked;
  globalThis.gc?.();
  const resources: Record<string, number> = {};
  for (const name of process.getActiveResourcesInfo()) resources[name] = (resources[name] ?? 0) + 1;
  const told: Told = { serial: asked.serial, heap: process.memoryUsage().heapUsed, resources };
  writeFileSync(`${file}.draft`, JSON.stringify(told));
  renameSync(`${file}.draft`, `${file}.told`);
});
