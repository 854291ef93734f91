/** What SIGTERM, SIGINT and SIGHUP do: one handler at a time, from the beginning of the process. */
import { constants } from "node:os";

const SIGNALS = ["SIGTERM", "SIGINT", "SIGHUP"] as const;
type Signal = (typeof SIGNALS)[number];

let handler: (signal: Signal) => void = (signal) => process.exit(128 + constants.signals[signal]);

/**
 * Until `handleSignals` is called, the signals end the process with the exit code of their number. By default the kernel does
 * not end process 1 of a container by a signal without a handler: it would be killed only after the whole grace period.
 */
export function endAtSignals(): void {
  for (const signal of SIGNALS) process.on(signal, () => handler(signal));
}

/** Replaces the handler of the signals. */
export function handleSignals(handle: (signal: Signal) => void): void {
  handler = handle;
}
