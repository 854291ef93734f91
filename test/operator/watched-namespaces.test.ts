/** The operator lacks rights: of several namespaces that are watched one cannot be listed, or a Secret cannot be read. */
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { ApiProxy } from "./api-proxy.ts";
import { KubeClient } from "./kube-client.ts";
import { type OperatorProcess, startOperator, TestPod } from "./kube-world.ts";
import { Objects, priceSpec, routeSpec } from "./objects.ts";

const access = inject("kube");
const home = "operator-watched";
const away = "operator-watched-away";

describe.skipIf(access === null)("what the operator may not read", () => {
  let client: KubeClient;
  let proxy: ApiProxy;
  let operator: OperatorProcess;
  let pod: TestPod;
  const objects: Record<string, Objects> = {};

  const of = (namespace: string): Objects => {
    const found = objects[namespace];
    if (found === undefined) throw new Error(`nothing is declared in ${namespace}`);
    return found;
  };
  const start = () => {
    const environment = { WATCH_NAMESPACES: `${home},${away}` };
    operator = startOperator(proxy, home, "operator-0", { environment });
  };
  const served = (model: string) =>
    pod.loader.current?.routing.routes.find((route) => route.model === model)?.upstreams[0]?.url;
  const organizations = () => pod.loader.current?.routing.organizations.map(({ id }) => id);
  const declare = async (namespace: string, model: string, host: string) => {
    await of(namespace).apply("ModelRoute", model, routeSpec(`https://${host}`));
    await of(namespace).untilCondition("ModelRoute", model, "Ready", /^True/);
  };

  beforeAll(async () => {
    if (access === null) throw new Error("there is no API server");
    client = new KubeClient(access);
    proxy = await ApiProxy.open(access);
    pod = new TestPod(client, home, "data-plane-0");
    for (const [namespace, model] of [
      [home, "near"],
      [away, "far"],
    ] as const) {
      await client.makeNamespace(namespace);
      objects[namespace] = new Objects(client, namespace, () => operator.output());
      await of(namespace).applySecret("provider", { "api-key": `key of ${model}` });
      await of(namespace).apply("PriceTable", "prices", priceSpec(model));
      await of(namespace).apply("Organization", "team", {
        apiKeys: [{ name: "ci", secretKeyRef: { name: "team-ci", key: "api-key" } }],
      });
    }
    await pod.start();
    await pod.setReady(true);
    start();
    await declare(home, "near", "near-1.example");
    await declare(away, "far", "far-1.example");
    await of(away).untilCondition("Organization", "team", "Ready", /^True/);
  });
  afterAll(async () => {
    operator.child.kill("SIGKILL");
    await operator.ended;
    await pod.stop();
    await proxy.close();
    await client.close();
  });

  test("a namespace that cannot be listed holds up no other after a restart, and keeps what was published of it until it can be", async () => {
    operator.child.kill("SIGTERM");
    await operator.ended;
    proxy.fault = ({ path }) => (path.includes(`/namespaces/${away}/`) ? { status: 403 } : null);
    await of(away).apply("Organization", "team", { suspended: true });
    await of(away).delete("ModelRoute", "far");
    start();
    await declare(home, "near", "near-2.example");
    await of(home).until("it is served", async () => served("near")?.includes("near-2.") === true);
    expect(served("far")).toContain("far-1.");
    expect(pod.loader.current?.credential(`${away}/provider/api-key`)).toBe("key of far");
    expect(organizations()).toEqual([`org_${away}_team`, `org_${home}_team`]);
    // Its names stay taken.
    const taken = { ...routeSpec("https://taken.example"), model: "far" };
    await of(home).apply("PriceTable", "prices", priceSpec("near", "far"));
    await of(home).apply("ModelRoute", "taken", taken);
    await of(home).untilCondition("ModelRoute", "taken", "Accepted", /^False Conflicted/);

    proxy.fault = () => null;
    await of(home).untilCondition("ModelRoute", "taken", "Ready", /^True/, 60_000);
    expect(served("far")).toContain("taken.example");
    const team = pod.loader.current?.routing.organizations.find(({ id }) => id === `org_${away}_team`);
    expect(team).toMatchObject({ suspended: true });
  }, 180_000);

  test("a Secret that is there and may not be read is no missing one: its status has the API server's words", async () => {
    const secret = (name: string) => `/api/v1/namespaces/${home}/secrets/${name}`;
    const closed = new Set([secret("provider"), secret("closed-ci")]);
    await declare(home, "near", "near-3.example");
    await of(home).applySecret("closed-ci", { "other-key": "kept" });
    proxy.fault = ({ path }) => (closed.has(path) ? { status: 403 } : null);
    // Its value was read before: what is served stays, and that a newer one cannot be read is told.
    await of(home).applySecret("provider", { "api-key": "rotated" });
    await of(home).apply("Organization", "closed", {
      apiKeys: [{ name: "ci", secretKeyRef: { name: "closed-ci", key: "api-key" } }],
    });
    const words = "may not be read by the operator: by the test";
    for (const [kind, name, refused] of [
      ["ModelRoute", "near", "provider"],
      ["Organization", "closed", "closed-ci"],
    ] as const) {
      const told = new RegExp(`^False SecretForbidden: .*Secret "${refused}".* ${words}`);
      await of(home).untilCondition(kind, name, "ResolvedRefs", told);
    }
    expect(served("near")).toContain("near-3.");
    expect(pod.loader.current?.credential(`${home}/provider/api-key`)).toBe("key of near");
    // No key is made where nobody can see whether there is one.
    expect(proxy.writes.filter(({ path }) => closed.has(path))).toEqual([]);

    proxy.fault = () => null;
    await of(home).untilCondition("ModelRoute", "near", "Ready", /^True/, 60_000);
    await of(home).untilCondition("Organization", "closed", "Ready", /^True/, 60_000);
    expect(await of(home).secret("closed-ci")).toMatchObject({ "other-key": "kept" });
  }, 180_000);
});
