import { expect, test } from "vitest";
import { LiveRequests, loopProbe } from "./live-load.ts";

test("nobody waits, until a request comes, and for two seconds after the last one", () => {
  let [now, share] = [10_000, 0.9];
  const live = new LiveRequests({ now: () => now, busyShare: () => share });
  expect(live.load()).toBe("none");
  live.arrived();
  expect(live.load()).toBe("heavy");
  share = 0.4;
  expect(live.load()).toBe("light");
  now += 2_001;
  share = 0.9;
  expect(live.load()).toBe("none");
});

test("the event loop's share of work is that since the last question", async () => {
  const probe = loopProbe();
  const until = performance.now() + 30;
  while (performance.now() < until);
  expect(probe.busyShare()).toBeGreaterThan(0.5);
  await new Promise((done) => setTimeout(done, 200));
  expect(probe.busyShare()).toBeLessThan(0.5);
});
