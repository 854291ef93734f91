/** Waiting for a Postgres that is away. Without slonik, which takes a command longer to load than all else that `migrate` needs. */
import { setTimeout as sleep } from "node:timers/promises";

/** What waits for Postgres without being told for how long, and for one that lets us in nowhere. */
const USUAL_PATIENCE_MS = 30_000;

/** Of who needs Postgres before anything else. */
export interface WaitOptions {
  /** How long to keep trying while Postgres is not there yet; one that refuses us is asked for 30 s at most. Default 30 s. */
  readonly withinMs?: number;
  /** Hears of each try that failed and is repeated. */
  readonly onAway?: (error: Error) => void;
}

/**
 * @param isAway whether an error says so; every other one is not tried again.
 * @returns what `ask` brings, which is repeated while Postgres is away. @throws Error of the last try, when time is up.
 */
export async function onceThere<Value>(
  ask: () => Promise<Value>,
  isAway: (error: Error) => boolean,
  { withinMs = USUAL_PATIENCE_MS, onAway = () => {} }: WaitOptions,
): Promise<Value> {
  const began = performance.now();
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await ask();
    } catch (error) {
      const patience = isRefusal(error) ? Math.min(withinMs, USUAL_PATIENCE_MS) : withinMs;
      if (!(error instanceof Error) || !isAway(error) || performance.now() - began >= patience) throw error;
      onAway(error);
      await sleep(Math.min(100 * attempt, 1_000));
    }
  }
}

/** Postgres is there and does not let us in: a wrong password, no such database. Trying again helps only when somebody mends that. */
export function isRefusal(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if ("code" in cause && typeof cause.code === "string" && /^(?:28|3D)...$/.test(cause.code)) return true;
  return false;
}

/** Hears what `onAway` does, and passes on one in ten seconds. */
export function nowAndThen(tell: (error: Error) => void): (error: Error) => void {
  let told = Number.NEGATIVE_INFINITY;
  return (error) => {
    if (performance.now() - told < TELL_EVERY_MS) return;
    told = performance.now();
    tell(error);
  };
}

const TELL_EVERY_MS = 10_000;
