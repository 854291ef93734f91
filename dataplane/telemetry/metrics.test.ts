import { expect, test } from "vitest";
import { dialects } from "../dialects/dialect.ts";
import { countCharge, countRequest, countStatement } from "./counts.ts";
import { metrics, registry } from "./metrics.ts";
import { showOrganizations } from "./organization-metrics.ts";

test("200 models in each dialect make no more series than a scrape can hold", async () => {
  for (const dialect of dialects)
    for (let model = 0; model < 200; model += 1)
      countRequest({
        dialect,
        model: `m${model}`,
        status: 200,
        whole: 1,
        firstByte: 0.5,
        upstreamWait: 0.4,
        exemplar: null,
      });
  const text = await registry.metrics();
  const lines = (name: string) => text.split("\n").filter((line) => line.startsWith(name)).length;
  expect(lines("gapura_request_duration_seconds") + lines("gapura_first_byte_seconds")).toBeLessThanOrEqual(
    10_500,
  );
});

test("a statement is counted by its first word, and by no word that somebody made up", async () => {
  const operations = async () => {
    const { values } = await metrics.storeSeconds.get();
    // Other files of this worker may have run scripts on a Redis.
    const ofPostgres = values.filter(({ labels }) => labels.store === "postgres");
    return new Set(ofPostgres.map(({ labels }) => labels.operation));
  };
  countStatement("\n  SELECT 1", 0.001);
  countStatement("vacuum full", 2);
  countStatement("", 0);
  expect(await operations()).toEqual(new Set(["select", "other"]));
});

test("rule 14.6: nothing is told of organizations unless that is wanted, and then of those that are served", async () => {
  const charge = (organizationId: string) =>
    countCharge({
      organizationId,
      model: "m",
      micros: 2_000_000,
      tokens: { input: 1, cache_read: 0, cache_write: 0, output: 1 },
    });
  charge("org_a");
  expect(await registry.metrics()).not.toContain("gapura_organization_");
  const shown = showOrganizations((id) => (id === "org_gone" ? undefined : `ns/${id}`));
  shown.balances([
    ["org_a", 5.5],
    ["org_gone", 1],
  ]);
  for (const id of ["org_a", "org_b", "org_gone"]) charge(id);
  const told = (await registry.metrics())
    .split("\n")
    .filter((line) => line.startsWith("gapura_organization_"));
  expect(told).toEqual([
    'gapura_organization_balance_credits{organization="ns/org_a"} 5.5',
    'gapura_organization_spend_credits_total{organization="ns/org_a"} 2',
    'gapura_organization_spend_credits_total{organization="ns/org_b"} 2',
  ]);
});

test("credits are told as they were charged, to the last digit, at each look", async () => {
  // Organizations are shown since the test before.
  const charge = (micros: number) =>
    countCharge({
      organizationId: "org_exact",
      model: "exact",
      micros,
      tokens: { input: 1, cache_read: 0, cache_write: 0, output: 1 },
    });
  const told = async () =>
    (await registry.metrics()).split("\n").filter((line) => /^gapura.*exact"} .*\./.test(line));
  // As fractions of credits they would come to 0.30000000000000004.
  for (let time = 0; time < 3; time += 1) charge(100_000);
  const shown = (credits: string) => [
    `gapura_credits_total{model="exact"} ${credits}`,
    `gapura_organization_spend_credits_total{organization="ns/org_exact"} ${credits}`,
  ];
  expect(await told()).toEqual(shown("0.3"));
  charge(200_003);
  expect(await told()).toEqual(shown("0.500003"));
});
