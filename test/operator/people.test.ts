/** Service accounts of the cluster as people (docs/people.md): workloads call models without any key. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import type { DataPlanePod } from "./data-plane-pod.ts";
import { DataPlaneWorld } from "./data-plane-world.ts";

const access = inject("kube");
const namespace = "operator-people";
const AUDIENCE = "gapura";

describe.skipIf(access === null)("service accounts", () => {
  let world: DataPlaneWorld;
  let pod: DataPlanePod;
  let folder = "";

  beforeAll(async () => {
    if (access === null) throw new Error("there is no API server");
    world = await DataPlaneWorld.open(access, namespace, "for workloads");
    folder = await mkdtemp(join(tmpdir(), "gapura-people-"));
    const authority = join(folder, "ca.crt");
    await writeFile(authority, access.certificateAuthority);
    // As docs/people.md says: whoever reads keys of service accounts needs no account.
    await world.client.must(
      "PATCH",
      "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/service-account-keys",
      {
        apiVersion: "rbac.authorization.k8s.io/v1",
        kind: "ClusterRoleBinding",
        metadata: { name: "service-account-keys" },
        roleRef: {
          apiGroup: "rbac.authorization.k8s.io",
          kind: "ClusterRole",
          name: "system:service-account-issuer-discovery",
        },
        subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "Group", name: "system:unauthenticated" }],
      },
    );
    for (const name of ["agent", "other"])
      await world.client.must("PATCH", `/api/v1/namespaces/${namespace}/serviceaccounts/${name}`, {
        apiVersion: "v1",
        kind: "ServiceAccount",
        metadata: { name, namespace },
      });
    await declare("agent");
    pod = await world.addPod("plane-0", { environment: { NODE_EXTRA_CA_CERTS: authority } });
    await pod.untilReady();
    await world.objects.untilCondition(
      "Organization",
      "workloads",
      "Programmed",
      /^True Programmed: 1\/1 pods$/,
      40_000,
    );
  });
  afterAll(async () => {
    await world?.close();
    await rm(folder, { recursive: true, force: true });
  });

  const declare = (account: string) =>
    world.objects.apply("Organization", "workloads", {
      credits: { grants: [{ name: "first", amount: "1000000" }] },
      identity: {
        issuer: `${access?.url ?? ""}/`,
        jwksURL: `${access?.url ?? ""}/openid/v1/jwks`,
        audiences: [AUDIENCE],
        allowCIDRs: ["127.0.0.1/32"],
        rules: [
          {
            claims: { "kubernetes.io.namespace": namespace, "kubernetes.io.serviceaccount.name": account },
            role: "Member",
          },
        ],
      },
    });
  /** What the kubelet mounts for a projected volume. */
  const token = async (account: string, audience = AUDIENCE): Promise<string> => {
    const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${account}/token`;
    const made = await world.client.must("POST", path, {
      apiVersion: "authentication.k8s.io/v1",
      kind: "TokenRequest",
      spec: { audiences: [audience], expirationSeconds: 600 },
    });
    return (made.status as { readonly token: string }).token;
  };
  const ask = async (credential: string) => {
    const answer = await fetch(`${pod.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${credential}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hi" }] }),
    });
    return [answer.status, await answer.text()] as const;
  };

  test("a workload's own token is all that it needs", async () => {
    expect(await ask(await token("agent"))).toEqual([200, expect.stringContaining("for workloads")]);
  });

  test("another account's, and one for the API server itself, are refused", async () => {
    expect(await ask(await token("other"))).toEqual([
      401,
      expect.stringContaining("no rule of the organization"),
    ]);
    expect(await ask(await token("agent", `${access?.url ?? ""}/`))).toEqual([
      401,
      expect.stringContaining("for another audience"),
    ]);
  });

  test("a change of the rules ends it", async () => {
    const credential = await token("agent");
    expect((await ask(credential))[0]).toBe(200);
    await declare("other");
    await world.objects.until("the rule holds", async () => (await ask(credential))[0] === 401);
    expect((await ask(await token("other")))[0]).toBe(200);
  });
});
