/** Serving in this thread alone, and with another one for what is large: both must give the same (rule 7.3). */
import { expect, vi } from "vitest";
import type { Serve } from "../../../dataplane/inference/call.ts";
import { newLargePool } from "../../../dataplane/inference/large/large-body.ts";
import { createServe } from "../../../dataplane/inference/serve.ts";
import { sealing } from "../../../dataplane/lib/seal.ts";
import type { WorkerPool } from "../../../dataplane/lib/worker-pool.ts";
import { newUpstreamDispatcher } from "../../../dataplane/upstream/dispatcher.ts";
import { Upstreams } from "../../../dataplane/upstream/upstreams.ts";
import { noTools } from "../no-tools.ts";
import { startUpstream } from "../upstream/server.ts";

const keys = [{ id: "test", key: Buffer.alloc(32, 7) }];

/** Starts both before one upstream. Close it. */
export async function startTwoThreads() {
  const sealerOf = sealing(keys);
  const pool = newLargePool(keys, { jobMs: 60_000 });
  const dispatcher = newUpstreamDispatcher();
  const fake = await startUpstream();
  /** Serves with large work in the threads of a pool; null: in this one. */
  const serving = (where: WorkerPool | null) =>
    createServe(new Upstreams(dispatcher), sealerOf, noTools, where);

  /**
   * Makes texts comparable: ids, seals and moments differ each time.
   * @param moments members whose seconds are left out
   */
  const comparable = (text: string, moments: readonly string[]): string =>
    text
      .replaceAll(/AQR0ZXN0[\w-]+/g, (sealed) => `<${sealerOf("org_a").open(sealed)}>`)
      .replaceAll(/\b(msg|chatcmpl|resp|rs|cmp|fc|ws|xs|call|toolu)([-_])[0-9A-Za-z]{24}\b/g, "$1$2ID")
      .replaceAll(new RegExp(`"(${moments.join("|")})":\\d+`, "g"), '"$1":0');

  const [here, elsewhere] = [serving(null), serving(pool)];
  /** What is served in another thread, as a job of its pool, and in this one. */
  const both = async <Outcome>(serveOn: (serve: Serve) => Promise<Outcome>) => {
    const jobs = vi.spyOn(pool, "run");
    const expected = await serveOn(here);
    expect(jobs).not.toHaveBeenCalled();
    const seen = await serveOn(elsewhere);
    expect(jobs).toHaveBeenCalled();
    jobs.mockRestore();
    return [seen, expected] as const;
  };

  return {
    keys,
    pool,
    fake,
    serving,
    here,
    elsewhere,
    both,
    comparable,
    async close(): Promise<void> {
      await dispatcher.destroy();
      await Promise.all([pool.close(), fake.close()]);
    },
  };
}
