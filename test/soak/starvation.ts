/**
 * Notes when the machine gives a soak too little: what a program is late for then, such as asking Redis within its second, is not
 * explained by a fault. How long that was is told.
 */
import { hasEnded } from "../../hack/processes.ts";
import { planeIndexes } from "./plan.ts";
import type { SoakWorld } from "./world.ts";

const EVERY_MS = 500;
/** Of these, so long ready to run without a core. */
const STARVED_MS = 400;
/** What was sent just before is late as well, and what waits then is done. */
const AROUND_MS = 3_000;

/** @returns how many milliseconds it has been so. */
export function watchStarvation(world: SoakWorld, stopped: AbortSignal): () => number {
  let last = world.now();
  let starvedMs = 0;
  let waited = waits(world);
  const timer = setInterval(() => {
    const now = world.now();
    const before = waited;
    waited = waits(world);
    const late = Math.max(
      now - last - EVERY_MS,
      ...Array.from(waited, ([pid, ms]) => ms - (before.get(pid) ?? ms)),
    );
    if (late >= STARVED_MS) {
      starvedMs += now - last;
      const text = `the machine kept us waiting for ${late.toFixed(0)} ms`;
      const window = world.open(text, planeIndexes, ["unavailable", "limited"]);
      window.from = last - AROUND_MS;
      window.to = now + AROUND_MS;
    }
    last = now;
  }, EVERY_MS);
  stopped.addEventListener("abort", () => clearInterval(timer), { once: true });
  return () => starvedMs;
}

/** How long the main thread of each data plane has stood ready without a core, by its process. */
function waits({ planes }: SoakWorld): Map<number, number> {
  const found = new Map<number, number>();
  for (const { plane, process: child } of planes) {
    if (child.pid === undefined || hasEnded(child)) continue;
    try {
      found.set(child.pid, plane.mainThread().waitMs);
    } catch {
      // It ended just now.
    }
  }
  return found;
}
