/**
 * The operator under exactly the rights that the chart gives it, against a real API server: everything works, nothing
 * is refused, and by the API server's audit log every rule is used.
 */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { z } from "zod";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { API_VERSION } from "../../operator/api/fields.ts";
import { type Kind, kinds } from "../../operator/api/kinds.ts";
import { gapuraPath, KubeClient } from "../operator/kube-client.ts";
import { conditionText, observedGeneration, setPodReady, TestPod } from "../operator/kube-world.ts";
import { type KubeObject, render, type Rendered } from "./helm.ts";
import { stores } from "./matrix.ts";
import { mustKubectl } from "./kubectl.ts";
import { accountToken, podLabels, type Started, startOperatorOfChart } from "./service-account.ts";

const kube = inject("kube");

const forms = [
  { form: "for all namespaces", home: "rbac-all", watched: "rbac-all-team", values: {} },
  {
    form: "for a list of namespaces",
    home: "rbac-list",
    watched: "rbac-list-team",
    values: { watchNamespaces: ["rbac-list-team"] },
  },
] as const;

describe.skipIf(kube === null).each(forms)("the operator's rights $form", ({ home, watched, values }) => {
  const access = kube as KubeAccess;
  const account = `system:serviceaccount:${home}:gapura-operator`;
  let client: KubeClient;
  let operatorsClient: KubeClient;
  let rendered: Rendered;
  let operator: Started;
  let pod: TestPod;
  let folder: string;

  const apply = (kind: Kind, name: string, spec: unknown) =>
    client.must("PATCH", gapuraPath(kinds[kind].plural, watched, name), {
      apiVersion: API_VERSION,
      kind,
      metadata: { name, namespace: watched },
      spec,
    });
  const applySecret = (namespace: string, name: string, stringData: Record<string, string>) =>
    client.must("PATCH", secret(namespace, name), {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name, namespace },
      stringData,
    });
  const untilCondition = async (kind: Kind, name: string, type: string, text: RegExp) => {
    let last = "";
    try {
      await client.until(
        `${kind} ${name} ${type}`,
        async () => {
          const object = await client.must("GET", gapuraPath(kinds[kind].plural, watched, name));
          last = conditionText(object, type);
          return observedGeneration(object) === object.metadata?.generation && text.test(last);
        },
        40_000,
      );
    } catch (error) {
      throw new Error(`${String(error)}: ${last}\n${operator.output().slice(-3000)}`, { cause: error });
    }
  };

  const silences = async () => {
    const list = await client.must("GET", `/apis/events.k8s.io/v1/namespaces/${home}/events`);
    const { items } = eventsSchema.parse(list);
    return items.filter(({ reason }) => reason === "PodSilent");
  };

  beforeAll(async () => {
    client = new KubeClient(access);
    folder = await mkdtemp(join(tmpdir(), "gapura-rbac-"));
    rendered = await render({ ...stores, ...values }, "gapura", home);
    await client.makeNamespace(home);
    await client.makeNamespace(watched);
    await mustKubectl(
      access,
      ["apply", "--server-side", "-f", "-"],
      [
        ...rendered.all("ServiceAccount"),
        ...roles(rendered),
        ...rendered.all("RoleBinding"),
        ...rendered.all("ClusterRoleBinding"),
      ],
    );
    await applySecret(home, "pg", { url: "postgres://elsewhere" });
    const token = await accountToken(client, home, "gapura-operator");
    operatorsClient = new KubeClient({ ...access, token });
    pod = new TestPod(client, home, "data-plane-0", podLabels(rendered, "gapura-data-plane"));
    await pod.start();
    // Nobody listens at its address.
    await client.must("POST", `/api/v1/namespaces/${home}/pods`, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "data-plane-1", labels: podLabels(rendered, "gapura-data-plane") },
      spec: { containers: [{ name: "data-plane", image: "x", ports: [{ name: "ops", containerPort: 1 }] }] },
    });
    await mustKubectl(
      access,
      ["apply", "--server-side", "-f", "-"],
      [rendered.get("Deployment", "gapura-data-plane")],
    );
    operator = await startOperatorOfChart(access, rendered, token, folder);
  });
  afterAll(async () => {
    operator.child.kill("SIGKILL");
    await operator.ended;
    await pod.stop();
    await operatorsClient.close();
    await client.close();
    await rm(folder, { recursive: true, force: true });
  });

  test("a route with its Secret, prices, tools and an organization become ready on every pod", async () => {
    await pod.setReady(true);
    await applySecret(watched, "provider", { "api-key": "the-key" });
    await applySecret(watched, "mixed", { other: "kept" });
    await applySecret(watched, "unrelated", { private: "yes" });
    await apply("PriceTable", "default", { unit: "USD", models: [{ model: "m", input: "1", output: "2" }] });
    await apply("ToolPolicy", "default", { webFetch: {} });
    await apply("ModelRoute", "m", {
      limits: { contextTokens: 1000, maxOutputTokens: 100 },
      upstreams: [
        {
          name: "one",
          dialect: "Messages",
          baseURL: "https://one.example",
          credentials: { secretKeyRef: { name: "provider", key: "api-key" } },
        },
      ],
    });
    await apply("Organization", "acme", {
      apiKeys: [
        { name: "made", secretKeyRef: { name: "acme-made", key: "api-key" } },
        { name: "added", secretKeyRef: { name: "mixed", key: "added" } },
      ],
    });
    for (const [kind, name] of [
      ["PriceTable", "default"],
      ["ToolPolicy", "default"],
      ["ModelRoute", "m"],
      ["Organization", "acme"],
    ] as const)
      await untilCondition(kind, name, "Ready", /^True/);
    await untilCondition("ModelRoute", "m", "Programmed", /^True Programmed: 1\/1 pods$/);
    expect(pod.loader.current?.credential(`${watched}/provider/api-key`)).toBe("the-key");
  });

  test("keys are generated, the seal key is made, the lease is held, a fault is an event", async () => {
    for (const [name, key] of [
      ["acme-made", "api-key"],
      ["mixed", "added"],
    ] as const) {
      const { data } = (await client.must("GET", secret(watched, name))) as { data?: Record<string, string> };
      expect(Buffer.from(data?.[key] ?? "", "base64").toString()).toMatch(/^sk-svc-/);
    }
    await client.must("GET", secret(home, "gapura-seal"));
    const lease = `/apis/coordination.k8s.io/v1/namespaces/${home}/leases/gapura-operator`;
    const held = { holderIdentity: expect.stringMatching(/^operator-0/) as string };
    expect((await client.must("GET", lease)).spec).toMatchObject(held);
    await client.until("the lease is renewed", async () =>
      (await auditOf(access, account)).some(({ what }) => what.startsWith("update leases")),
    );
    await client.must("DELETE", secret(watched, "provider"));
    await untilCondition("ModelRoute", "m", "ResolvedRefs", /^False SecretNotFound/);
    await client.until("an event", async () => {
      const list = await client.must("GET", `/apis/events.k8s.io/v1/namespaces/${watched}/events`);
      return JSON.stringify(list).includes("SecretNotFound");
    });
  });

  test("a ready pod that does not acknowledge is one Event of the Deployment, and named in the statuses", async () => {
    await setPodReady(client, home, "data-plane-1", true);
    await client.until("the Event", async () => (await silences()).length > 0, 60_000);
    await untilCondition(
      "ModelRoute",
      "m",
      "Programmed",
      /^False Pending: 1\/2 pods; no acknowledgement from data-plane-1$/,
    );
    const deployment = await client.must(
      "GET",
      `/apis/apps/v1/namespaces/${home}/deployments/gapura-data-plane`,
    );
    expect(await silences()).toMatchObject([
      {
        type: "Warning",
        note: expect.stringMatching(
          /^pod data-plane-1 is ready and has not acknowledged .* for 30 s: it /,
        ) as string,
        regarding: { kind: "Deployment", name: "gapura-data-plane", uid: deployment.metadata?.uid },
      },
    ]);
    await setPodReady(client, home, "data-plane-1", false);
    await untilCondition("ModelRoute", "m", "Programmed", /^True Programmed: 1\/1 pods$/);
  }, 120_000);

  test("nothing that it asked for was refused, and every right is used", async () => {
    const events = await auditOf(access, account);
    expect(events.length).toBeGreaterThan(20);
    expect(events.filter(({ decision }) => decision !== "allow").map(({ what }) => what)).toEqual([]);
    const used = new Set(events.map(({ role, what }) => `${role}: ${what}`));
    const granted = roles(rendered).flatMap(rightsOf);
    expect(granted.filter((right) => !used.has(right))).toEqual([]);
    expect([...used].filter((right) => !granted.includes(right))).toEqual([]);
  });

  test("of Secrets it read the values of those alone that a resource names, and its own", async () => {
    const read = (await auditOf(access, account)).flatMap(({ event: { verb, objectRef } }) =>
      verb === "get" && objectRef?.resource === "secrets" ? [`${objectRef.namespace}/${objectRef.name}`] : [],
    );
    const others = new Set(read.filter((name) => !/^[a-z-]+\/gapura-[ab]-(credentials-)?\d$/.test(name)));
    // It knows what it made, and reads that only where the watch shows it before the answer to its making has come.
    others.delete(`${watched}/acme-made`);
    expect([...others].toSorted()).toEqual(["mixed", "provider"].map((name) => `${watched}/${name}`));
  });

  test("with a list of namespaces no Secret elsewhere is open to it, the stores' addresses included", async () => {
    await client.must("GET", secret(home, "pg"));
    const answers = async (...paths: string[]) =>
      Promise.all(paths.map(async (path) => (await operatorsClient.call("GET", path)).status));
    const elsewhere = [secret(home, "pg"), secret("default", "any"), secret(home), "/api/v1/secrets"];
    const open = await answers(...elsewhere);
    if ("watchNamespaces" in values) expect(open).toEqual([403, 403, 403, 403]);
    else expect(open).toEqual([200, 404, 200, 200]);
    expect(await answers(secret(watched, "provider"), secret(watched))).toEqual([404, 200]);
  });

  test("it can neither change a spec nor delete anything nor touch pods elsewhere", async () => {
    const route = gapuraPath("modelroutes", watched, "m");
    const attempts = [
      ["PATCH", route, { apiVersion: API_VERSION, kind: "ModelRoute", metadata: { name: "m" }, spec: {} }],
      ["DELETE", route],
      ["DELETE", secret(watched, "mixed")],
      ["DELETE", `/api/v1/namespaces/${home}/pods/data-plane-0`],
      ["GET", `/api/v1/namespaces/${watched}/pods`],
      ["GET", `/apis/coordination.k8s.io/v1/namespaces/${home}/leases/another`],
    ] as const;
    for (const [method, path, body] of attempts)
      expect((await operatorsClient.call(method, path, body)).status, `${method} ${path}`).toBe(403);
  });
});

describe.skipIf(kube === null)("rights that depend on other values", () => {
  const access = kube as KubeAccess;

  test("with seal keys of one's own it can make its slots and no other Secret", async () => {
    const client = new KubeClient(access);
    const home = "rbac-sealed";
    await client.makeNamespace(home);
    const values = {
      ...stores,
      watchNamespaces: [home.replace("sealed", "team")],
      sealKeys: { existingSecret: "s" },
    };
    const rendered = await render(values, "gapura", home);
    const own = (object: KubeObject) => object.metadata.namespace === home;
    await mustKubectl(
      access,
      ["apply", "--server-side", "-f", "-"],
      [
        ...rendered.all("ServiceAccount").filter(own),
        ...rendered.all("Role").filter(own),
        ...rendered.all("RoleBinding").filter(own),
      ],
    );
    const token = await accountToken(client, home, "gapura-operator");
    const operator = new KubeClient({ ...access, token });
    const make = async (name: string) =>
      (
        await operator.call("PATCH", secret(home, name), {
          apiVersion: "v1",
          kind: "Secret",
          metadata: { name },
        })
      ).status;
    expect([await make("gapura-a-0"), await make("gapura-b-credentials-1"), await make("other")]).toEqual([
      201, 201, 403,
    ]);
    await operator.close();
    await client.close();
  });

  test("a namespace that is the release's own and watched needs no second right to Secrets", async () => {
    const rendered = await render({ ...stores, watchNamespaces: ["gw"] });
    const own = rightsOf(rendered.get("Role", "gapura-operator"));
    expect(own.filter((right) => right.includes("secrets"))).toEqual([]);
    expect(rightsOf(rendered.get("Role", "gapura:gw:gapura-watch"))).toContain(
      "gapura:gw:gapura-watch: get secrets",
    );
  });
});

const eventsSchema = z.object({ items: z.array(z.looseObject({ reason: z.string().optional() })) });

describe.skipIf(kube === null)("what people may do", () => {
  const access = kube as KubeAccess;

  test("edit of a namespace writes routes, policies and prices there, admin Organizations too, view reads", async () => {
    const client = new KubeClient(access);
    const [home, team, other] = ["rbac-people", "rbac-people-team", "rbac-people-other"];
    for (const namespace of [home, team, other]) await client.makeNamespace(namespace);
    const rendered = await render(stores, "gapura", home);
    const people = rendered.all("ClusterRole").filter((role) => aggregates(role).length > 0);
    await mustKubectl(access, ["apply", "--server-side", "-f", "-"], people);
    const answers: Record<string, Record<string, number[]>> = {};
    for (const role of ["view", "edit", "admin"]) {
      // As the controller manager puts the parts of an aggregated ClusterRole together; none runs here.
      for (const part of people.filter((each) => aggregates(each).includes(role)))
        await client.must("POST", `/apis/rbac.authorization.k8s.io/v1/namespaces/${team}/rolebindings`, {
          apiVersion: "rbac.authorization.k8s.io/v1",
          kind: "RoleBinding",
          metadata: { name: `${role}-${part.metadata.name.split("-").at(-1)}` },
          roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: part.metadata.name },
          subjects: [{ kind: "ServiceAccount", name: role, namespace: team }],
        });
      await client.must("POST", `/api/v1/namespaces/${team}/serviceaccounts`, {
        apiVersion: "v1",
        kind: "ServiceAccount",
        metadata: { name: role },
      });
      const person = new KubeClient({ ...access, token: await accountToken(client, team, role) });
      const tries = async (kind: Kind, namespace: string) => {
        const { plural } = kinds[kind];
        const spec = kind === "PriceTable" ? { unit: "USD" } : kind === "ModelRoute" ? route : {};
        const object = { apiVersion: API_VERSION, kind, metadata: { name: role }, spec };
        const made = await person.call("POST", gapuraPath(plural, namespace), object);
        const listed = await person.call("GET", gapuraPath(plural, namespace));
        const gone = await person.call("DELETE", gapuraPath(plural, namespace, role));
        return [listed.status, made.status, gone.status];
      };
      answers[role] = {};
      for (const kind of ["ModelRoute", "ToolPolicy", "PriceTable", "Organization"] as const)
        answers[role][kind] = await tries(kind, team);
      answers[role]["elsewhere"] = await tries("ModelRoute", other);
      const status = { apiVersion: API_VERSION, kind: "ModelRoute", metadata: { name: "x" }, status: {} };
      const beyond = [
        await person.call("PATCH", `${gapuraPath("modelroutes", team, "x")}/status`, status),
        await person.call("GET", secret(team)),
        await person.call("GET", `/apis/rbac.authorization.k8s.io/v1/namespaces/${team}/rolebindings`),
      ];
      answers[role]["beyond"] = beyond.map(({ status: code }) => code);
      await person.close();
    }
    const [none, reads, writes] = [
      [403, 403, 403],
      [200, 403, 403],
      [200, 201, 200],
    ];
    const rest = { elsewhere: none, beyond: none };
    const serving = { ModelRoute: writes, ToolPolicy: writes, PriceTable: writes };
    expect(answers).toEqual({
      view: { ModelRoute: reads, ToolPolicy: reads, PriceTable: reads, Organization: reads, ...rest },
      edit: { ...serving, Organization: reads, ...rest },
      admin: { ...serving, Organization: writes, ...rest },
    });
    await client.close();
  });
});

const route = {
  limits: { contextTokens: 1000, maxOutputTokens: 100 },
  upstreams: [{ name: "one", dialect: "Messages", baseURL: "https://one.example" }],
};

const secret = (namespace: string, name?: string): string =>
  `/api/v1/namespaces/${namespace}/secrets${name === undefined ? "" : `/${name}`}`;

/** The operator's. */
const roles = (rendered: Rendered) =>
  [...rendered.all("Role"), ...rendered.all("ClusterRole")].filter((role) => aggregates(role).length === 0);

/** The ClusterRoles of every cluster that this one becomes a part of. */
const aggregates = ({ metadata }: KubeObject): string[] =>
  Object.keys(metadata.labels ?? {}).flatMap((label) => {
    const [, name] = /^rbac\.authorization\.k8s\.io\/aggregate-to-(\w+)$/.exec(label) ?? [];
    return name === undefined ? [] : [name];
  });

const roleSchema = z.object({
  metadata: z.object({ name: z.string() }),
  rules: z.array(
    z.object({ apiGroups: z.array(z.string()), resources: z.array(z.string()), verbs: z.array(z.string()) }),
  ),
});

/** `ROLE: VERB RESOURCE.GROUP` for each combination that a role allows. */
function rightsOf(role: KubeObject): string[] {
  const { metadata, rules } = roleSchema.parse(role);
  return rules.flatMap(({ apiGroups, resources, verbs }) =>
    apiGroups.flatMap((group) =>
      resources.flatMap((resource) =>
        verbs.map((verb) => `${metadata.name}: ${verb} ${withGroup(resource, group)}`),
      ),
    ),
  );
}

const withGroup = (resource: string, group = "") => (group === "" ? resource : `${resource}.${group}`);

const auditSchema = z.object({
  verb: z.string(),
  user: z.object({ username: z.string() }),
  objectRef: z
    .object({
      resource: z.string(),
      subresource: z.string().optional(),
      namespace: z.string().optional(),
      name: z.string().optional(),
      apiGroup: z.string().optional(),
    })
    .optional(),
  annotations: z.record(z.string(), z.string()).default({}),
});

/** What an account asked for, with the role that allowed it. */
async function auditOf(access: KubeAccess, account: string) {
  const lines = (await readFile(access.auditLog, "utf8")).split("\n").filter((line) => line !== "");
  return lines
    .map((line) => auditSchema.parse(JSON.parse(line)))
    .filter(({ user }) => user.username === account)
    .map((event) => {
      const { verb, objectRef, annotations } = event;
      const { resource = "", subresource, apiGroup } = objectRef ?? {};
      const path = subresource === undefined ? resource : `${resource}/${subresource}`;
      const reason = annotations["authorization.k8s.io/reason"] ?? "";
      return {
        event,
        what: `${verb} ${withGroup(path, apiGroup)}`,
        decision: annotations["authorization.k8s.io/decision"],
        role: / of (?:Cluster)?Role "([^"]+)"/.exec(reason)?.[1] ?? "none",
      };
    });
}
