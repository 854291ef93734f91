/** The operator in its cluster form, against a real kube-apiserver: from an edit to a served and acknowledged route. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { freePort } from "../../hack/free-port.ts";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { API_VERSION } from "../../operator/api/fields.ts";
import { hostileAnswers, HostilePod } from "./hostile-pods.ts";
import { gapuraPath, KubeClient, type KubeObject } from "./kube-client.ts";
import { conditionText, type OperatorProcess, startOperator, TestPod } from "./kube-world.ts";
import { Objects, priceSpec, routeSpec } from "./objects.ts";

const access = inject("kube");
const namespace = "operator-main";

const route = routeSpec;

describe.skipIf(access === null)("the operator in a cluster", () => {
  let client: KubeClient;
  let operator: OperatorProcess;
  let pod: TestPod;
  let objects: Objects;

  const start = (name: string): OperatorProcess => {
    if (access === null) throw new Error("there is no API server");
    return startOperator(access, namespace, name);
  };
  /** Beside the one that leads; resolves when it knows all that it has to know to lead. */
  const startStandby = async (name: string): Promise<OperatorProcess> => {
    const port = await freePort();
    const environment = { OPS_PORT: String(port) };
    const standby = startOperator(access as KubeAccess, namespace, name, { environment });
    const isReady = () =>
      fetch(`http://127.0.0.1:${port}/readyz`)
        .then(({ ok }) => ok)
        .catch(() => false);
    await objects.until("the standby is ready", isReady);
    return standby;
  };
  const servedRoute = (model: string) =>
    pod.loader.current?.routing.routes.find((entry) => entry.model === model);

  beforeAll(async () => {
    if (access === null) throw new Error("there is no API server");
    client = new KubeClient(access);
    objects = new Objects(client, namespace, () => operator.output());
    await client.makeNamespace(namespace);
    operator = start("operator-0");
    pod = new TestPod(client, namespace, "data-plane-0");
    await pod.start();
  });
  afterAll(async () => {
    operator.child.kill("SIGKILL");
    await operator.ended;
    await pod.stop();
    await client.close();
  });

  test("rule 6.1: without a ready pod Programmed is False and says 0/0 pods", async () => {
    await objects.applySecret("provider", { "api-key": "first-key\n" });
    await objects.apply("PriceTable", "prices", {
      unit: "USD",
      models: [{ model: "m", input: "1", output: "2" }],
    });
    await objects.apply("ModelRoute", "m", route("https://one.example"));
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^False NoPods: 0\/0 pods$/);
    expect(conditionText(await objects.get("ModelRoute", "m"), "Ready")).toMatch(/^False/);
  });

  test("rule 6.2: a pod that is not ready is poked too, and Programmed follows its acknowledgement", async () => {
    await objects.until("the pod serves", async () => servedRoute("m") !== undefined);
    await pod.setReady(true);
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^True Programmed: 1\/1 pods$/);
    await objects.untilCondition("ModelRoute", "m", "Ready", /^True/);
    expect(pod.loader.current?.credential(`${namespace}/provider/api-key`)).toBe("first-key");
  });

  test("an edit is Programmed only once the pod serves it", async () => {
    pod.kubelet.frozen = true;
    await objects.apply("ModelRoute", "m", route("https://two.example"));
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^False Pending: 0\/1 pods$/);
    expect(await objects.condition("ModelRoute", "m", "Stalled")).toBe("none");
    expect(servedRoute("m")?.upstreams[0]?.url).toContain("one.example");
    pod.kubelet.frozen = false;
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^True Programmed: 1\/1 pods$/);
    expect(servedRoute("m")?.upstreams[0]?.url).toContain("two.example");
  });

  test("a rotated Secret is served within seconds, and no status is written for it", async () => {
    const before = await objects.version("ModelRoute", "m");
    await objects.applySecret("provider", { "api-key": "second-key" });
    await objects.until(
      "the new value is served",
      async () => pod.loader.current?.credential(`${namespace}/provider/api-key`) === "second-key",
      10_000,
    );
    expect(await objects.version("ModelRoute", "m")).toBe(before);
  });

  test("rule 6.6: neither an annotation nor an unrelated Secret writes a status or a snapshot", async () => {
    const serial = pod.loader.current?.index.serial;
    await objects.applySecret("unrelated", { a: "b" });
    const annotated = await client.must("PATCH", gapuraPath("modelroutes", namespace, "m"), {
      apiVersion: API_VERSION,
      kind: "ModelRoute",
      metadata: { name: "m", namespace, annotations: { note: "x" } },
      spec: route("https://two.example"),
    });
    await new Promise((done) => setTimeout(done, 1500));
    expect(await objects.version("ModelRoute", "m")).toBe(annotated.metadata?.resourceVersion);
    expect(pod.loader.current?.index.serial).toBe(serial);
  });

  test("rules 6.4, 6.5: a missing Secret is named, is an event, and the last good value stays", async () => {
    await client.must("DELETE", `/api/v1/namespaces/${namespace}/secrets/provider`);
    await objects.untilCondition("ModelRoute", "m", "ResolvedRefs", /^False SecretNotFound: .*"provider"/);
    await objects.untilCondition("ModelRoute", "m", "Accepted", /^True/);
    await objects.untilCondition("ModelRoute", "m", "ResolvedRefs", /^False SecretNotFound/);
    expect(await objects.condition("ModelRoute", "m", "Stalled")).toBe("none");
    expect(pod.loader.current?.credential(`${namespace}/provider/api-key`)).toBe("second-key");
    await objects.until("an event", async () => {
      const list = await client.must("GET", `/apis/events.k8s.io/v1/namespaces/${namespace}/events`);
      const { items } = list as unknown as { items: { reason: string; regarding: { name: string } }[] };
      return items.some(({ reason, regarding }) => reason === "SecretNotFound" && regarding.name === "m");
    });
    await objects.applySecret("provider", { "api-key": "third-key" });
    await objects.untilCondition("ModelRoute", "m", "Ready", /^True/);
  });

  /** When the object whose Secret nobody writes was found to lack it, and when it was Stalled, in Unix milliseconds. */
  let late: { readonly since: number; readonly stalled: Promise<number> };

  test("rule 6.4: an object whose Secret nobody writes is told at once", async () => {
    await objects.apply("PriceTable", "late", priceSpec("late"));
    const credentials = { secretKeyRef: { name: "never-written", key: "api-key" } };
    const upstreams = [{ name: "one", dialect: "Messages", baseURL: "https://one.example", credentials }];
    await objects.apply("ModelRoute", "late", {
      ...route("", { model: "late", priceTableRef: { name: "late" } }),
      upstreams,
    });
    await objects.untilCondition("ModelRoute", "late", "ResolvedRefs", /^False SecretNotFound/);
    expect(await objects.condition("ModelRoute", "late", "Stalled")).toBe("none");
    const stalled = objects.untilCondition("ModelRoute", "late", "Stalled", /^True SecretNotFound/, 120_000);
    late = { since: Date.now(), stalled: stalled.then(() => Date.now()) };
    late.stalled.catch(() => {});
  });

  test("conflicts: the younger of two routes of one model is not accepted, and the older stays ready", async () => {
    await new Promise((done) => setTimeout(done, 1000));
    await objects.apply("ModelRoute", "m-again", { ...route("https://three.example"), model: "m" });
    await objects.untilCondition("ModelRoute", "m-again", "Accepted", /^False Conflicted/);
    await objects.untilCondition("ModelRoute", "m", "Ready", /^True/);
    expect(servedRoute("m")?.upstreams[0]?.url).not.toContain("three.example");
    await client.must("DELETE", gapuraPath("modelroutes", namespace, "m-again"));
  });

  test("rules 1.16, 6.9: a declared key is generated into its Secret, which outlives the Organization and restores the key", async () => {
    const spec = { apiKeys: [{ name: "ci", secretKeyRef: { name: "acme-ci", key: "api-key" } }] };
    const served = () => pod.loader.current?.organization(`org_${namespace}_acme`);
    await objects.apply("Organization", "acme", spec);
    await objects.untilCondition("Organization", "acme", "Ready", /^True/);
    const { metadata } = await client.must("GET", `/api/v1/namespaces/${namespace}/secrets/acme-ci`);
    // With an owner it would be collected with it.
    expect(metadata).not.toHaveProperty("ownerReferences");
    expect(metadata).toMatchObject({
      labels: { "gapura.dev/generated-key": "true" },
      annotations: { "gapura.dev/organization": "acme" },
    });
    const key = (await objects.secret("acme-ci"))?.["api-key"];
    expect(key).toMatch(/^sk-svc-[A-Za-z0-9]{40}$/);
    const [before] = served()?.apiKeys ?? [];
    await client.must("DELETE", gapuraPath("organizations", namespace, "acme"));
    await objects.until("the organization is gone", async () => served() === undefined);
    await objects.apply("Organization", "acme", spec);
    await objects.untilCondition("Organization", "acme", "Ready", /^True/);
    expect((await objects.secret("acme-ci"))?.["api-key"]).toBe(key);
    expect(served()?.apiKeys).toEqual([before]);
  });

  test("rule 6.9: a value of the wrong form stays, a missing data key is added beside the rest", async () => {
    await objects.applySecret("mixed", { other: "kept", wrong: "no key" });
    await objects.apply("Organization", "mixed", {
      apiKeys: [
        { name: "wrong", secretKeyRef: { name: "mixed", key: "wrong" } },
        { name: "new", secretKeyRef: { name: "mixed", key: "new" } },
      ],
    });
    await objects.untilCondition("Organization", "mixed", "ResolvedRefs", /^False SecretInvalid/);
    const secret = await client.must("GET", `/api/v1/namespaces/${namespace}/secrets/mixed`);
    const { data = {} } = secret as { data?: Record<string, string> };
    const text = (key: string) => Buffer.from(data[key] ?? "", "base64").toString();
    expect([text("other"), text("wrong"), text("new").slice(0, 7)]).toEqual(["kept", "no key", "sk-svc-"]);
  });

  test("rule 6.4: a key that the cluster does not let it make is told in the cluster's own words, and made once it may be", async () => {
    const name = "operator-main-no-keys";
    const path = (plural: string) => `/apis/admissionregistration.k8s.io/v1/${plural}/${name}`;
    const of = (kind: string, spec: object) => ({
      apiVersion: "admissionregistration.k8s.io/v1",
      kind,
      metadata: { name },
      spec,
    });
    const secrets = { apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["secrets"] };
    const words = "every Secret needs an owner";
    const policy = of("ValidatingAdmissionPolicy", {
      matchConstraints: { resourceRules: [secrets] },
      validations: [{ expression: "object.metadata.name != 'unmade'", message: words }],
    });
    const binding = of("ValidatingAdmissionPolicyBinding", {
      policyName: name,
      validationActions: ["Deny"],
      matchResources: {
        namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": namespace } },
      },
    });
    await client.must("PATCH", path("validatingadmissionpolicies"), policy);
    await client.must("PATCH", path("validatingadmissionpolicybindings"), binding);
    const unmade = { apiVersion: "v1", kind: "Secret", metadata: { name: "unmade" } };
    await client.until("the policy holds", async () => {
      const { status } = await client.call("POST", `/api/v1/namespaces/${namespace}/secrets`, unmade);
      if (status < 300) await objects.deleteSecret("unmade");
      return status === 422;
    });
    await objects.apply("Organization", "unmade", {
      apiKeys: [{ name: "ci", secretKeyRef: { name: "unmade", key: "api-key" } }],
    });
    const told = new RegExp(`^False SecretNotFound: .*"unmade".*cannot be made there: .*${words}`);
    await objects.untilCondition("Organization", "unmade", "ResolvedRefs", told);
    await client.must("DELETE", path("validatingadmissionpolicybindings"));
    await client.must("DELETE", path("validatingadmissionpolicies"));
    await objects.untilCondition("Organization", "unmade", "ResolvedRefs", /^True/, 60_000);
    expect((await objects.secret("unmade"))?.["api-key"]).toMatch(/^sk-svc-/);
  });

  test("the seal key is made once", async () => {
    const secret = await client.must("GET", `/api/v1/namespaces/${namespace}/secrets/gapura-seal`);
    const { data = {} } = secret as { data?: Record<string, string> };
    expect(Buffer.from(data["seal-keys"] ?? "", "base64").toString()).toMatch(/^k1:[A-Za-z0-9+/]{43}=$/);
  });

  test("rule 6.6: a tampered status is put right", async () => {
    const object = await objects.get("ModelRoute", "m");
    await client.must("PUT", `${gapuraPath("modelroutes", namespace, "m")}/status`, {
      ...object,
      status: { observedGeneration: 1, conditions: [] },
    });
    await objects.untilCondition("ModelRoute", "m", "Ready", /^True/);
    const mended = (await objects.get("ModelRoute", "m")) as { status?: { conditions?: unknown[] } };
    expect(mended.status?.conditions?.length).toBeGreaterThan(1);
  });

  test("rules 6.5, 6.6: deleted snapshot Secrets come back within 60 s, the last good form of a broken route in them", async () => {
    const url = servedRoute("m")?.upstreams[0]?.url;
    await objects.apply("ModelRoute", "m", {
      ...route("https://broken.example"),
      priceTableRef: { name: "nowhere" },
    });
    await objects.untilCondition("ModelRoute", "m", "ResolvedRefs", /^False PriceNotFound/);
    const list = await client.must(
      "GET",
      `/api/v1/namespaces/${namespace}/secrets?labelSelector=gapura.dev/snapshot=gapura`,
    );
    const { items } = list as unknown as {
      items: { metadata: { name: string }; data?: Record<string, string> }[];
    };
    for (const { metadata, data } of items)
      if (data !== undefined)
        await client.must("DELETE", `/api/v1/namespaces/${namespace}/secrets/${metadata.name}`);
    // What the pod mounts next is what was published after the deletion.
    const index = async (slot: string) =>
      (await objects.secret(`gapura-${slot}-0`))?.[`${slot}-index.json`] ?? null;
    await objects.until(
      "a snapshot is published",
      async () => ((await index("a")) ?? (await index("b"))) !== null,
      60_000,
    );
    const published = JSON.parse((await index("a")) ?? (await index("b")) ?? "") as { serial: number };
    await objects.until(
      "the pod serves it",
      async () => (pod.loader.current?.index.serial ?? 0) >= published.serial,
    );
    expect(url).toBeDefined();
    expect(servedRoute("m")?.upstreams[0]?.url).toBe(url);
    await objects.apply("ModelRoute", "m", route("https://two.example"));
    await objects.untilCondition("ModelRoute", "m", "Ready", /^True/);
  }, 90_000);

  test("rule 6.6: what somebody writes into snapshot Secrets is put right within seconds", async () => {
    const inUse = async () => {
      for (const slot of ["a", "b"]) {
        const data = (await objects.secret(`gapura-${slot}-0`)) ?? {};
        const index = data[`${slot}-index.json`];
        if (index !== undefined) return { name: `gapura-${slot}-0`, piece: `${slot}-0.gz`, data, index };
      }
      throw new Error("nothing is published");
    };
    await objects.untilCondition("ModelRoute", "m", "Ready", /^True/);
    // Twice, so that the second time falls between two of the regular verifications.
    for (const round of ["one", "two"]) {
      const { name, index } = await inUse();
      await objects.applySecret(name, { [`foreign-${round}`]: "x" });
      await objects.until(
        "the foreign key is gone",
        async () => (await objects.secret(name))?.[`foreign-${round}`] === undefined,
        10_000,
      );
      expect((await inUse()).index).toBe(index);
    }
    const { name, piece, index } = await inUse();
    await objects.applySecret(name, { [piece]: "damaged" });
    await objects.until(
      "the pod serves another serial",
      async () => {
        const serial = pod.loader.current?.index.serial ?? 0;
        return serial > (JSON.parse(index) as { serial: number }).serial;
      },
      15_000,
    );
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^True Programmed: 1\/1 pods$/);
  }, 60_000);

  test("rule 6.6: it is put right within a minute also while edits go on and a pod takes none", async () => {
    await using _silent = await HostilePod.start(client, namespace, "silent", hostileAnswers.hangs);
    const serial = () => pod.loader.current?.index.serial ?? 0;
    const before = serial();
    // One that small configurations leave empty.
    const name = "gapura-a-1";
    const ended = new AbortController();
    const editing = (async () => {
      for (let edit = 1; !ended.signal.aborted; edit += 1) {
        await objects.apply("ModelRoute", "m", route(`https://edit-${edit}.example`));
        await sleep(500);
      }
    })();
    try {
      await objects.until("two edits are served", async () => serial() > before + 1);
      await client.must("PATCH", `/api/v1/namespaces/${namespace}/secrets/${name}`, {
        apiVersion: "v1",
        kind: "Secret",
        metadata: { name, namespace, labels: { "gapura.dev/snapshot": "gapura" } },
        stringData: { foreign: "x" },
      });
      const foreign = async () => (await objects.secret(name))?.["foreign"];
      await expect.poll(foreign, { timeout: 60_000, interval: 200 }).toBe(undefined);
    } finally {
      ended.abort();
      await editing;
    }
    await objects.apply("ModelRoute", "m", route("https://two.example"));
  }, 90_000);

  test("an Organization of the longest name gets its status", async () => {
    const name = "o".repeat(253);
    await objects.apply("Organization", name, {});
    await objects.untilCondition("Organization", name, "Programmed", /^True Programmed: 1\/1 pods$/);
    expect((await objects.get("Organization", name)).status).toMatchObject({
      id: `org_${namespace}_${name}`,
    });
    await objects.delete("Organization", name);
  });

  test("a deleted route is served no more", async () => {
    await objects.apply("ModelRoute", "gone", { ...route("https://four.example"), model: "gone" });
    await objects.untilCondition("ModelRoute", "gone", "Ready", /PriceNotFound|True/);
    await client.must("DELETE", gapuraPath("modelroutes", namespace, "gone"));
    await expect.poll(() => servedRoute("gone"), { timeout: 40_000 }).toBe(undefined);
  });

  test("rule 6.4: an object whose Secret nobody writes is Stalled after a minute, and not before", async () => {
    expect((await late.stalled) - late.since).toBeGreaterThan(50_000);
    await client.must("DELETE", gapuraPath("modelroutes", namespace, "late"));
  }, 120_000);

  test("rule 6.10: SIGTERM ends with 0 and releases the lease; the standby takes over", async () => {
    const standby = await startStandby("operator-1");
    const leasePath = `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases/gapura-operator`;
    const holder = async () =>
      ((await client.must("GET", leasePath)).spec as { holderIdentity?: string }).holderIdentity;
    expect(await holder()).toContain("operator-0");
    const first = operator;
    operator = standby;
    first.child.kill("SIGTERM");
    expect(await first.ended).toBe(0);
    await objects.until(
      "the standby leads",
      async () => (await holder())?.includes("operator-1") === true,
      8000,
    );
    await objects.apply("ModelRoute", "m", route("https://five.example"));
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^True/);
  });

  test("rule 6.10: after SIGKILL another one leads within 20 s, and without a change it writes no status", async () => {
    const before = await objects.version("ModelRoute", "m");
    const next = await startStandby("operator-2");
    operator.child.kill("SIGKILL");
    await operator.ended;
    operator = next;
    await objects.until(
      "the next one leads",
      async () => next.output().includes("this replica leads"),
      20_000,
    );
    await new Promise((done) => setTimeout(done, 3000));
    expect(await objects.version("ModelRoute", "m")).toBe(before);
    const list = (await client.must("GET", gapuraPath("modelroutes", namespace))) as unknown as {
      items: KubeObject[];
    };
    expect(list.items.map(({ metadata }) => metadata?.name)).toEqual(["m"]);
  }, 60_000);
});
