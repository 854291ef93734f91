/**
 * Operator and data plane together: the real processes over a real API server, Postgres and Redis; only kubelet and
 * Service are the test's own.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import type { DataPlanePod } from "./data-plane-pod.ts";
import { DataPlaneWorld } from "./data-plane-world.ts";
import { hostileAnswers, HostilePod } from "./hostile-pods.ts";
import type { KubeClient } from "./kube-client.ts";
import type { Objects } from "./objects.ts";
import type { Service } from "./service.ts";

const access = inject("kube");
const namespace = "operator-data-plane";
const PROVIDER_KEY = "provider-key-that-must-not-leak";

describe.skipIf(access === null)("operator and data planes", () => {
  let world: DataPlaneWorld;
  let client: KubeClient;
  let objects: Objects;
  let pods: readonly DataPlanePod[];
  let service: Service;

  beforeAll(async () => {
    if (access === null) throw new Error("there is no API server");
    world = await DataPlaneWorld.open(access, namespace, "first words", PROVIDER_KEY);
    ({ client, objects, pods } = world);
    service = world.service();
    const started = await Promise.all([world.addPod("plane-0"), world.addPod("plane-1")]);
    await Promise.all(started.map((pod) => pod.untilReady()));
  });
  afterAll(() => world.close());

  test("two pods serve what was declared; a status that was written for one is brought up to date at rest", async () => {
    for (const [kind, name] of [
      ["ModelRoute", "m"],
      ["Organization", "acme"],
      ["PriceTable", "prices"],
    ] as const)
      await objects.untilCondition(kind, name, "Programmed", /^True Programmed: 2\/2 pods$/, 40_000);
    for (const pod of pods) expect(await service.ask(pod, "m")).toContain("first words");
  });

  test("an edit with kubectl changes the answers, and only when every pod gives the new one it is Programmed", async () => {
    const [first, second] = pods as [DataPlanePod, DataPlanePod];
    second.kubelet.frozen = true;
    try {
      await world.editToSay("second words");
      await objects.until("one pod answers anew", async () =>
        (await service.ask(first, "m")).includes("second words"),
      );
      await objects.untilCondition("ModelRoute", "m", "Programmed", /^False Pending: 1\/2 pods$/);
      expect(await service.ask(second, "m")).toContain("first words");
      expect(await objects.condition("Organization", "acme", "Programmed")).toBe("True Programmed: 2/2 pods");
    } finally {
      second.kubelet.frozen = false;
    }
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^True Programmed: 2\/2 pods$/);
    for (const pod of pods) expect(await service.ask(pod, "m")).toContain("second words");
  });

  test("rule 6.2: a pod is replaced under load: no request fails, and no status is written", async () => {
    const versions = () =>
      Promise.all([objects.version("ModelRoute", "m"), objects.version("Organization", "acme")]);
    const before = await versions();
    await service.load("m", 3, async () => {
      const fresh = await world.addPod("plane-2");
      await fresh.untilReady();
      await world.stopOldestPod();
      // The operator asks the new pod and forgets the old one.
      await objects.until("it answers", async () => (await service.ask(fresh, "m")).includes("second words"));
      await sleep(2000);
    });
    expect(service.failures).toEqual([]);
    expect(service.answered).toBeGreaterThan(20);
    expect(await versions()).toEqual(before);
    expect(await objects.condition("ModelRoute", "m", "Programmed")).toBe("True Programmed: 2/2 pods");
  });

  test("rule 6.1: pods that hang, never end, speak for another or talk rubbish count as none and hold up nothing", async () => {
    const hostile = await Promise.all(
      Object.entries(hostileAnswers).map(([name, answer]) =>
        HostilePod.start(client, namespace, `hostile-${name}`, answer),
      ),
    );
    try {
      await world.editToSay("fourth words");
      for (const pod of pods)
        await objects.until("the well pods serve the edit", async () =>
          (await service.ask(pod, "m")).includes("fourth words"),
        );
      await objects.untilCondition("ModelRoute", "m", "Programmed", /^False Pending: 2\/7 pods$/, 30_000);
      const silent = world.operatorOutput.match(/"pod":"hostile-\w+","reason":"[^"]+"/g) ?? [];
      expect(new Set(silent)).toEqual(
        new Set([
          '"pod":"hostile-hangs","reason":"it does not answer in time"',
          '"pod":"hostile-endless","reason":"its answer is too large"',
          '"pod":"hostile-drips","reason":"it does not answer in time"',
          '"pod":"hostile-foreign","reason":"another pod answers at its address"',
          '"pod":"hostile-malformed","reason":"its answer is malformed"',
        ]),
      );
    } finally {
      await Promise.all(hostile.map((pod) => pod[Symbol.asyncDispose]()));
    }
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^True Programmed: 2\/2 pods$/);
  });

  test("no key stands anywhere but in its Secrets", async () => {
    const seal = (await objects.secret("gapura-seal"))?.["seal-keys"] ?? "";
    const rotated = "rotated-key-that-must-not-leak";
    await objects.applySecret("provider", { "api-key": rotated });
    await objects.until("the new key goes upstream", async () => {
      for (const pod of pods) await service.ask(pod, "m");
      return world.upstreams.at(-1)?.requests.at(-1)?.headers["x-api-key"] === rotated;
    });
    const secrets = [world.key, PROVIDER_KEY, rotated, seal.slice(3)];
    expect(secrets.every((secret) => secret.length > 20)).toBe(true);

    const places = new Map<string, string>();
    places.set("the operator's log", world.operatorOutput);
    for (const [number, pod] of pods.entries()) {
      places.set(`log of pod ${number}`, pod.output);
      for (const path of ["/config/status", "/config/dump", "/metrics"])
        places.set(`${path} of pod ${number}`, await (await fetch(`${pod.opsUrl}${path}`)).text());
    }
    for (const path of [
      ...["modelroutes", "pricetables", "organizations", "toolpolicies"].map(
        (plural) => `/apis/gapura.dev/v1alpha1/namespaces/${namespace}/${plural}`,
      ),
      ...["pods", "configmaps", "events"].map((plural) => `/api/v1/namespaces/${namespace}/${plural}`),
      `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`,
    ])
      places.set(path, JSON.stringify(await client.must("GET", path)));
    const list = (await client.must("GET", `/api/v1/namespaces/${namespace}/secrets`)) as unknown as {
      items: { metadata: { name: string }; data?: Record<string, string> }[];
    };
    const own = ["acme-ci", "provider", "gapura-seal"];
    let credentials = "";
    for (const { metadata, data = {} } of list.items) {
      if (own.includes(metadata.name)) continue;
      for (const [file, value] of Object.entries(data)) {
        const bytes = Buffer.from(value, "base64");
        const text = (file.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString();
        if (file.includes("-credentials-")) credentials += text;
        else places.set(`${metadata.name}/${file}`, text);
      }
    }
    // The credentials part carries what goes upstream, and no client's key.
    expect([credentials.includes(rotated), credentials.includes(world.key)]).toEqual([true, false]);
    expect([...places.keys()].some((place) => place.endsWith("index.json"))).toBe(true);
    const leaks = [...places].flatMap(([place, text]) =>
      secrets.some((secret) => text.includes(secret)) ? [place] : [],
    );
    expect(leaks).toEqual([]);
  });
});
