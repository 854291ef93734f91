/** Waiting for a data plane that was just started, by its ops port. */
import { setTimeout as sleep } from "node:timers/promises";
import { request } from "undici";
import { z } from "zod";
import { indexSchema, routingSchema, statusSchema } from "../dataplane/config/schema.ts";
import { Snapshot } from "../dataplane/config/snapshot.ts";

/** The data plane must be ready within this time. */
const READY_TIMEOUT_MS = 120_000;
const ANSWER_TIMEOUT_MS = 2_000;
/** A configuration may have thousands of entries. */
const CONFIGURATION_TIMEOUT_MS = 10_000;

const endsAfter = (ms: number, signal: AbortSignal) => AbortSignal.any([signal, AbortSignal.timeout(ms)]);

/**
 * @param opsAddress such as `http://127.0.0.1:9090`
 * @throws Error that ends in what the data plane said last, when it does not get ready; what the signal was aborted with
 */
export async function becomesReady(opsAddress: string, signal: AbortSignal): Promise<void> {
  const deadline = Date.now() + READY_TIMEOUT_MS;
  let last = "it does not answer";
  for (;;) {
    signal.throwIfAborted();
    try {
      const answer = await get(`${opsAddress}/readyz`, endsAfter(ANSWER_TIMEOUT_MS, signal));
      if (answer.status === 200) return;
      last = answer.text.trim();
    } catch {
      // Not listening yet.
    }
    if (Date.now() >= deadline) throw new Error(`the data plane did not become ready (${last})`);
    await sleep(50);
  }
}

/**
 * Returns the served configuration, once the data plane knows every organization's keys, or after two minutes.
 * @throws what the signal was aborted with
 */
export async function servedConfiguration(opsAddress: string, signal: AbortSignal): Promise<Snapshot> {
  const read = async (path: string) => {
    const { text } = await get(`${opsAddress}${path}`, endsAfter(CONFIGURATION_TIMEOUT_MS, signal));
    return JSON.parse(text) as unknown;
  };
  for (const deadline = Date.now() + READY_TIMEOUT_MS; ; await sleep(25)) {
    signal.throwIfAborted();
    const { index, routing } = z
      .object({ index: indexSchema, routing: routingSchema })
      .parse(await read("/config/dump"));
    const { objects, refused = [] } = statusSchema.parse(await read("/config/status"));
    const known = new Set([...objects, ...refused].map(({ uid }) => uid));
    if (routing.organizations.every(({ source }) => known.has(source.uid)) || Date.now() > deadline) {
      return new Snapshot(index, routing, { serial: index.serial, values: {} });
    }
  }
}

/** Asks without fetch, which calls nobody on ports such as 10080. */
async function get(
  url: string,
  signal: AbortSignal,
): Promise<{ readonly status: number; readonly text: string }> {
  const { statusCode: status, body } = await request(url, { signal });
  return { status, text: await body.text() };
}
