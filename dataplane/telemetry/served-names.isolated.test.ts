import { expect, test } from "vitest";
import { countCharge, countImplausible, countRequest } from "./counts.ts";
import { metrics, registry } from "./metrics.ts";
import { ServedNames } from "./served-names.ts";

const MINUTE_MS = 60_000;
const route = (model: string, ...upstreams: string[]) => ({
  model,
  upstreams: upstreams.map((name) => ({ name })),
});

/** Whatever a request, its charge and its calls count. */
function count(model: string, upstream: string): void {
  const labels = { model, upstream };
  countRequest({
    dialect: "chat",
    model,
    status: 200,
    whole: 1,
    firstByte: 1,
    upstreamWait: 1,
    exemplar: null,
  });
  const tokens = { input: 1, cache_read: 0, cache_write: 0, output: 1 };
  countCharge({ organizationId: "org_a", model, micros: 2_000_000, tokens });
  countImplausible(model, upstream);
  metrics.upstreamRequests.series({ ...labels, status: "200" }).value += 1;
  metrics.upstreamActive.series(labels).value += 1;
  metrics.upstreamEjected.set(labels, 0);
}

const linesWith = async (text: string) =>
  (await registry.metrics()).split("\n").filter((line) => line.includes(text));

test("what has left the configuration has no series any more, a while later", async () => {
  const names = new ServedNames();
  names.serve([route("lasting", "a", "old"), route("leaving", "a")], 0);
  for (const [model, upstream] of [
    ["lasting", "a"],
    ["lasting", "old"],
    ["leaving", "a"],
    ["none", "a"],
  ] as const)
    count(model, upstream);
  const leaving = await linesWith('model="leaving"');
  expect(leaving.length).toBeGreaterThan(10);
  // Whoever scrapes gets its last counts.
  names.serve([route("lasting", "a")], MINUTE_MS);
  names.serve([route("lasting", "a")], 10 * MINUTE_MS);
  expect(await linesWith('model="leaving"')).toEqual(leaving);
  names.serve([route("lasting", "a")], 11 * MINUTE_MS);
  expect([await linesWith('model="leaving"'), await linesWith('upstream="old"')]).toEqual([[], []]);
  // A last answer ends only now; the next one to leave takes its series along.
  count("leaving", "a");
  names.serve([route("lasting", "a"), route("next", "a")], 12 * MINUTE_MS);
  names.serve([route("lasting", "a")], 13 * MINUTE_MS);
  names.serve([route("lasting", "a")], 23 * MINUTE_MS);
  expect((await linesWith('model="leaving"')).filter((line) => !line.includes("ejected"))).toEqual([]);
  expect(await linesWith("gapura_credits_total")).toContain('gapura_credits_total{model="lasting"} 4');
  expect(await linesWith('gapura_requests_total{dialect="chat",model="none"')).toHaveLength(1);
});

test("a name that comes back counts on from nothing, and one that was gone for a moment from what it had", async () => {
  const names = new ServedNames();
  const shown = async (model: string) => (await linesWith(`gapura_credits_total{model="${model}"}`))[0];
  names.serve([route("back", "a"), route("soon", "a")], 0);
  count("back", "a");
  count("soon", "a");
  names.serve([], MINUTE_MS);
  names.serve([route("soon", "a")], 2 * MINUTE_MS);
  names.serve([route("soon", "a")], 30 * MINUTE_MS);
  names.serve([route("soon", "a"), route("back", "a")], 31 * MINUTE_MS);
  expect([await shown("back"), await shown("soon")]).toEqual([
    undefined,
    'gapura_credits_total{model="soon"} 2',
  ]);
  count("back", "a");
  count("soon", "a");
  expect([await shown("back"), await shown("soon")]).toEqual([
    'gapura_credits_total{model="back"} 2',
    'gapura_credits_total{model="soon"} 4',
  ]);
});
