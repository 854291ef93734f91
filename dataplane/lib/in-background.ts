import type { Logger } from "pino";

/**
 * The one way to start work that nobody awaits: what it throws is logged and ends nothing. A rejection that nobody
 * hears of would end the process (serve-forever.ts).
 */
export function inBackground(work: Promise<unknown>, log: Pick<Logger, "error">, what: string): void {
  work.catch((error: unknown) => log.error({ err: error, task: what }, "work in the background failed"));
}
