/** API server and etcd die and come back (rule 6.10); these are the test's own, as others need theirs. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { type KubeApiServer, startKubeApiServer } from "../../hack/kube-apiserver.ts";
import { kubeBinaries } from "../../hack/kube-binaries.ts";
import { applyCrds } from "./apiserver.ts";
import { KubeClient } from "./kube-client.ts";
import { type OperatorProcess, startOperator, TestPod } from "./kube-world.ts";
import { Objects, priceSpec, routeSpec } from "./objects.ts";

const namespace = "operator-restarts";
const AWAY_MS = 3000;

describe.skipIf(inject("kube") === null)("restarts of the control plane", () => {
  let server: KubeApiServer;
  let client: KubeClient;
  let objects: Objects;
  let operator: OperatorProcess;
  let pod: TestPod;
  let edits = 0;

  const served = () => pod.loader.current?.routing.routes[0]?.upstreams[0]?.url;
  const edit = async (): Promise<void> => {
    edits += 1;
    const host = `edit-${edits}.example`;
    await objects.apply("ModelRoute", "m", routeSpec(`https://${host}`));
    await objects.until(`${host} is served`, async () => served()?.includes(host) === true, 30_000);
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^True Programmed: 1\/1 pods$/, 30_000);
  };

  beforeAll(async () => {
    const binaries = await kubeBinaries(() => {});
    if (binaries === null) throw new Error("there is no API server");
    server = await startKubeApiServer(binaries);
    client = new KubeClient(server.access);
    await applyCrds(client);
    objects = new Objects(client, namespace, () => operator.output());
    await client.makeNamespace(namespace);
    await objects.applySecret("provider", { "api-key": "the-key" });
    await objects.apply("PriceTable", "prices", priceSpec("m"));
    pod = new TestPod(client, namespace, "data-plane-0");
    await pod.start();
    await pod.setReady(true);
    operator = startOperator(server.access, namespace, "operator-0");
    await edit();
  });
  afterAll(async () => {
    operator.child.kill("SIGKILL");
    await operator.ended;
    await pod.stop();
    await client.close();
    await server.stop();
  });

  test.each(["apiServer", "etcd"] as const)(
    "%s is killed and comes back: what was served stays, and the next edit is served by the same process",
    async (program) => {
      const before = served();
      await server[program].stop("SIGKILL");
      await sleep(AWAY_MS);
      expect(served()).toBe(before);
      await server[program].start();
      await objects.until("the API server takes writes", async () => {
        const { status } = await client.call("GET", objects.path("ModelRoute", "m"));
        return status === 200;
      });
      await edit();
      expect([operator.child.exitCode, operator.child.signalCode]).toEqual([null, null]);
    },
  );
});
