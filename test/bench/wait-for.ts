import { setTimeout as sleep } from "node:timers/promises";

const START_TIMEOUT_MS = 60_000;

/** Asks every few milliseconds; a throw counts as no. @throws Error when the time is up. */
export async function waitFor(what: string, ask: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (performance.now() < deadline) {
    if (await ask().catch(() => false)) return;
    await sleep(5);
  }
  throw new Error(`waited in vain for ${what}`);
}
