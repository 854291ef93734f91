import type { Logger } from "pino";

/**
 * Starts work that nobody awaits, the only way to do so: an error is logged. An unhandled rejection would end the process
 * (serve-forever.ts).
 */
export function inBackground(work: Promise<unknown>, log: Pick<Logger, "error">, what: string): void {
  work.catch((error: unknown) => log.error({ err: error, task: what }, "work in the background failed"));
}
