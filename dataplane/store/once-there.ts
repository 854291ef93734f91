/** Waiting for a Postgres that is away. Without slonik, which takes a command longer to load than all else that `migrate` needs. */
import { setTimeout as sleep } from "node:timers/promises";
import { causesOf, codeOf } from "../lib/causes.ts";

/** How long a Postgres that is not there is waited for, when the caller does not say. */
const USUAL_PATIENCE_MS = 30_000;
/** Longest wait for a Postgres that is there and refuses us: roles and databases may be made only after its start. */
const REFUSED_PATIENCE_MS = 30_000;
/** Shortest time between two reports of `nowAndThen`. */
const TELL_EVERY_MS = 10_000;

/** Options of a program that needs Postgres before anything else. */
export interface WaitOptions {
  /** How long to keep trying while Postgres is not there yet. Default 30 s. */
  readonly withinMs?: number;
  /** Called after each failed try that is repeated. */
  readonly onAway?: (error: Error) => void;
}

/** Time of a process; a test has its own. */
const usualTime = { now: () => performance.now(), pause: (ms: number): Promise<unknown> => sleep(ms) };

/**
 * Repeats `ask` while Postgres is away.
 * @param isAway whether an error says so; after any other one `ask` is not tried again.
 * @returns what `ask` returns. @throws Error of the last try, when time is up.
 */
export async function onceThere<Value>(
  ask: () => Promise<Value>,
  isAway: (error: Error) => boolean,
  { withinMs = USUAL_PATIENCE_MS, onAway = () => {} }: WaitOptions,
  { now, pause } = usualTime,
): Promise<Value> {
  const began = now();
  let refusedSince: number | null = null;
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await ask();
    } catch (error) {
      const at = now();
      refusedSince = isRefusal(error) ? (refusedSince ?? at) : null;
      const isOver =
        at - began >= withinMs || (refusedSince !== null && at - refusedSince >= REFUSED_PATIENCE_MS);
      if (!(error instanceof Error) || !isAway(error) || isOver) throw error;
      onAway(error);
      await pause(Math.min(100 * attempt, 1_000));
    }
  }
}

/** SQLSTATE of a wrong user or password and of no such database; and what TLS says of a certificate that it does not take. */
const REFUSED = /^(?:(?:28|3D)...|ERR_TLS_\w+|CERT_\w+|UNABLE_TO_\w+|(?:DEPTH_ZERO_)?SELF_SIGNED_\w+)$/;
/** Errors of `pg` without a code: a password is asked for and missing; TLS is wanted and not offered. */
const REFUSED_WORDS = /^SASL: |does not support SSL connections/;

/** Whether Postgres is there and does not let us in: trying again helps only when somebody mends that. */
export const isRefusal = (error: unknown): boolean =>
  causesOf(error).some((cause) => REFUSED.test(codeOf(cause) ?? "") || REFUSED_WORDS.test(cause.message));

/** Makes an `onAway` that passes on at most one error in ten seconds. */
export function nowAndThen(tell: (error: Error) => void): (error: Error) => void {
  let told = Number.NEGATIVE_INFINITY;
  return (error) => {
    if (performance.now() - told < TELL_EVERY_MS) return;
    told = performance.now();
    tell(error);
  };
}
