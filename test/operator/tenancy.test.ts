/** rules.md §8 with the real processes: what one namespace declares, and what the others notice of it. */
import { spawnSync } from "node:child_process";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { z } from "zod";
import { routingSchema } from "../../dataplane/config/schema.ts";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { API_VERSION } from "../../operator/api/fields.ts";
import { type Kind, KINDS } from "../../operator/api/kinds.ts";
import { runs } from "../fakes/runs.ts";
import type { DataPlanePod } from "./data-plane-pod.ts";
import { DataPlaneWorld } from "./data-plane-world.ts";
import { hostileAnswers, HostilePod } from "./hostile-pods.ts";
import type { KubeObject } from "./kube-client.ts";
import { conditionText } from "./kube-world.ts";
import { Objects, priceSpec, routeSpec } from "./objects.ts";
import { programEnvironment } from "../fakes/program-environment.ts";

const access = inject("kube");
const root = resolve(import.meta.dirname, "../..");

const dump = async (pod: DataPlanePod) => {
  const answer = await fetch(`${pod.opsUrl}/config/dump`, { signal: AbortSignal.timeout(10_000) });
  return z.object({ routing: routingSchema }).parse(await answer.json()).routing;
};
const modelsOf = async (pod: DataPlanePod, key: string): Promise<unknown> => {
  const answer = await fetch(`${pod.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  return await answer.json();
};

describe.skipIf(access === null)("under Namespaced", () => {
  const CASES = runs(50);
  const [platform, team, evil] = ["tenancy-platform", "tenancy-team", "tenancy-evil"];
  let world: DataPlaneWorld;
  let ofTeam: Objects;
  let ofEvil: Objects;
  let pod: DataPlanePod;
  let teamKey = "";

  beforeAll(async () => {
    world = await DataPlaneWorld.open(
      access as KubeAccess,
      platform,
      "the platform's words",
      "provider-key",
      {
        environment: {
          WATCH_NAMESPACES: [platform, team, evil].join(","),
          TENANCY: "Namespaced",
          PLATFORM_NAMESPACES: platform,
        },
      },
    );
    for (const namespace of [team, evil]) await world.client.makeNamespace(namespace);
    ofTeam = new Objects(world.client, team, () => world.operatorOutput);
    ofEvil = new Objects(world.client, evil, () => world.operatorOutput);
    await ofTeam.applySecret("provider", { "api-key": "team-provider" });
    await ofTeam.apply("PriceTable", "prices", priceSpec("team-model"));
    await ofTeam.apply("ModelRoute", "team-model", routeSpec("https://team.example"));
    await ofTeam.apply("ToolPolicy", "default", { webFetch: {} });
    await ofTeam.apply("Organization", "beta", {
      apiKeys: [{ name: "ci", secretKeyRef: { name: "beta-ci", key: "api-key" } }],
    });
    pod = await world.addPod("plane-0");
    await pod.untilReady();
    for (const [objects, kind, name] of [
      [world.objects, "ModelRoute", "m"],
      [world.objects, "Organization", "acme"],
      [ofTeam, "ModelRoute", "team-model"],
      [ofTeam, "Organization", "beta"],
    ] as const)
      await objects.untilCondition(kind, name, "Ready", /^True Ready: 1\/1 pods$/);
    teamKey = (await ofTeam.secret("beta-ci"))?.["api-key"] ?? "";
  }, 180_000);
  afterAll(() => world.close());

  test("a namespace's route serves that namespace's organizations, and nobody else", async () => {
    const ids = (answer: unknown) =>
      z
        .object({ data: z.array(z.object({ id: z.string() })) })
        .parse(answer)
        .data.map(({ id }) => id)
        .toSorted();
    expect(ids(await modelsOf(pod, teamKey))).toEqual(["m", "team-model"]);
    expect(ids(await modelsOf(pod, world.key))).toEqual(["m"]);
    await expect(world.service().ask(pod, "team-model")).rejects.toThrow(/^404 /);
  });

  test("a Secret that its namespace rewrites without pause is published every other second, and others' edits at once", async () => {
    await ofEvil.applySecret("provider", { "api-key": "evil-0" });
    await ofEvil.apply("PriceTable", "prices", priceSpec("evil-model"));
    await ofEvil.apply("ModelRoute", "evil-model", routeSpec("https://evil.example"));
    await ofEvil.untilCondition("ModelRoute", "evil-model", "Ready", /^True/);
    const SECONDS = 15;
    const ENOUGH = 50;
    const published = () => world.operatorOutput.split("published a snapshot").length;
    const before = published();
    const startedAt = performance.now();
    const until = startedAt + SECONDS * 1000;
    const editing = new AbortController();
    let writes = 0;
    const rewriting = (async () => {
      while (!editing.signal.aborted || writes <= ENOUGH) {
        await ofEvil.applySecret("provider", { "api-key": `evil-${(writes += 1)}` });
        await sleep(50);
      }
    })();
    const waits: number[] = [];
    try {
      for (let edit = 1; performance.now() < until - 3000; edit += 1) {
        await sleep(1500);
        const begun = performance.now();
        await ofTeam.apply("Organization", "beta", {
          displayName: `edit ${edit}`,
          apiKeys: [{ name: "ci", secretKeyRef: { name: "beta-ci", key: "api-key" } }],
        });
        await ofTeam.until("the edit is served", async () =>
          (await dump(pod)).organizations.some(({ displayName }) => displayName === `edit ${edit}`),
        );
        waits.push(performance.now() - begun);
      }
    } finally {
      editing.abort();
      await rewriting;
    }
    const seconds = (performance.now() - startedAt) / 1000;
    expect(published() - before - waits.length, "of its own").toBeLessThanOrEqual(10 + seconds / 2 + 1);
    expect(Math.max(...waits), "milliseconds").toBeLessThan(10_000);
    await ofEvil.until("the last value is published", async () => {
      const shards = ["a", "b"].map(async (slot) => {
        const path = `/api/v1/namespaces/${platform}/secrets/gapura-${slot}-credentials-0`;
        const { data = {} } = (await world.client.must("GET", path)) as { data?: Record<string, string> };
        return Object.values(data).map((bytes) => gunzipSync(Buffer.from(bytes, "base64")).toString());
      });
      return (await Promise.all(shards)).flat().some((text) => text.includes(`"evil-${writes}"`));
    });
  }, 120_000);

  test("keys that take several rounds to be made are published no sooner than a namespace's other changes", async () => {
    await using _silent = await HostilePod.start(world.client, platform, "silent", hostileAnswers.hangs);
    const published = () =>
      [...world.operatorOutput.matchAll(/"time":"([^"]+)"[^\n]*published a snapshot/g)].map(([, time = ""]) =>
        Date.parse(time),
      );
    const before = published().length;
    const ORGANIZATIONS = 8;
    const KEYS = 200;
    for (let n = 0; n < ORGANIZATIONS; n += 1)
      await ofEvil.apply("Organization", `many-${n}`, {
        apiKeys: Array.from({ length: KEYS }, (_, key) => ({
          name: `key-${key}`,
          secretKeyRef: { name: `many-${n}-${key}`, key: "api-key" },
        })),
      });
    await ofEvil.until(
      "all keys are made",
      async () => {
        const list = await world.client.must(
          "GET",
          `/api/v1/namespaces/${evil}/secrets?labelSelector=gapura.dev/generated-key`,
        );
        return (list as { items: unknown[] }).items.length === ORGANIZATIONS * KEYS;
      },
      90_000,
    );
    // A round makes keys for a second, which is not enough for all; the snapshot with the last ones comes after them.
    await ofEvil.until(
      "they are published in several rounds",
      async () => published().length > before + 1,
      15_000,
    );
    const times = published().slice(before);
    const pauses = times.slice(1).map((time, index) => time - (times[index] ?? 0));
    // A pod that takes nothing is waited for five seconds.
    expect(Math.min(...pauses), `milliseconds between ${times.length} rounds`).toBeGreaterThan(4900);
    for (let n = 0; n < ORGANIZATIONS; n += 1) await ofEvil.delete("Organization", `many-${n}`);
  }, 120_000);

  test(`${CASES} hostile namespaces change no snapshot, no status and no answer of the others`, async () => {
    await ofEvil.applySecret("provider", { "api-key": "evil-provider" });
    const names = ["m", "team-model", "default", "prices", "x", "y", "z"];
    const specs = {
      ModelRoute: fc
        .record({
          model: fc.constantFrom("m", "team-model", "x"),
          aliases: fc.subarray(["m", "gpt", "team-model"]),
        })
        .map(({ model, aliases }) => routeSpec("https://evil.example", { model, aliases })),
      ToolPolicy: fc.constantFrom(
        { webFetch: { egress: { allowCIDRs: ["127.0.0.0/8"], allowPorts: [9090] } } },
        { webSearch: { engine: { type: "Model", modelRoute: "m" } } },
        {},
      ),
      PriceTable: fc.subarray(["m", "team-model", "x"]).map((models) => priceSpec(...models)),
      Organization: fc.constantFrom(
        {},
        { id: "org_acme" },
        { id: `org_${team}_beta` },
        { credits: { grants: [{ name: "rich", amount: "9000000000" }] } },
      ),
    } satisfies Record<Kind, fc.Arbitrary<unknown>>;
    const object = fc
      .record({
        kind: fc.constantFrom(...KINDS),
        name: fc.constantFrom(...names, ...names.map((name) => `${name}-2`)),
      })
      .chain(({ kind, name }) =>
        (specs[kind] as fc.Arbitrary<unknown>).map((spec) => ({ kind, name, spec })),
      );
    const hostile = fc.uniqueArray(object, {
      minLength: 10,
      maxLength: 30,
      selector: ({ kind, name }) => `${kind} ${name}`,
    });

    const versions = async () =>
      JSON.stringify(
        await Promise.all(
          [world.objects, ofTeam].flatMap((objects) =>
            KINDS.map(async (kind) => {
              const { items } = (await world.client.must("GET", objects.path(kind))) as unknown as {
                items: { metadata: { name: string; resourceVersion: string } }[];
              };
              return items.map(({ metadata }) => [kind, metadata.name, metadata.resourceVersion]);
            }),
          ),
        ),
      );
    const ofOthers = async () => {
      const { routes, policies, organizations, objects } = await dump(pod);
      const isOther = ({ source }: { source: { namespace: string } }) => source.namespace !== evil;
      return JSON.stringify([
        routes.filter(isOther),
        Object.values(policies).filter(isOther),
        organizations.filter(isOther),
        objects.filter(({ namespace }) => namespace !== evil),
        await modelsOf(pod, world.key),
        await modelsOf(pod, teamKey),
      ]);
    };
    // Whatever the tests before this one made of the pods' count is told once a new object's status says that there is one.
    await ofEvil.apply("Organization", "before", {});
    await ofEvil.untilCondition("Organization", "before", "Ready", /^True Ready: 1\/1 pods$/);
    for (const objects of [world.objects, ofTeam])
      await objects.until("all of theirs are ready", async () => {
        const lists = await Promise.all(KINDS.map((kind) => world.client.must("GET", objects.path(kind))));
        const all = (lists as unknown as { items: KubeObject[] }[]).flatMap(({ items }) => items);
        return all.every((one) => conditionText(one, "Ready") === "True Ready: 1/1 pods");
      });
    const [statuses, others] = [await versions(), await ofOthers()];
    let refused = 0;
    for (const [number, objects] of fc.sample(hostile, { numRuns: CASES, seed: 24 }).entries()) {
      for (const kind of KINDS) await world.client.must("DELETE", ofEvil.path(kind));
      await Promise.all(
        objects.map(({ kind, name, spec }) =>
          world.client.must("POST", ofEvil.path(kind), {
            apiVersion: API_VERSION,
            kind,
            metadata: { name, namespace: evil },
            spec,
          }),
        ),
      );
      await ofEvil.apply("Organization", "marker", { displayName: `case ${number}` });
      await ofEvil.until("the case is served", async () =>
        (await dump(pod)).organizations.some(({ displayName }) => displayName === `case ${number}`),
      );
      expect(await ofOthers(), `case ${number}`).toBe(others);
      if (number % 10 === 0) expect(await world.service().ask(pod, "m")).toContain("the platform's words");
      refused += JSON.stringify(await world.client.must("GET", ofEvil.path("Organization"))).split(
        '"reason":"NotPermitted"',
      ).length;
    }
    expect(await versions(), "no status of theirs was written").toBe(statuses);
    expect(refused).toBeGreaterThan(CASES);
  }, 400_000);
});

describe.skipIf(access === null)("an organization id", () => {
  const [owner, squatter] = ["tenancy-owner", "tenancy-squatter"];
  let world: DataPlaneWorld;
  let ofSquatter: Objects;
  let pod: DataPlanePod;

  beforeAll(async () => {
    world = await DataPlaneWorld.open(access as KubeAccess, owner, "words", "provider-key", {
      environment: { WATCH_NAMESPACES: `${owner},${squatter}` },
    });
    await world.client.makeNamespace(squatter);
    ofSquatter = new Objects(world.client, squatter, () => world.operatorOutput);
    pod = await world.addPod("plane-0");
    await pod.untilReady();
    await world.objects.untilCondition("Organization", "acme", "Ready", /^True/);
  }, 180_000);
  afterAll(() => world.close());

  const release = (id: string) =>
    spawnSync(process.execPath, ["dataplane/main.ts", "release-organization", id], {
      cwd: root,
      encoding: "utf8",
      env: { ...programEnvironment(), DATABASE_URL: world.databaseUrl },
    });

  test("the finding: it stays its namespace's when its owner deletes it, until the platform releases it", async () => {
    const id = `org_${owner}_acme`;
    await ofSquatter.apply("Organization", "squat", { id });
    const conflicted = new RegExp(
      `^False Conflicted: spec\\.id: the id "${id}" belongs to another namespace, for ever; .*release-organization ${id}`,
    );
    await ofSquatter.untilCondition("Organization", "squat", "Accepted", conflicted);
    expect(release(id)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("still declared") as string,
    });
    expect(release("org_nobody")).toMatchObject({ status: 1 });

    await world.objects.delete("Organization", "acme");
    await world.objects.until(
      "it is gone from the pod",
      async () => (await dump(pod)).organizations.length === 0,
    );
    expect(await ofSquatter.condition("Organization", "squat", "Accepted")).toMatch(conflicted);

    // An operator that knows nothing any more: neither of the snapshot, nor of what it saw.
    for (const operator of world.operators.splice(0)) {
      operator.child.kill("SIGKILL");
      await operator.ended;
    }
    await world.client.must(
      "DELETE",
      `/api/v1/namespaces/${owner}/secrets?labelSelector=${encodeURIComponent("gapura.dev/snapshot=gapura")}`,
    );
    world.startOperator("operator-1", { environment: { WATCH_NAMESPACES: `${owner},${squatter}` } });
    await ofSquatter.apply("Organization", "squat", { id, displayName: "again" });
    await ofSquatter.untilCondition("Organization", "squat", "Accepted", conflicted);

    expect(release(id)).toMatchObject({
      status: 0,
      stdout: expect.stringContaining(`${id} belonged to namespace ${owner}`) as string,
    });
    await ofSquatter.untilCondition("Organization", "squat", "Ready", /^True/);
  }, 180_000);
});
