/** Mistakes that people make in values: each is refused before anything is applied, with the path of what is wrong. */
import { describe, expect, test } from "vitest";
import { helm, render } from "./helm.ts";
import { stores } from "./matrix.ts";

/** Where it is wrong, and a piece of a values file. What is missing or too much is told at what holds it. */
const mistakes: readonly (readonly [path: string, values: object])[] = [
  ["/dataPlane/replicas", { dataPlane: { replicas: "3" } }],
  ["/operator/replicas", { operator: { replicas: -1 } }],
  ["/", { dataplane: { replicas: 3 } }],
  ["/", { replicaCount: 3 }],
  ["/image/tag", { image: { tag: 1.2 } }],
  ["/image/digest", { image: { digest: "latest" } }],
  ["/image/repository", { image: { repository: "https://registry.example/gapura" } }],
  ["/image/pullPolicy", { image: { pullPolicy: "always" } }],
  ["/imagePullSecrets/0", { imagePullSecrets: ["registry"] }],
  ["/dataPlane/resources", { dataPlane: { resources: { cpu: 1, memory: "1Gi" } } }],
  ["/operator/resources", { operator: { resources: { limit: { memory: "1Gi" } } } }],
  ["/dataPlane/nodeSelector/gpu", { dataPlane: { nodeSelector: { gpu: true } } }],
  ["/operator/tolerations", { operator: { tolerations: { key: "a" } } }],
  ["/dataPlane/tolerations/0/operator", { dataPlane: { tolerations: [{ key: "a", operator: "exists" }] } }],
  ["/migrations/tolerations/0/effect", { migrations: { tolerations: [{ key: "a", effect: "noschedule" }] } }],
  [
    "/dataPlane/affinity/podAntiAffinity",
    { dataPlane: { affinity: { podAntiAffinity: { preferredDuringScheduling: [] } } } },
  ],
  ["/dataPlane/topologySpread/0", { dataPlane: { topologySpread: [{ topologyKey: "zone" }] } }],
  ["/dataPlane/extraEnv", { dataPlane: { extraEnv: { A: "b" } } }],
  ["/dataPlane/extraEnv/0", { dataPlane: { extraEnv: [{ value: "b" }] } }],
  ["/dataPlane/extraEnv/0/value", { dataPlane: { extraEnv: [{ name: "A", value: true }] } }],
  ["/migrations/extraEnv/0/value", { migrations: { extraEnv: [{ name: "A", value: 8080 }] } }],
  [
    "/operator/extraEnv/0/valueFrom",
    { operator: { extraEnv: [{ name: "A", valueFrom: { secretRef: { name: "a", key: "b" } } }] } },
  ],
  ["/dataPlane/extraVolumes/0", { dataPlane: { extraVolumes: [{ name: "ca", configmap: { name: "ca" } }] } }],
  [
    "/migrations/extraVolumeMounts/0",
    { migrations: { extraVolumeMounts: [{ name: "ca", path: "/etc/ca" }] } },
  ],
  [
    "/dataPlane/podAnnotations/prometheus.io~1scrape",
    { dataPlane: { podAnnotations: { "prometheus.io/scrape": true } } },
  ],
  ["/commonLabels/cost-centre", { commonLabels: { "cost-centre": 4711 } }],
  ["/dataPlane/sidecars/0", { dataPlane: { sidecars: [{ image: "proxy:1" }] } }],
  ["/retention/audit", { retention: { audit: "34d" } }],
  ["/retention/audit", { retention: { audit: "" } }],
  ["/retention/usage", { retention: { usage: "34d" } }],
  ["/retention/usage", { retention: { usage: "839h" } }],
  ["/retention/requests", { retention: { requests: "1w" } }],
  ["/retention/requests", { retention: { requests: "91d" } }],
  ["/retention/requests", { retention: { requests: "2161h" } }],
  ["/retention/requests", { retention: { requests: 7 } }],
  ["/dataPlane/drainTimeout", { dataPlane: { drainTimeout: "10m" } }],
  ["/dataPlane/host", { dataPlane: { host: "localhost" } }],
  ["/dataPlane/terminationGracePeriodSeconds", { dataPlane: { terminationGracePeriodSeconds: -1 } }],
  ["/dataPlane/serviceAccount", { dataPlane: { serviceAccount: "mine" } }],
  [
    "/dataPlane/autoscaling/maxReplicas",
    { dataPlane: { autoscaling: { enabled: true, maxReplicas: "10" } } },
  ],
  [
    "/dataPlane/autoscaling",
    { dataPlane: { autoscaling: { enabled: true, targetCPUUtilizationPercentage: 80 } } },
  ],
  ["/dataPlane/autoscaling/targetCPU", { dataPlane: { autoscaling: { enabled: true, targetCPU: "70%" } } }],
  [
    "/dataPlane/autoscaling/behavior/scaleDown",
    { dataPlane: { autoscaling: { behavior: { scaleDown: { stabilizationWindow: 60 } } } } },
  ],
  ["/podSecurityContext", { podSecurityContext: { runAsNonroot: true } }],
  [
    "/podSecurityContext/seccompProfile/type",
    { podSecurityContext: { seccompProfile: { type: "runtime/default" } } },
  ],
  [
    "/containerSecurityContext/capabilities",
    { containerSecurityContext: { capabilities: { drops: ["ALL"] } } },
  ],
  ["/hostAliases/0", { hostAliases: [{ hostnames: ["db"] }] }],
  ["/watchNamespaces", { watchNamespaces: "team-a" }],
  ["/watchNamespaces/0", { watchNamespaces: [7] }],
  ["/watchNamespaces", { watchNamespaces: ["a", "a"] }],
  ["/platformNamespaces", { platformNamespaces: ["a", "a"] }],
  ["/platformNamespaces/0", { platformNamespaces: ["team-*"] }],
  ["/tenancy", { tenancy: "namespaced" }],
  ["/quotas/objects", { quotas: { objects: -1 } }],
  ["/quotas/bytes", { quotas: { bytes: "256Ki" } }],
  ["/publicUrl", { publicUrl: "llm.example.com" }],
  ["/publicUrl", { publicUrl: "https://llm.example.com, https://llm.example" }],
  ["/publicUrl", { publicUrl: "https://llm.example.com/?team=ml" }],
  ["/publicUrl", { publicUrl: "https://user:word@llm.example.com" }],
  ["/metrics/job", { metrics: { job: '"gapura"', prometheusRule: { enabled: true } } }],
  ["/metrics/job", { metrics: { job: "gapura # ours", prometheusRule: { enabled: true } } }],
  ["/metrics/job", { metrics: { job: "gapura: ours", prometheusRule: { enabled: true } } }],
  ["/commonLabels", { commonLabels: { "cost centre": "ml" } }],
  ["/service/annotations", { service: { annotations: { "a/b/c": "d" } } }],
  ["/dataPlane/nodeSelector", { dataPlane: { nodeSelector: { "GPU.example/": "yes" } } }],
  ["/ownHosts/0", { ownHosts: ["https://api.internal/"] }],
  ["/ownHosts/1", { ownHosts: ["api.internal:8443", "a;b"] }],
  ["/logLevel", { logLevel: "INFO" }],
  ["/postgres", { postgres: { url: "postgres://a:b@c/d" } }],
  ["/postgres/port", { postgres: { existingSecret: "pg", host: "db", port: "5432" } }],
  ["/postgres/sslMode", { postgres: { existingSecret: "pg", host: "db", sslMode: "verify-full" } }],
  ["/postgres/host", { postgres: { existingSecret: "pg", host: "postgres://db" } }],
  ["/redis", { redis: { existingSecret: "rd", existingSecretPasswordKey: "a" } }],
  ["/redis/existingSecret", { redis: { existingSecret: { name: "rd" } } }],
  ["/service/type", { service: { type: "Headless" } }],
  ["/service/port", { service: { port: 70_000 } }],
  ["/service/loadBalancerSourceRanges/0", { service: { loadBalancerSourceRanges: ["192.0.2.1"] } }],
  ["/ingress/enabled", { ingress: { enabled: "yes" } }],
  ["/ingress/host", { ingress: { enabled: true, host: "https://llm.example.com" } }],
  ["/ingress/hosts/0", { ingress: { enabled: true, hosts: [{ name: "llm.example.com" }] } }],
  ["/ingress/tls/0", { ingress: { enabled: true, tls: [{ host: "a", secretName: "b" }] } }],
  ["/gateway/parentRefs/0", { gateway: { enabled: true, parentRefs: [{ gateway: "public" }] } }],
  ["/networkPolicy/dnsPorts/0", { networkPolicy: { dnsPorts: ["dns"] } }],
  ["/networkPolicy/dnsPorts", { networkPolicy: { dnsPorts: [] } }],
  ["/networkPolicy/apiServerPorts/0", { networkPolicy: { apiServerPorts: ["https"] } }],
  ["/networkPolicy/apiServerPorts", { networkPolicy: { apiServerPorts: [] } }],
  ["/networkPolicy/allowTo/0", { networkPolicy: { enabled: true, allowTo: ["10.0.0.0/8"] } }],
  [
    "/networkPolicy/allowTo/0/ipBlock/cidr",
    { networkPolicy: { allowTo: [{ ipBlock: { cidr: "10.0.0.1" } }] } },
  ],
  ["/networkPolicy/opsFrom/0", { networkPolicy: { opsFrom: [{ namespace: "monitoring" }] } }],
  ["/networkPolicy/opsFrom/0", { networkPolicy: { opsFrom: [{}] } }],
  [
    "/networkPolicy/opsFrom/0",
    { networkPolicy: { opsFrom: [{ ipBlock: { cidr: "10.0.0.0/8" }, podSelector: {} }] } },
  ],
  [
    "/networkPolicy/allowTo/0",
    { networkPolicy: { allowTo: [{ ipBlock: { cidr: "10.0.0.0/8" }, namespaceSelector: {} }] } },
  ],
  ["/metrics/serviceMonitor/interval", { metrics: { serviceMonitor: { interval: 30 } } }],
  ["/metrics/serviceMonitor", { metrics: { serviceMonitor: { enabled: true, additionalLabels: {} } } }],
  ["/metrics/prometheusRule/interval", { metrics: { prometheusRule: { interval: "every minute" } } }],
  [
    "/metrics/prometheusRule/runbookUrl",
    { metrics: { prometheusRule: { runbookUrl: "docs/operations.md" } } },
  ],
  ["/quickstart/storage", { quickstart: { enabled: true, storage: "5GB" } }],
  ["/quickstart/storage", { quickstart: { enabled: true, storage: "1.2.3Gi" } }],
  ["/quickstart/storage", { quickstart: { enabled: true, storage: "..Gi" } }],
  ["/metrics/serviceMonitor/interval", { metrics: { serviceMonitor: { enabled: true, interval: "30s1m" } } }],
  ["/metrics/serviceMonitor/interval", { metrics: { serviceMonitor: { enabled: true, interval: "" } } }],
  ["/metrics/prometheusRule/interval", { metrics: { prometheusRule: { enabled: true, interval: "1m1h" } } }],
  ["/quickstart/postgres/image", { quickstart: { postgres: { image: { tag: "18" } } } }],
  ["/extraObjects/0", { extraObjects: [{ kind: "ConfigMap" }] }],
  ["/nameOverride", { nameOverride: "Gateway" }],
  ["/fullnameOverride", { fullnameOverride: "llm.gateway" }],
  ["/commonLabels/team", { commonLabels: { team: "machine learning" } }],
  ["/dataPlane/nodeSelector/pool", { dataPlane: { nodeSelector: { pool: "a, b" } } }],
  ["/dataPlane/resources/requests/cpu", { dataPlane: { resources: { requests: { cpu: "half" } } } }],
  ["/operator/resources/limits/memory", { operator: { resources: { limits: { memory: "1GB" } } } }],
  ["/dataPlane/priorityClassName", { dataPlane: { priorityClassName: "Very_High" } }],
  ["/redisCache/existingSecret", { redisCache: { existingSecret: "s".repeat(254) } }],
  ["/operator/serviceAccount/name", { operator: { serviceAccount: { name: "s".repeat(254) } } }],
  ["/redis/key", { redis: { existingSecret: "rd", key: "k".repeat(254) } }],
  ["/operator/serviceAccount/name", { operator: { serviceAccount: { name: "gapura_operator" } } }],
  ["/migrations/serviceAccountName", { migrations: { serviceAccountName: "Migrator" } }],
  ["/imagePullSecrets/0/name", { imagePullSecrets: [{ name: "my_registry" }] }],
  ["/hostAliases/0/ip", { hostAliases: [{ ip: "db.internal", hostnames: ["db"] }] }],
  ["/postgres/existingSecret", { postgres: { existingSecret: "secret/pg" } }],
  ["/postgres/key", { postgres: { existingSecret: "pg", key: "" } }],
  ["/redis/key", { redis: { existingSecret: "rd", key: "the url" } }],
  ["/postgres/readKey", { postgres: { existingSecret: "pg", readKey: "read/url" } }],
  ["/ingress/className", { ingress: { enabled: true, className: "NGINX" } }],
  ["/quickstart/storageClassName", { quickstart: { enabled: true, storageClassName: "Fast SSD" } }],
  ["/networkPolicy/allowTo/0", { networkPolicy: { enabled: true, allowTo: [{ ports: [{ port: 5432 }] }] } }],
  // What is written without a value, as when all below it is a comment.
  ["/", { retention: null }],
  ["/dataPlane", { dataPlane: { autoscaling: null } }],
  ["/dataPlane", { dataPlane: { drainTimeout: null } }],
  ["/image", { image: { digest: null } }],
  ["/quotas", { quotas: { objects: null } }],
  ["/postgres", { postgres: { existingSecret: "pg", host: "db", port: null } }],
  ["/networkPolicy", { networkPolicy: { enabled: true, apiServerPorts: null } }],
  ["/", { podSecurityContext: null }],
  ["/", { containerSecurityContext: null }],
];

describe("a mistake in the values is refused with its path", () => {
  test("there are many of them, each one of its own", () => {
    expect(new Set(mistakes.map(([, values]) => JSON.stringify(values))).size).toBeGreaterThanOrEqual(60);
  });

  test.each(mistakes)("%s in %j", async (path, values) => {
    const { status, err } = await helm(["template", "gapura", "charts/gapura"], { ...stores, ...values });
    expect(status).not.toBe(0);
    const places = Array.from(err.matchAll(/^- at '([^']*)'/gm), (match) => match[1] || "/");
    expect(err).toContain("values don't meet the specifications of the schema");
    expect(places, err).toContain(path);
  });
});

describe("what a schema cannot see is refused by a sentence", () => {
  const refusal = async (values: object) =>
    (await helm(["template", "gapura", "charts/gapura"], { ...stores, ...values })).err;

  test.each([
    ["dataPlane", "DRAIN_TIMEOUT", "dataPlane.drainTimeout"],
    ["dataPlane", "HOST", "dataPlane.host"],
    ["operator", "TENANCY", "tenancy"],
    ["migrations", "DATABASE_URL", "postgres.existingSecret"],
    ["dataPlane", "DATABASE_CONNECTIONS", "postgres.connections"],
  ])("a variable of the chart a second time in %s.extraEnv: %s", async (group, name, value) => {
    const extraEnv = [
      { name: "A", value: "b" },
      { name, value: "60" },
    ];
    expect(await refusal({ [group]: { extraEnv } })).toContain(
      `${group}.extraEnv[1]: ${name} is set by the chart by the value ${value}; it cannot stand twice`,
    );
  });

  test.each(["migrate", "read"])("postgres.%sHost without a host", async (prefix) => {
    expect(await refusal({ postgres: { existingSecret: "pg", [`${prefix}Host`]: "db" } })).toContain(
      `postgres.${prefix}Host: goes with postgres.host; put a URL into the Secret and its key into postgres.${prefix}Key`,
    );
  });

  test.each([
    ["postgres", "host", "db"],
    ["postgres", "migrateHost", "db"],
    ["postgres", "readHost", "db"],
    ["postgres", "migrateKey", "migrate"],
    ["postgres", "readKey", "read"],
    ["redis", "sentinelPasswordKey", "sentinels"],
  ])("a store of one's own half named beside the quickstart's: %s.%s", async (store, name, value) => {
    const none = {
      postgres: { existingSecret: "" },
      redis: { existingSecret: "" },
      quickstart: { enabled: true },
    };
    expect(await refusal({ ...none, [store]: { [name]: value } })).toContain(
      `${store}.${name}: goes with ${store}.existingSecret; without it quickstart.enabled runs a store of its own`,
    );
  });

  test("an HTTPRoute that belongs to no Gateway", async () => {
    expect(await refusal({ gateway: { enabled: true } })).toContain(
      "gateway.enabled needs gateway.parentRefs: the Gateways that the HTTPRoute belongs to.",
    );
  });

  test.each(["2024-07", "team.ml"])("a release called %s, as no Service may be", async (release) => {
    await expect(render(stores, release)).rejects.toThrow(
      `the release's name "${release}" begins names of Services, which are lower-case letters, digits and -, with a letter first: choose another one, or set fullnameOverride`,
    );
    const { objects } = await render({ ...stores, fullnameOverride: "gapura" }, release);
    expect(objects.map(({ metadata }) => metadata.name)).toContain("gapura-data-plane");
  });

  test("two entries of one name", async () => {
    const extraEnv = [
      { name: "A", value: "b" },
      { name: "A", value: "c" },
    ];
    expect(await refusal({ dataPlane: { extraEnv } })).toContain(
      "dataPlane.extraEnv[1]: A is there already; it cannot stand twice",
    );
  });

  const volume = (name: string) => ({ name, emptyDir: {} });
  const mount = (mountPath: string) => ({ name: "ca", mountPath });
  const container = (name: string) => ({ name, image: "a:1" });
  const quickstart = { enabled: true };
  test.each([
    [
      { dataPlane: { extraVolumes: [volume("snapshot")] } },
      "dataPlane.extraVolumes[0]: snapshot is set by the chart",
    ],
    [
      { operator: { extraVolumes: [volume("a"), volume("tmp")] } },
      "operator.extraVolumes[1]: tmp is set by the chart",
    ],
    [
      { migrations: { extraVolumes: [volume("a"), volume("a")] } },
      "migrations.extraVolumes[1]: a is there already",
    ],
    [
      {
        quickstart,
        dataPlane: { extraVolumes: [volume("ca")] },
        migrations: { extraVolumes: [{ name: "ca", configMap: { name: "ca" } }] },
      },
      "migrations.extraVolumes[0]: ca is there already",
    ],
    [
      { dataPlane: { extraVolumeMounts: [mount("/etc/gapura/snapshot")] } },
      "dataPlane.extraVolumeMounts[0]: /etc/gapura/snapshot is set by the chart",
    ],
    [
      { operator: { extraVolumeMounts: [mount("/tmp")] } },
      "operator.extraVolumeMounts[0]: /tmp is set by the chart",
    ],
    [
      { migrations: { extraVolumeMounts: [mount("/etc/ca"), mount("/etc/ca")] } },
      "migrations.extraVolumeMounts[1]: /etc/ca is there already",
    ],
    [
      { dataPlane: { sidecars: [container("data-plane")] } },
      "dataPlane.sidecars[0]: data-plane is set by the chart",
    ],
    [
      { quickstart, dataPlane: { initContainers: [container("migrate")] } },
      "dataPlane.initContainers[0]: migrate is set by the chart",
    ],
    [
      { dataPlane: { initContainers: [container("a")], sidecars: [container("b"), container("a")] } },
      "dataPlane.sidecars[1]: a is there already",
    ],
  ])("a name of a pod's part a second time: %j", async (values, told) => {
    expect(await refusal(values)).toContain(`${told}; it cannot stand twice`);
  });

  test.each([
    { dataPlane: { initContainers: [container("migrate")] } },
    { quickstart, dataPlane: { extraVolumes: [volume("ca")] }, migrations: { extraVolumes: [volume("ca")] } },
  ])("and what only looks so is none: %j", async (values) => {
    expect(await refusal(values)).toBe("");
  });

  test("more pods at least than at most", async () => {
    const autoscaling = { enabled: true, minReplicas: 3, maxReplicas: 2 };
    expect(await refusal({ dataPlane: { autoscaling } })).toContain(
      "dataPlane.autoscaling: minReplicas (3) is above maxReplicas (2)",
    );
  });

  test.each(["90d", "2160h", "0", 0])("retention.requests=%j is none", async (requests) => {
    expect(await refusal({ retention: { requests } })).toBe("");
  });

  test.each(["1d", "1h30m", "1500ms"])("an interval of %s is none", async (interval) => {
    const metrics = {
      serviceMonitor: { enabled: true, interval },
      prometheusRule: { enabled: true, interval },
    };
    expect(await refusal({ metrics })).toBe("");
  });

  test("a list or a map without anything in it is none", async () => {
    const empty = {
      commonLabels: null,
      dataPlane: { extraEnv: null, podLabels: null, initContainers: null },
      operator: { extraEnv: null, tolerations: null },
      migrations: { extraEnv: null, annotations: null },
      ownHosts: null,
      watchNamespaces: null,
    };
    const ingress = { enabled: true };
    const nothing = { ...stores, ...empty, ingress: { ...ingress, hosts: null, annotations: null } };
    expect((await render(nothing)).objects).toEqual((await render({ ...stores, ingress })).objects);
  });

  test("no volumes of the data plane are none beside those of the migrations that it runs", async () => {
    const migrating = { quickstart: { enabled: true }, migrations: { extraVolumes: [{ name: "ca" }] } };
    const nothing = { ...migrating, dataPlane: { extraVolumes: null } };
    expect((await render(nothing)).objects).toEqual((await render(migrating)).objects);
  });

  test("capitals before the slash of an annotation are none", async () => {
    expect(await refusal({ service: { annotations: { "Example.com/owner": "ml" } } })).toBe("");
  });

  test("a grace period that ends before the drain", async () => {
    expect(await refusal({ dataPlane: { drainTimeout: 900, terminationGracePeriodSeconds: 600 } })).toContain(
      "dataPlane.terminationGracePeriodSeconds: 600 ends a pod before dataPlane.drainTimeout (900) is over; give it at least 940, or 0",
    );
  });
});
