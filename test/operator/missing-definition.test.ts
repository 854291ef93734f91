/** A cluster in which a definition of ours is missing: it was forgotten at the install, or somebody deleted it. */
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { type KubeApiServer, startKubeApiServer } from "../../hack/kube-apiserver.ts";
import { kubeBinaries } from "../../hack/kube-binaries.ts";
import { applyCrds, applyDefinition } from "./apiserver.ts";
import { KubeClient } from "./kube-client.ts";
import { type OperatorProcess, startOperator, TestPod } from "./kube-world.ts";
import { Objects, priceSpec, routeSpec } from "./objects.ts";

const home = "missing-definition";
const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

describe.skipIf(inject("kube") === null)("a definition that is missing", () => {
  let server: KubeApiServer;
  let client: KubeClient;
  let objects: Objects;
  let operator: OperatorProcess;
  let pod: TestPod;

  const start = () => {
    operator = startOperator(server.access, home, "operator-0", { environment: { WATCH_NAMESPACES: "" } });
  };
  const told = (text: string) => objects.until(text, async () => operator.output().includes(text));
  const policies = () => Object.keys(pod.loader.current?.routing.policies ?? {});
  const declare = async (model: string) => {
    await objects.apply("ModelRoute", model, routeSpec(`https://${model}.example`));
    await objects.untilCondition("ModelRoute", model, "Ready", /^True/);
  };

  beforeAll(async () => {
    const binaries = await kubeBinaries(() => {});
    if (binaries === null) throw new Error("there is no API server");
    // One of its own: without a definition the other tests' operators would lose their objects.
    server = await startKubeApiServer(binaries);
    client = new KubeClient(server.access);
    objects = new Objects(client, home, () => operator.output());
    await client.makeNamespace(home);
    await objects.applySecret("provider", { "api-key": "provider-key" });
    pod = new TestPod(client, home, "data-plane-0");
    await pod.start();
    await pod.setReady(true);
  });
  afterAll(async () => {
    operator.child.kill("SIGKILL");
    await operator.ended;
    await pod.stop();
    await client.close();
    await server.stop();
  });

  test("is named, and holds up no other kind", async () => {
    start();
    for (const name of ["modelroutes", "toolpolicies", "pricetables", "organizations"])
      await told(`the definition ${name}.gapura.dev is missing`);
    for (const name of ["modelroutes", "pricetables", "organizations"]) await applyDefinition(client, name);
    await objects.apply("PriceTable", "prices", priceSpec("first", "second", "third"));
    await declare("first");
    expect(operator.output()).toContain('"definitions":["toolpolicies.gapura.dev"]');
    await applyDefinition(client, "toolpolicies");
    await objects.apply("ToolPolicy", "default", { webFetch: {} });
    await objects.untilCondition("ToolPolicy", "default", "Ready", /^True/);
    expect(policies()).toEqual([`${home}/default`]);
  }, 120_000);

  test("costs nothing that was published, until it is there again", async () => {
    operator.child.kill("SIGTERM");
    await operator.ended;
    for (const name of ["toolpolicies", "pricetables"]) {
      await client.must("DELETE", `${definitions}/${name}.gapura.dev`);
      const path = `/apis/gapura.dev/v1alpha1/${name}`;
      await client.until(`${path} is gone`, async () => (await client.call("GET", path)).status === 404);
    }
    start();
    // A route that is new has no price; one that was served keeps its own, and what was changed of it is served.
    await objects.apply("ModelRoute", "second", routeSpec("https://second.example"));
    await objects.untilCondition("ModelRoute", "second", "ResolvedRefs", /^False PriceNotFound/);
    await objects.apply("ModelRoute", "first", routeSpec("https://changed.example"));
    await objects.until("the change is served", async () => {
      const routes = pod.loader.current?.routing.routes ?? [];
      return routes.some(({ upstreams }) => upstreams[0]?.url.startsWith("https://changed.") === true);
    });
    expect(policies()).toEqual([`${home}/default`]);

    await applyCrds(client);
    await objects.apply("PriceTable", "prices", priceSpec("first", "second"));
    await objects.untilCondition("ModelRoute", "second", "Ready", /^True/);
    await objects.until("the policy is gone", async () => policies().length === 0);
  }, 120_000);
});
