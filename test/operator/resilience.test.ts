/** What an operator lives through: watches that break, refusals, rotated credentials, a frozen leader, wrong clocks. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { ApiProxy } from "./api-proxy.ts";
import { KubeClient } from "./kube-client.ts";
import { type OperatorProcess, startOperator, TestPod } from "./kube-world.ts";
import { Objects, priceSpec, routeSpec } from "./objects.ts";

const access = inject("kube");
const namespace = "operator-resilience";
const HOUR_MS = 3_600_000;
const lease = `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases/gapura-operator`;

describe.skipIf(access === null)("an operator in trouble", () => {
  let client: KubeClient;
  let objects: Objects;
  let pod: TestPod;
  const proxies: ApiProxy[] = [];
  const operators: OperatorProcess[] = [];
  let edits = 0;

  /** Whoever leads has no need to be known. */
  const output = () => operators.map((operator) => operator.output()).join("");
  const served = () =>
    pod.loader.current?.routing.routes.find(({ model }) => model === "m")?.upstreams[0]?.url;
  /** Changes the route and waits until the pod serves the change and the status says so. */
  const edit = async (timeoutMs = 20_000): Promise<void> => {
    edits += 1;
    const host = `edit-${edits}.example`;
    await objects.apply("ModelRoute", "m", routeSpec(`https://${host}`));
    await objects.until(`${host} is served`, async () => served()?.includes(host) === true, timeoutMs);
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^True Programmed: 1\/1 pods$/, timeoutMs);
  };
  const leader = async () =>
    ((await client.must("GET", lease)).spec as { holderIdentity?: string } | undefined)?.holderIdentity ?? "";
  const writesBesideLeases = () => first().writes.filter(({ path }) => !path.includes("/leases")).length;
  /** Waits until nothing is written for two seconds: what an edit means for other objects comes after its own status. */
  const untilQuiet = async (): Promise<void> => {
    for (let before = -1; before !== writesBesideLeases();) {
      before = writesBesideLeases();
      await sleep(2000);
    }
  };
  const isAlive = ({ child }: OperatorProcess) => child.exitCode === null && child.signalCode === null;
  const first = () => {
    const [proxy] = proxies;
    if (proxy === undefined) throw new Error("there is no proxy");
    return proxy;
  };

  beforeAll(async () => {
    if (access === null) throw new Error("there is no API server");
    client = new KubeClient(access);
    objects = new Objects(client, namespace, output);
    await client.makeNamespace(namespace);
    await objects.applySecret("provider", { "api-key": "the-key" });
    await objects.apply("PriceTable", "prices", priceSpec("m"));
    pod = new TestPod(client, namespace, "data-plane-0");
    await pod.start();
    // Two that begin in the same moment, each with a clock of its own.
    for (const [number, shiftMs] of [HOUR_MS, -HOUR_MS].entries()) {
      const proxy = await ApiProxy.open(access);
      proxies.push(proxy);
      operators.push(
        startOperator(proxy, namespace, `operator-${number}`, {
          preload: "shift-clock.ts",
          environment: { GAPURA_TEST_CLOCK_MS: String(shiftMs) },
        }),
      );
    }
    await pod.setReady(true);
    await objects.until("somebody leads", async () => (await client.call("GET", lease)).status === 200);
    // The tests speak of the first as the leader.
    await objects.until("its name is known", async () => (await leader()) !== "");
    if ((await leader()).includes("operator-1")) {
      proxies.reverse();
      operators.reverse();
    }
    await edit();
  });
  afterAll(async () => {
    for (const { child, ended } of operators) {
      child.kill("SIGKILL");
      await ended;
    }
    await pod.stop();
    for (const proxy of proxies) await proxy.close();
    await client.close();
  });

  test("of two replicas that begin together one alone writes, and the seal key is made once", () => {
    const seals = proxies.flatMap(({ writes }) => writes.filter(({ body }) => body.includes("seal-keys")));
    expect(seals.map(({ status }) => status)).toEqual([201]);
    const writesOfStandby = proxies[1]?.writes.filter(({ path }) => !path.includes("/leases"));
    expect(writesOfStandby).toEqual([]);
  });

  test("rule 6.6: an edit costs at most three status writes, and what means nothing costs none", async () => {
    const path = objects.path("ModelRoute", "m");
    await untilQuiet();
    const before = first().statusWrites(path).length;
    await edit();
    await untilQuiet();
    const afterEdit = first().statusWrites(path).length;
    expect(afterEdit - before).toBeGreaterThan(0);
    expect(afterEdit - before).toBeLessThanOrEqual(3);
    const writes = writesBesideLeases();
    await objects.apply("ModelRoute", "m", routeSpec(`https://edit-${edits}.example`), { note: "nothing" });
    await objects.applySecret("unrelated", { a: "b" });
    await sleep(2000);
    expect(writesBesideLeases()).toBe(writes);
  });

  test("every watch is cut: what changes meanwhile and afterwards is served", async () => {
    first().fault = ({ isWatch }) => (isWatch ? "reset" : null);
    expect(first().dropWatches()).toBeGreaterThan(3);
    edits += 1;
    await objects.apply("ModelRoute", "m", routeSpec(`https://edit-${edits}.example`));
    await sleep(300);
    first().fault = () => null;
    await objects.until("the change is served", async () => served()?.includes(`edit-${edits}.`) === true);
    await edit();
  });

  test("410 Gone: everything is listed anew, and what was deleted meanwhile is served no more", async () => {
    await objects.apply("ModelRoute", "gone", routeSpec("https://gone.example", { model: "gone" }));
    await objects.apply("PriceTable", "prices", priceSpec("m", "gone"));
    const models = () => pod.loader.current?.routing.routes.map(({ model }) => model) ?? [];
    await objects.until("it is served", async () => models().includes("gone"));
    first().fault = ({ isWatch }) => (isWatch ? { status: 410 } : null);
    expect(first().expireWatches()).toBeGreaterThan(3);
    await objects.delete("ModelRoute", "gone");
    await sleep(300);
    first().fault = () => null;
    await objects.until("it is served no more", async () => !models().includes("gone"));
    await edit();
  });

  test("429: the operator leaves the API server alone for as long as it asks to, and then goes on", async () => {
    first().dropWatches();
    first().fault = ({ path }) =>
      path.includes("/leases") ? null : { status: 429, headers: { "retry-after": "2" } };
    edits += 1;
    await objects.apply("ModelRoute", "m", routeSpec(`https://edit-${edits}.example`));
    const before = first().calls.length;
    await sleep(2500);
    const refused = first()
      .calls.slice(before)
      .filter(({ status }) => status === 429);
    // Six informers and the round, each at most twice.
    expect(refused.length).toBeGreaterThan(0);
    expect(refused.length).toBeLessThan(20);
    first().fault = () => null;
    await objects.until("the change is served", async () => served()?.includes(`edit-${edits}.`) === true);
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^True/);
  });

  test("409: a status that meets conflicts is written once they end", async () => {
    let conflicts = 3;
    first().fault = ({ path, method }) =>
      method === "PATCH" && path.endsWith("/status") && (conflicts -= 1) >= 0 ? { status: 409 } : null;
    await edit(15_000);
    expect(conflicts).toBeLessThan(0);
    first().fault = () => null;
  });

  test("another release that watches the same namespace costs few status writes, and what stands there is right when it is gone", async () => {
    const path = objects.path("ModelRoute", "m");
    const before = first().statusWrites(path).length;
    const other = startOperator(client.access, namespace, "other", {
      environment: { SNAPSHOT_NAME: "other", DATA_PLANE_SELECTOR: "app.kubernetes.io/instance=other" },
    });
    try {
      await objects.until("it writes too", async () =>
        (await objects.condition("ModelRoute", "m", "Programmed")).includes("0/0 pods"),
      );
      await sleep(10_000);
    } finally {
      other.child.kill("SIGTERM");
      await other.ended;
    }
    expect(first().statusWrites(path).length - before).toBeLessThanOrEqual(8);
    expect(output()).toContain("somebody else writes this status too");
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^True Programmed: 1\/1 pods$/, 60_000);
    await edit();
  }, 120_000);

  test("a token that was replaced is refused, and the new one is read", async () => {
    first().accept("the-second-token");
    first().dropWatches();
    await sleep(1500);
    await first().writeKubeconfig("the-second-token");
    await edit();
    expect(served()).toContain(`edit-${edits}.`);
  });

  test("rule 6.10: a leader that was frozen and is woken writes nothing, whatever the clocks say", async () => {
    const [frozen] = operators;
    if (frozen === undefined) throw new Error("there is no operator");
    const before = await leader();
    frozen.child.kill("SIGSTOP");
    try {
      await objects.until("the other one leads", async () => (await leader()) !== before, 25_000);
      await edit();
      const writes = first().writes.length;
      frozen.child.kill("SIGCONT");
      await sleep(3000);
      expect(first().writes.slice(writes)).toEqual([]);
    } finally {
      frozen.child.kill("SIGCONT");
    }
    expect(isAlive(frozen)).toBe(true);
    await edit();
  }, 60_000);

  // Longer than a leader may write without having renewed its lease: it steps down, and neither ends.
  test.each([
    ["breaks every connection", "reset"],
    ["answers nothing", "hold"],
    ["fails at everything", { status: 500 }],
  ] as const)(
    "the API server %s for 12 s: both replicas live, and go on afterwards",
    async (_how, fault) => {
      for (const proxy of proxies) {
        proxy.fault = () => fault;
        proxy.dropWatches();
      }
      await sleep(12_000);
      for (const proxy of proxies) {
        proxy.fault = () => null;
        proxy.release();
      }
      await edit(60_000);
      expect(operators.map(isAlive)).toEqual([true, true]);
    },
    120_000,
  );

  test("told to end while the API server answers nothing, it ends within the grace of its pod", async () => {
    const leading = (await leader()).includes("operator-1") ? "operator-1" : "operator-0";
    const operator = operators.find(({ name }) => name === leading);
    if (operator === undefined) throw new Error("there is no operator");
    for (const proxy of proxies) proxy.fault = () => "hold";
    const held = () => proxies.reduce((sum, { writes }) => sum + writes.length, 0);
    const before = held();
    edits += 1;
    await objects.apply("ModelRoute", "m", routeSpec(`https://edit-${edits}.example`));
    await objects.until("something that it writes is not answered", async () => held() > before);
    operator.child.kill("SIGTERM");
    const code = await Promise.race([operator.ended, sleep(20_000, "too late", { ref: false })]);
    expect(code).toBe(0);
  }, 60_000);
});
