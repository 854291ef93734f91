/** What SIGTERM, SIGINT and SIGHUP do: one handler at a time, from the beginning of the process. */
import { constants } from "node:os";

const SIGNALS = ["SIGTERM", "SIGINT", "SIGHUP"] as const;
type Signal = (typeof SIGNALS)[number];

let handler: (signal: Signal) => void = (signal) => process.exit(128 + constants.signals[signal]);

/**
 * Until `handleSignals` they end the process with the exit code of their number. The kernel ends it for nobody who is the first
 * process of a container, as the image's is: it would be killed only after its whole grace period.
 */
export function endAtSignals(): void {
  for (const signal of SIGNALS) process.on(signal, () => handler(signal));
}

/** From now on `handle` is called for them, in the place of the handler before. */
export function handleSignals(handle: (signal: Signal) => void): void {
  handler = handle;
}
