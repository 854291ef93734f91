import { appendFileSync, cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import ipaddr from "ipaddr.js";
import { describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { z } from "zod";
import { EMBEDDING_IPV4, NEVER_REACHABLE } from "../../dataplane/config/schema.ts";
import { readEnvironment } from "../../dataplane/environment.ts";
import { egressRules, judgeAddress } from "../../dataplane/tools/url-guard/address.ts";
import { chartReadme, chartSchema } from "../../hack/chart.ts";
import { helm, podOf, render, template, type KubeObject, type Rendered } from "./helm.ts";
import { everything, matrix, stores } from "./matrix.ts";

interface PodSpec {
  automountServiceAccountToken?: boolean;
  terminationGracePeriodSeconds?: number;
  securityContext: Record<string, unknown>;
  containers: Container[];
  initContainers?: Container[];
  volumes: { name: string; projected?: { sources: { secret: { name: string; optional?: boolean } }[] } }[];
}
interface Container {
  name: string;
  args?: string[];
  env?: { name: string; value?: string; valueFrom?: { secretKeyRef?: { name: string; key: string } } }[];
  ports?: { name: string; containerPort: number }[];
  securityContext: Record<string, unknown>;
  lifecycle?: unknown;
}

const pods = (rendered: Rendered) =>
  rendered.objects.flatMap((object) => (podOf(object) as PodSpec | null) ?? []);
const podIn = (rendered: Rendered, kind: string, name: string) => {
  const pod = podOf(rendered.get(kind, name)) as PodSpec | null;
  if (pod === null) throw new Error(`${kind} ${name} has no pod`);
  return pod;
};
/** Those that people get through view, edit and admin are not the operator's. */
const isForPeople = ({ metadata }: KubeObject) =>
  Object.keys(metadata.labels ?? {}).some((name) =>
    name.startsWith("rbac.authorization.k8s.io/aggregate-to-"),
  );
const rulesOf = (rendered: Rendered) =>
  [...rendered.all("Role"), ...rendered.all("ClusterRole").filter((role) => !isForPeople(role))].flatMap(
    (role) => role["rules"] as { apiGroups: string[]; resources: string[]; verbs: string[] }[],
  );

describe("the chart renders", () => {
  test.each(matrix)("%s: helm lint has nothing to say against it", async (_name, values) => {
    const { status, out } = await helm(["lint", "charts/gapura", "--strict"], values);
    expect({ status, out }).toMatchObject({ status: 0 });
  });

  test("missing stores fail the render with a sentence that says what to set", async () => {
    await expect(render({})).rejects.toThrow(/set postgres\.existingSecret .* or quickstart\.enabled=true/);
    await expect(render({ postgres: { existingSecret: "pg" } })).rejects.toThrow(/set redis\.existingSecret/);
  });

  test("an unknown value is refused, not ignored", async () => {
    await expect(render({ ...stores, dataplane: { replicas: 3 } })).rejects.toThrow(/dataplane/);
    await expect(render({ ...stores, image: { pullPolicy: "Sometimes" } })).rejects.toThrow(/pullPolicy/);
  });

  test("every value has a description, which the README shows", () => {
    expect(() => chartSchema("a: 1")).toThrow(/a has no description/);
    expect(chartReadme("t", "i", "# -- What it does.\na: 1\n")).toContain("| `a` | What it does. | `1` |");
  });
});

describe("rule 6.12", () => {
  test.each(matrix)("%s: no wildcard in RBAC, specs are read-only to the operator", async (_name, values) => {
    const rules = rulesOf(await render(values));
    const people = (await render(values)).all("ClusterRole").filter(isForPeople);
    expect(JSON.stringify(people.map((role) => role["rules"]))).not.toContain("*");
    expect(
      rules.flatMap(({ apiGroups, resources, verbs }) => [...apiGroups, ...resources, ...verbs]),
    ).not.toContain("*");
    const specs = rules.filter(
      ({ apiGroups, resources }) =>
        apiGroups.includes("gapura.dev") && !resources.some((name) => name.endsWith("/status")),
    );
    expect(new Set(specs.flatMap(({ verbs }) => verbs))).toEqual(new Set(["list", "watch"]));
  });

  test("pod patches and lease writes only in the release's namespace", async () => {
    const rendered = await render(everything);
    const outside = [
      ...rendered.all("Role").filter(({ metadata }) => metadata.namespace !== "gw"),
      ...rendered.all("ClusterRole"),
    ];
    const touched = outside.flatMap((role) =>
      (role["rules"] as { resources: string[] }[]).flatMap(({ resources }) => resources),
    );
    expect(touched).not.toContain("pods");
    expect(touched).not.toContain("leases");
  });

  test("watchNamespaces renders no ClusterRole of the operator and no ClusterRoleBinding", async () => {
    const rendered = await render(everything);
    const wide = rendered.all("ClusterRole").filter((role) => !isForPeople(role));
    expect([...wide, ...rendered.all("ClusterRoleBinding")]).toEqual([]);
    expect(
      rendered
        .all("RoleBinding")
        .map(({ metadata }) => metadata.namespace ?? "")
        .toSorted(),
    ).toEqual(["gw", "team-a", "team-b"]);
  });

  test("the migration job needs no object that the release makes", async () => {
    const rendered = await render(stores);
    const job = podIn(rendered, "Job", "gapura-migrate");
    const made = new Set(rendered.objects.map(({ metadata }) => metadata.name));
    const text = JSON.stringify(job);
    expect(rendered.get("Job", "gapura-migrate").metadata.annotations).toMatchObject({
      "helm.sh/hook": "pre-install,pre-upgrade",
    });
    expect(text).not.toContain("serviceAccountName");
    const secrets = job.containers.flatMap(({ env = [] }) =>
      env.flatMap(({ valueFrom }) => valueFrom?.secretKeyRef?.name ?? []),
    );
    expect(secrets.toSorted()).toEqual(["pg", "rd"]);
    expect(secrets.filter((name) => made.has(name))).toEqual([]);
  });

  test("with quickstart an init container of the data plane migrates instead", async () => {
    const rendered = await render({ quickstart: { enabled: true } });
    expect(rendered.all("Job")).toEqual([]);
    expect(
      podIn(rendered, "Deployment", "gapura-data-plane").initContainers?.map(({ args }) => args),
    ).toEqual([["dataplane/main.ts", "migrate"]]);
  });

  test("autoscaling omits replicas; without it there are two data planes", async () => {
    expect((await render(everything)).get("Deployment", "gapura-data-plane")["spec"]).not.toHaveProperty(
      "replicas",
    );
    expect((await render(stores)).get("Deployment", "gapura-data-plane")["spec"]).toHaveProperty(
      "replicas",
      2,
    );
  });

  test.each(matrix)(
    "%s: restricted Pod Security, read-only root, grace period, tokens only for the operator",
    async (_name, values) => {
      const rendered = await render(values);
      for (const pod of pods(rendered)) {
        expect(pod.securityContext).toMatchObject({
          runAsNonRoot: true,
          seccompProfile: { type: "RuntimeDefault" },
        });
        for (const container of [...pod.containers, ...(pod.initContainers ?? [])]) {
          expect(container.securityContext).toMatchObject({
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ["ALL"] },
          });
        }
        expect(pod.automountServiceAccountToken).toBe(pod.containers[0]?.name === "operator");
      }
      const drain = values === everything ? 1800 : 600;
      expect(podIn(rendered, "Deployment", "gapura-data-plane").terminationGracePeriodSeconds).toBe(
        drain + 60,
      );
      expect(
        podIn(rendered, "Deployment", "gapura-operator").terminationGracePeriodSeconds,
      ).toBeGreaterThanOrEqual(60);
    },
  );

  test("the grace period outlasts the pre-stop pause and the longest drain", async () => {
    const pod = podIn(await render(stores), "Deployment", "gapura-data-plane");
    const { env = [], lifecycle = {} } = pod.containers[0] ?? {};
    const variables = Object.fromEntries(env.map(({ name, value }) => [name, value ?? "x"]));
    const { DRAIN_TIMEOUT } = readEnvironment({
      ...variables,
      DATABASE_URL: "postgres://x",
      REDIS_URL: "redis://x",
      GAPURA_SEAL_KEYS: undefined,
    });
    const { sleep } = z
      .object({ preStop: z.object({ sleep: z.object({ seconds: z.number() }) }) })
      .parse(lifecycle).preStop;
    // What is left is for settling the last charges.
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(sleep.seconds + DRAIN_TIMEOUT + 30);
    expect(sleep.seconds).toBeGreaterThanOrEqual(10);
  });

  test.each(matrix)(
    "%s: no template makes a Secret: keys are the operator's, once",
    async (_name, values) => {
      expect((await render(values)).all("Secret")).toEqual([]);
    },
  );

  test("egress of the data plane: DNS, the public internet, allowTo, the release's stores; of the operator: DNS, the API server's ports, the ops port", async () => {
    const rendered = await render({ ...everything, quickstart: { enabled: true } });
    expect(rendered.get("NetworkPolicy", "gapura-data-plane")["spec"]).toMatchSnapshot("data plane");
    expect(rendered.get("NetworkPolicy", "gapura-operator")["spec"]).toMatchSnapshot("operator");
  });

  const long = "a".repeat(42);
  test.each([
    ["one", "two"],
    ["foo", "foo-gapura"],
    ["gapura", "gapura-gapura"],
    [`${long}b`, `${long}c`],
  ])("two releases in one namespace share no name and no pod selector: %s, %s", async (...releases) => {
    const values = { quickstart: { enabled: true }, networkPolicy: { enabled: true } };
    const [one, two] = [await render(values, releases[0]), await render(values, releases[1])];
    const names = (rendered: Rendered) =>
      rendered.objects.map(({ kind, metadata }) => `${kind}/${metadata.name}`);
    expect(names(one).filter((name) => names(two).includes(name))).toEqual([]);
    const selectors = (rendered: Rendered) =>
      [...rendered.all("Deployment"), ...rendered.all("StatefulSet")].map((object) =>
        JSON.stringify((object["spec"] as { selector: unknown }).selector),
      );
    expect(selectors(one).filter((selector) => selectors(two).includes(selector))).toEqual([]);
  });

  test.each([
    ["for all namespaces", {}],
    ["for a list of namespaces", { watchNamespaces: ["team"] }],
  ])("two releases %s share no name outside their own namespaces", async (_title, values) => {
    const outside = async (release: string, namespace: string) =>
      (await render({ ...stores, ...values }, release, namespace)).objects
        .filter(({ metadata }) => metadata.namespace !== namespace)
        .map(({ kind, metadata }) => `${kind}/${metadata.name}`);
    const one = await outside("b-c", "a");
    expect(one.length).toBeGreaterThan(1);
    expect((await outside("c", "a-b")).filter((name) => one.includes(name))).toEqual([]);
  });

  test.each([
    ["gapura", {}, "gapura"],
    ["foo", {}, "foo-gapura"],
    ["my-gapura", {}, "my-gapura-gapura"],
    [`a${"-".repeat(35)}b`, {}, /^a-{30}[0-9a-f]{8}$/],
    ["gapura", { fullnameOverride: "b".repeat(41) }, /^b{31}-[0-9a-f]{8}$/],
  ])("the names of release %s, with %o, begin with %s and fit", async (release, values, prefix) => {
    const rendered = await render({ quickstart: { enabled: true }, ...values }, release);
    const name = rendered.all("Service").map(({ metadata }) => metadata.name)[0];
    expect(name).toMatch(typeof prefix === "string" ? new RegExp(`^${prefix}$`) : prefix);
    expect(rendered.objects.filter(({ metadata }) => metadata.name.length > 63)).toEqual([]);
  });
});

describe("what the programs are told", () => {
  test("the data plane mounts every Secret of both slots, all optional, as one directory", async () => {
    const pod = podIn(await render(stores), "Deployment", "gapura-data-plane");
    const sources = pod.volumes.find(({ name }) => name === "snapshot")?.projected?.sources ?? [];
    const slots = ["a", "b"].flatMap((slot) => [
      ...Array.from({ length: 8 }, (_, shard) => `gapura-${slot}-${shard}`),
      ...Array.from({ length: 2 }, (_, shard) => `gapura-${slot}-credentials-${shard}`),
    ]);
    expect(sources.map(({ secret }) => secret.name)).toEqual(slots);
    expect(sources.every(({ secret }) => secret.optional === true)).toBe(true);
  });

  test("a data plane without Postgres gets requests, as it serves and charges them", async () => {
    const [container] = podIn(await render(stores), "Deployment", "gapura-data-plane").containers;
    expect(container).toHaveProperty("readinessProbe.httpGet.path", "/readyz?exclude=postgres");
  });

  test("the data plane's ops port has the name that the operator looks for, and the operator the release's selector", async () => {
    const rendered = await render(stores, "prod");
    expect(podIn(rendered, "Deployment", "prod-gapura-data-plane").containers[0]?.ports).toContainEqual({
      name: "ops",
      containerPort: 9090,
    });
    const env = podIn(rendered, "Deployment", "prod-gapura-operator").containers[0]?.env ?? [];
    const labels = rendered.get("Deployment", "prod-gapura-data-plane")["spec"] as {
      template: { metadata: { labels: Record<string, string> } };
    };
    const selector = env.find(({ name }) => name === "DATA_PLANE_SELECTOR")?.value ?? "";
    for (const part of selector.split(",")) {
      const [key = "", value] = part.split("=");
      expect(labels.template.metadata.labels[key]).toBe(value);
    }
    expect(env).toContainEqual({ name: "SNAPSHOT_NAME", value: "prod-gapura" });
  });

  test("seal keys: the operator's Secret unless one is named", async () => {
    const sealOf = async (values: object) =>
      podIn(await render(values), "Deployment", "gapura-data-plane").containers[0]?.env?.find(
        ({ name }) => name === "GAPURA_SEAL_KEYS",
      )?.valueFrom?.secretKeyRef;
    expect(await sealOf(stores)).toEqual({ name: "gapura-seal", key: "seal-keys" });
    expect(await sealOf(everything)).toEqual({ name: "seal", key: "mine" });
  });

  test("the public address is https:// and the ingress host unless it is given", async () => {
    const urlOf = async (values: object) =>
      podIn(await render(values), "Deployment", "gapura-data-plane").containers[0]?.env?.find(
        ({ name }) => name === "PUBLIC_URL",
      )?.value;
    expect(await urlOf(everything)).toBe("https://api.example.com");
    expect(await urlOf({ ...everything, publicUrl: "https://llm.example.com" })).toBe(
      "https://llm.example.com",
    );
    expect(await urlOf(stores)).toBeUndefined();
    // What every name below it answers under is no address that a client could call.
    const ingress = { enabled: true, host: "*.example.com" };
    expect(await urlOf({ ...stores, ingress })).toBeUndefined();
    expect(await urlOf({ ...stores, ingress: { ...ingress, hosts: ["llm.example.com"] } })).toBe(
      "https://llm.example.com",
    );
  });

  test("a class that is not ingress-nginx gets no annotations of it; without a class it may be", async () => {
    const annotationsOf = async (className: string) => {
      const rendered = await render({ ...stores, ingress: { enabled: true, className } });
      return rendered.get("Ingress", "gapura").metadata.annotations ?? {};
    };
    expect(await annotationsOf("traefik")).toEqual({});
    expect(await annotationsOf("")).toHaveProperty(["nginx.ingress.kubernetes.io/proxy-buffering"], "off");
  });

  test("ingress-nginx neither buffers nor cuts streams, and a user's annotation wins", async () => {
    expect((await render(everything)).get("Ingress", "gapura").metadata.annotations).toMatchObject({
      "nginx.ingress.kubernetes.io/proxy-buffering": "off",
      "nginx.ingress.kubernetes.io/proxy-read-timeout": "3600",
    });
  });
});

test("a released chart's alerts link to its repository, a checkout's to nothing rather than nowhere", async () => {
  const values = { ...stores, metrics: { prometheusRule: { enabled: true } } };
  const folder = mkdtempSync(join(tmpdir(), "gapura-chart-"));
  try {
    cpSync(resolve(import.meta.dirname, "../../charts/gapura"), folder, { recursive: true });
    const linksOf = async () =>
      (await helm(["template", "gapura", folder], values)).out.match(/runbook_url: \S+/g) ?? [];
    expect(await linksOf()).toEqual([]);
    // As release.yml does it.
    appendFileSync(join(folder, "Chart.yaml"), 'sources: ["https://git.example/gapura"]\n');
    const [link] = await linksOf();
    expect(link).toMatch(
      /^runbook_url: https:\/\/git\.example\/gapura\/blob\/v0\.2\.0\/.+#gapuranodataplane$/,
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

/** A label's value: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set */
const LABEL_VALUE = /^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$/;

test.each(["0.2.0+a1b2c3d4", `0.2.0-${"pre.".repeat(20)}1+build`])(
  "labels hold a version with build metadata, as Flux and CI append it: %s",
  async (version) => {
    const folder = mkdtempSync(join(tmpdir(), "gapura-chart-"));
    try {
      cpSync(resolve(import.meta.dirname, "../../charts/gapura"), folder, { recursive: true });
      const path = join(folder, "Chart.yaml");
      const chart = parse(readFileSync(path, "utf8")) as object;
      writeFileSync(path, JSON.stringify({ ...chart, version, appVersion: version }));
      const { objects } = await template(everything, "gapura", "gw", folder);
      const values = objects.flatMap((object) => {
        const { template: pod } = (object["spec"] ?? {}) as { template?: KubeObject };
        return [object, pod].flatMap((one) => Object.values(one?.metadata?.labels ?? {}));
      });
      expect(values.length).toBeGreaterThan(50);
      expect(values.filter((value) => !LABEL_VALUE.test(value))).toEqual([]);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);

/**
 * The minor version of Kubernetes 1 since which a rule of a definition may call it.
 * https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries
 */
const CEL_SINCE: Readonly<Record<string, number>> = {
  all: 23,
  duration: 23,
  exists: 23,
  exists_one: 23,
  filter: 23,
  has: 23,
  isCIDR: 31,
  isSorted: 24,
  lowerAscii: 25,
  map: 23,
  matches: 23,
  timestamp: 23,
};
/** Of the sleep before a pod's end, which needs no program in the image. */
const PRE_STOP_SLEEP_SINCE = 30;

/** Every expression of the rules in a definition. */
const celIn = (value: unknown): string[] => {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) =>
    (key === "rule" || key === "messageExpression") && typeof inner === "string" ? [inner] : celIn(inner),
  );
};

test("the charts ask for a Kubernetes that knows what they use", async () => {
  const { out } = await helm(["template", "crds", "charts/gapura-crds"], {});
  const rules = parseAllDocuments(out).flatMap((document) => celIn(document.toJSON()));
  expect(rules.length).toBeGreaterThan(20);
  const calls = new Set(
    rules.flatMap((rule) => Array.from(rule.matchAll(/(\w+)\(/g), ([, name = ""]) => name)),
  );
  const unknown = [...calls].filter((name) => CEL_SINCE[name] === undefined);
  expect(unknown, "functions whose version has to be looked up").toEqual([]);
  const oldest = Math.max(PRE_STOP_SLEEP_SINCE, ...[...calls].map((name) => CEL_SINCE[name] ?? 0));
  for (const chart of ["gapura", "gapura-crds"]) {
    const on = async (minor: number) =>
      (
        await helm(
          ["template", "gapura", `charts/${chart}`, "--kube-version", `1.${minor}.0`],
          chart === "gapura" ? stores : {},
        )
      ).status;
    expect([chart, await on(oldest - 1), await on(oldest)]).toEqual([chart, 1, 0]);
  }
});

describe("gapura-crds", () => {
  const crds = async (values: object) => {
    const { status, out, err } = await helm(["template", "crds", "charts/gapura-crds"], values);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    return parseAllDocuments(out)
      .map((document) => document.toJSON() as KubeObject | null)
      .filter((object) => object !== null);
  };

  test("installs the four kinds, kept when the release goes", async () => {
    const installed = await crds({});
    expect(installed.map(({ metadata }) => metadata.name).toSorted()).toEqual([
      "modelroutes.gapura.dev",
      "organizations.gapura.dev",
      "pricetables.gapura.dev",
      "toolpolicies.gapura.dev",
    ]);
    for (const { metadata } of installed)
      expect(metadata.annotations).toMatchObject({ "helm.sh/resource-policy": "keep" });
  });

  test("can be turned off, and let go", async () => {
    expect(await crds({ crds: { enabled: false } })).toEqual([]);
    for (const { metadata } of await crds({ crds: { keep: false } })) {
      expect(metadata.annotations ?? {}).not.toHaveProperty("helm.sh/resource-policy");
    }
  });
});

test("the NetworkPolicy opens no address that the guard of pages refuses, and closes none that it allows", async () => {
  const rendered = await render({ ...stores, networkPolicy: { enabled: true } });
  const policies = rendered.all("NetworkPolicy") as unknown as {
    spec: { egress?: { to?: { ipBlock?: { cidr: string; except?: string[] } }[] }[] };
  }[];
  const blocks = policies
    .flatMap(({ spec }) => spec.egress ?? [])
    .flatMap(({ to = [] }) => to.flatMap(({ ipBlock }) => ipBlock ?? []));
  expect(blocks.map(({ cidr }) => cidr)).toEqual(["0.0.0.0/0", "2000::/3"]);
  const isIn = (address: string, cidr: string) => {
    const [parsed, [range, bits]] = [ipaddr.parse(address), ipaddr.parseCIDR(cidr)];
    return parsed.kind() === range.kind() && parsed.match(range, bits);
  };
  const isOpen = (address: string) =>
    blocks.some(
      ({ cidr, except = [] }) => isIn(address, cidr) && !except.some((closed) => isIn(address, closed)),
    );
  const rules = egressRules({ allowCidrs: [], allowPorts: [] });
  // The edges of everything that either of them names, and their neighbours.
  const ranges = [ipaddr.IPv4, ipaddr.IPv6]
    .flatMap(({ prototype }) =>
      Object.values((prototype as unknown as { SpecialRanges: object }).SpecialRanges),
    )
    .flatMap((range: unknown[]) => (Array.isArray(range[0]) ? range : [range]))
    .map((range) => (range as [ipaddr.IPv4, number]).join("/"));
  const named = [
    ...ranges,
    ...NEVER_REACHABLE,
    ...EMBEDDING_IPV4,
    ...blocks.flatMap(({ except = [] }) => except),
  ];
  const edges = named.flatMap((cidr) => edgesOf(cidr));
  expect(edges.length).toBeGreaterThan(200);
  for (const address of ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", ...edges])
    expect([address, isOpen(address)]).toEqual([address, judgeAddress(address, rules).allowed]);
});

/** The first and the last address of a range, and those before and behind it. */
function edgesOf(cidr: string): string[] {
  const [range, bits] = ipaddr.parseCIDR(cidr);
  const bytes = range.toByteArray();
  const size = 8n * BigInt(bytes.length);
  const first = BigInt(`0x${Buffer.from(bytes).toString("hex")}`);
  const last = first + (1n << (size - BigInt(bits))) - 1n;
  return [first - 1n, first, last, last + 1n]
    .filter((at) => at >= 0n && at < 1n << size)
    .map((at) => {
      const hex = at.toString(16).padStart(2 * bytes.length, "0");
      return ipaddr.fromByteArray([...Buffer.from(hex, "hex")]).toString();
    });
}
