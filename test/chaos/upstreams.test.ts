/**
 * Three upstreams, of which one fails every second request and one stalls
 * before its first byte; nearly every client sees a success, in bounded time, and nothing is left behind.
 * `GAPURA_CHAOS_SECONDS=60` runs it longer; here a few seconds show the same.
 */
import type { Dispatcher } from "undici";
import { afterAll, beforeAll, expect, test } from "vitest";
import { callOf, routeTo, snapshotOf, upstreamOf } from "../fakes/inference.ts";
import { noTools } from "../fakes/no-tools.ts";
import { whileSteady } from "../fakes/steady.ts";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../fakes/upstream/server.ts";
import { sealing } from "../../dataplane/lib/seal.ts";
import { metrics } from "../../dataplane/telemetry/metrics.ts";
import { Upstreams } from "../../dataplane/upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../../dataplane/upstream/dispatcher.ts";
import { createServe } from "../../dataplane/inference/serve.ts";

const seconds = Number(process.env["GAPURA_CHAOS_SECONDS"] ?? 3);
const firstByteMs = 500;
const requestsPerSecond = 100;
const answer = text("one two three four five");

let good: FakeUpstream;
let half: FakeUpstream;
let stalling: FakeUpstream;
let dispatcher: Dispatcher;

beforeAll(async () => {
  let turn = 0;
  good = await startUpstream({ fallback: () => answer });
  half = await startUpstream({
    fallback: () => (turn++ % 2 === 0 ? { error: { status: 500 } } : answer),
  });
  stalling = await startUpstream({ fallback: () => withFaults(answer, { delayFirstByteMs: 600_000 }) });
  dispatcher = newUpstreamDispatcher();
});
afterAll(() => Promise.all([good.close(), half.close(), stalling.close()]));

const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;

test(
  "one upstream fails half of the time, one stalls: the clients hardly notice",
  async () => {
    const list = [good, half, stalling].map(({ url }, index) =>
      upstreamOf(url, "chat", { name: `u${index}` }),
    );
    const snapshot = snapshotOf([
      routeTo(list, {
        model: "chaos",
        affinity: "none",
        timeouts: { connectMs: 1_000, firstByteMs, streamIdleMs: 2_000, requestMs: 10_000 },
        retries: { attempts: 3, retryOn: ["connect", "rate_limited", "server_error", "first_byte_timeout"] },
      }),
    ]);
    const serve = createServe(
      new Upstreams(dispatcher),
      sealing([{ id: "t", key: Buffer.alloc(32) }]),
      noTools,
    );
    const timersBefore = timers();
    const load = async () => {
      const tookMs: number[] = [];
      let failed = 0;
      let unpaid = 0;
      const one = async (stream: boolean) => {
        const body = { model: "chaos", stream, messages: [{ role: "user", content: "hi" }] };
        const call = callOf("chat", snapshot, body);
        const started = performance.now();
        await serve(call).catch(() => (failed += 1));
        tookMs.push(performance.now() - started);
        if (call.meter.settled.length + call.meter.released !== 1) unpaid += 1;
      };
      const running: Promise<void>[] = [];
      let warmBytes = 0;
      const started = performance.now();
      for (let sent = 0; sent < seconds * requestsPerSecond;) {
        await new Promise((later) => setTimeout(later, 10));
        // As many as are due by now: a busy machine must not thin the load out.
        const due = Math.min(seconds, (performance.now() - started) / 1000) * requestsPerSecond;
        for (; sent < due; sent += 1) running.push(one(sent % 2 === 0));
        // The fakes' own logs are not what is measured.
        for (const fake of [good, half, stalling]) if (fake.requests.length > 200) fake.requests.length = 0;
        if (warmBytes === 0 && sent > (seconds * requestsPerSecond) / 3)
          warmBytes = process.memoryUsage().rss;
      }
      await Promise.all(running);
      return { tookMs, failed, unpaid, warmBytes };
    };
    // A process that stands still for as long as an upstream may, has given up a sound one for no fault of its own.
    const { tookMs, failed, unpaid, warmBytes } = await whileSteady(firstByteMs, load);
    tookMs.sort((one, other) => one - other);
    const p99 = tookMs[Math.floor(tookMs.length * 0.99)] ?? Infinity;
    expect(failed / tookMs.length).toBeLessThanOrEqual(0.001);
    expect(p99).toBeLessThan(3_000);
    expect(unpaid).toBe(0);
    expect(process.memoryUsage().rss - warmBytes).toBeLessThan(100 * 1024 * 1024);
    // Nothing is under way any more: no call, no timer, no connection that was given up. Later they would end by themselves.
    const soon = { timeout: 1_000 };
    await expect.poll(() => stalling.connections().open, soon).toBe(0);
    await expect.poll(() => timers() - timersBefore, soon).toBeLessThan(10);
    const { values } = await metrics.upstreamActive.get();
    expect(values.filter(({ labels }) => labels.model === "chaos").map(({ value }) => value)).toEqual([
      0, 0, 0,
    ]);
    await dispatcher.destroy();
    await expect
      .poll(() => [good, half, stalling].map((fake) => fake.connections().open), soon)
      .toEqual([0, 0, 0]);
  },
  (seconds + 60) * 1000,
);
