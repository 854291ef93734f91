/**
 * Client certificates end and are replaced while the operator runs. This API server is the test's own: it knows who
 * signs them.
 */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { type KubeApiServer, startKubeApiServer } from "../../hack/kube-apiserver.ts";
import { kubeBinaries } from "../../hack/kube-binaries.ts";
import { privateAuthority } from "../fakes/certificate.ts";
import { applyCrds } from "./apiserver.ts";
import { KubeClient } from "./kube-client.ts";
import { type OperatorProcess, startOperator, TestPod } from "./kube-world.ts";
import { Objects, priceSpec, routeSpec } from "./objects.ts";

const namespace = "operator-certificates";
/** So long the first certificate lives: enough to start and to publish once on a busy machine. */
const LIFE_MS = 20_000;

describe.skipIf(inject("kube") === null)("a client certificate in files", () => {
  const authority = privateAuthority("client authority");
  let folder: string;
  let server: KubeApiServer;
  let client: KubeClient;
  let objects: Objects;
  let operator: OperatorProcess;
  let pod: TestPod;

  const served = () => pod.loader.current?.routing.routes[0]?.upstreams[0]?.url;
  const untilServed = (host: string) =>
    objects.until(`${host} is served`, async () => served()?.includes(host) === true);
  /** One file after the other: in between they do not belong together. */
  const writeCertificate = async (notAfter: Date) => {
    const { cert, key } = authority.issue(["operator"], { organization: "system:masters", notAfter });
    await writeFile(join(folder, "client.crt"), cert);
    await sleep(300);
    await writeFile(join(folder, "client.key"), key, { mode: 0o600 });
  };

  beforeAll(async () => {
    const binaries = await kubeBinaries(() => {});
    if (binaries === null) throw new Error("there is no API server");
    folder = await mkdtemp(join(tmpdir(), "gapura-certificates-"));
    server = await startKubeApiServer(binaries, { clientAuthority: authority.cert });
    client = new KubeClient(server.access);
    await applyCrds(client);
    objects = new Objects(client, namespace, () => operator.output());
    await client.makeNamespace(namespace);
    await objects.applySecret("provider", { "api-key": "the-key" });
    await objects.apply("PriceTable", "prices", priceSpec("m"));
    await objects.apply("ModelRoute", "m", routeSpec("https://before.example"));
    pod = new TestPod(client, namespace, "data-plane-0");
    await pod.start();
    await pod.setReady(true);
    await writeFile(join(folder, "ca.crt"), server.access.certificateAuthority);
    const kubeconfig = join(folder, "kubeconfig");
    const cluster = { server: server.access.url, "certificate-authority": "ca.crt" };
    const user = { "client-certificate": "client.crt", "client-key": "client.key" };
    await writeFile(
      kubeconfig,
      JSON.stringify({
        "current-context": "test",
        contexts: [{ name: "test", context: { cluster: "test", user: "operator" } }],
        clusters: [{ name: "test", cluster }],
        users: [{ name: "operator", user }],
      }),
    );
    await writeCertificate(new Date(Date.now() + LIFE_MS));
    operator = startOperator({ kubeconfig }, namespace, "operator-0");
  });
  afterAll(async () => {
    operator.child.kill("SIGKILL");
    await operator.ended;
    await pod.stop();
    await client.close();
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test("that ends is read anew once it is replaced, and what was edited meanwhile is published", async () => {
    await untilServed("before.example");
    await objects.until("the certificate ends", async () => operator.output().includes("Unauthorized"));
    await objects.apply("ModelRoute", "m", routeSpec("https://meanwhile.example"));
    await sleep(2000);
    expect(served()).toContain("before.example");
    await writeCertificate(new Date(Date.now() + 3_600_000));
    await untilServed("meanwhile.example");
    await objects.untilCondition("ModelRoute", "m", "Programmed", /^True Programmed: 1\/1 pods$/);
    expect(operator.child.exitCode).toBeNull();
  });
});
