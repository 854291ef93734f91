/** The values are a contract: each one changes the render where it should, and a misspelt one is refused. */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { chartValues } from "../../hack/chart.ts";
import { podOf, render, type Rendered } from "./helm.ts";
import { stores } from "./matrix.ts";

interface Container {
  readonly name: string;
  readonly image: string;
  readonly imagePullPolicy?: string;
  readonly env?: readonly { readonly name: string; readonly value?: string; readonly valueFrom?: object }[];
}

/** Reads what stands at a path of an object; `undefined` when the object or the path is not there. */
const at =
  (kind: string, name: string, ...path: readonly (string | number)[]) =>
  (rendered: Rendered): unknown => {
    const object: unknown = rendered.all(kind).find(({ metadata }) => metadata.name === name);
    return path.reduce<unknown>(
      (value, step) => (value as Record<string | number, unknown> | undefined)?.[step],
      object,
    );
  };
const POD = ["spec", "template", "spec"] as const;
const dataPlane = (...path: readonly (string | number)[]) =>
  at("Deployment", "gapura-data-plane", ...POD, ...path);
const operator = (...path: readonly (string | number)[]) =>
  at("Deployment", "gapura-operator", ...POD, ...path);
const containers = (rendered: Rendered): Container[] =>
  rendered.objects.flatMap((object) => {
    const pod = podOf(object) as { containers: Container[]; initContainers?: Container[] } | null;
    return pod === null ? [] : [...pod.containers, ...(pod.initContainers ?? [])];
  });
/** Of every container that runs our image. */
const ofOurImage = (read: (container: Container) => unknown) => (rendered: Rendered) => [
  ...new Set(
    containers(rendered)
      .filter(({ name }) => name !== "postgres" && name !== "redis")
      .map(read),
  ),
];
/** A variable of one program's environment. */
const env = (program: string, variable: string) => (rendered: Rendered) =>
  containers(rendered)
    .find(({ name }) => name === program)
    ?.env?.find(({ name }) => name === variable);
const isThere = (kind: string, name: string) => (rendered: Rendered) =>
  at(kind, name)(rendered) !== undefined;
const imageOf = (program: string) => (rendered: Rendered) =>
  containers(rendered).find(({ name }) => name === program)?.image;
const secret = (variable: string, name: string, key: string) => ({
  name: variable,
  valueFrom: { secretKeyRef: { name, key } },
});
const last = (read: (rendered: Rendered) => unknown) => (rendered: Rendered) =>
  (read(rendered) as unknown[] | undefined)?.at(-1);

const CLAIM = ["spec", "volumeClaimTemplates", 0, "spec"] as const;
const ingress = { enabled: true, host: "api.example.com" };
const quickstart = { enabled: true };
const autoscaling = { enabled: true };
const HPA = ["HorizontalPodAutoscaler", "gapura-data-plane", "spec"] as const;

interface Case {
  /** The value that is proved. */
  readonly value: string;
  /** Renders without and with it; `base` is common to both. */
  readonly base?: object;
  readonly set: object;
  readonly read: (rendered: Rendered) => unknown;
  readonly is: unknown;
}

const cases: readonly Case[] = [
  {
    value: "image.repository",
    set: { image: { repository: "r.example/g" } },
    read: ofOurImage(({ image }) => image),
    is: ["r.example/g:0.1.0"],
  },
  {
    value: "image.tag",
    set: { image: { tag: "1.2.3" } },
    read: ofOurImage(({ image }) => image),
    is: ["gapura:1.2.3"],
  },
  {
    value: "image.pullPolicy",
    set: { image: { pullPolicy: "Always" } },
    read: ofOurImage(({ imagePullPolicy }) => imagePullPolicy),
    is: ["Always"],
  },
  {
    value: "imagePullSecrets",
    set: { imagePullSecrets: [{ name: "registry" }] },
    read: (rendered) =>
      rendered.objects.flatMap((object) => {
        const pod = podOf(object) as { imagePullSecrets?: unknown } | null;
        return pod === null ? [] : [pod.imagePullSecrets];
      }),
    // Data plane, operator, migrations, smoke test.
    is: Array.from({ length: 4 }, () => [{ name: "registry" }]),
  },
  {
    value: "nameOverride",
    set: { nameOverride: "llm" },
    read: isThere("Deployment", "gapura-llm-data-plane"),
    is: true,
  },
  {
    value: "fullnameOverride",
    set: { fullnameOverride: "llm" },
    read: isThere("Deployment", "llm-data-plane"),
    is: true,
  },
  {
    value: "dataPlane.replicas",
    set: { dataPlane: { replicas: 5 } },
    read: at("Deployment", "gapura-data-plane", "spec", "replicas"),
    is: 5,
  },
  {
    value: "dataPlane.resources",
    set: { dataPlane: { resources: { requests: { cpu: "2", memory: "1Gi" }, limits: { memory: "3Gi" } } } },
    read: dataPlane("containers", 0, "resources"),
    is: { requests: { cpu: "2", memory: "1Gi" }, limits: { memory: "3Gi" } },
  },
  {
    value: "dataPlane.autoscaling.enabled",
    set: { dataPlane: { autoscaling } },
    read: at(...HPA, "scaleTargetRef", "name"),
    is: "gapura-data-plane",
  },
  {
    value: "dataPlane.autoscaling.minReplicas",
    base: { dataPlane: { autoscaling } },
    set: { dataPlane: { autoscaling: { ...autoscaling, minReplicas: 3 } } },
    read: at(...HPA, "minReplicas"),
    is: 3,
  },
  {
    value: "dataPlane.autoscaling.maxReplicas",
    base: { dataPlane: { autoscaling } },
    set: { dataPlane: { autoscaling: { ...autoscaling, maxReplicas: 30 } } },
    read: at(...HPA, "maxReplicas"),
    is: 30,
  },
  {
    value: "dataPlane.autoscaling.targetCPU",
    base: { dataPlane: { autoscaling } },
    set: { dataPlane: { autoscaling: { ...autoscaling, targetCPU: 55 } } },
    read: at(...HPA, "metrics", 0, "resource", "target", "averageUtilization"),
    is: 55,
  },
  {
    value: "dataPlane.podDisruptionBudget.enabled",
    set: { dataPlane: { podDisruptionBudget: { enabled: false } } },
    read: isThere("PodDisruptionBudget", "gapura-data-plane"),
    is: false,
  },
  {
    value: "dataPlane.topologySpread",
    set: {
      dataPlane: {
        topologySpread: [{ maxSkew: 2, topologyKey: "zone", whenUnsatisfiable: "DoNotSchedule" }],
      },
    },
    read: dataPlane("topologySpreadConstraints"),
    is: [
      {
        maxSkew: 2,
        topologyKey: "zone",
        whenUnsatisfiable: "DoNotSchedule",
        labelSelector: {
          matchLabels: {
            "app.kubernetes.io/name": "gapura",
            "app.kubernetes.io/instance": "gapura",
            "app.kubernetes.io/component": "data-plane",
          },
        },
      },
    ],
  },
  {
    value: "dataPlane.nodeSelector",
    set: { dataPlane: { nodeSelector: { pool: "gw" } } },
    read: dataPlane("nodeSelector"),
    is: { pool: "gw" },
  },
  {
    value: "dataPlane.tolerations",
    set: { dataPlane: { tolerations: [{ operator: "Exists" }] } },
    read: dataPlane("tolerations"),
    is: [{ operator: "Exists" }],
  },
  {
    value: "dataPlane.affinity",
    set: { dataPlane: { affinity: { nodeAffinity: {} } } },
    read: dataPlane("affinity"),
    is: { nodeAffinity: {} },
  },
  {
    value: "dataPlane.podAnnotations",
    set: { dataPlane: { podAnnotations: { team: "ml" } } },
    read: at("Deployment", "gapura-data-plane", "spec", "template", "metadata", "annotations"),
    is: { team: "ml" },
  },
  {
    value: "dataPlane.extraEnv",
    set: { dataPlane: { extraEnv: [{ name: "NODE_EXTRA_CA_CERTS", value: "/etc/ca/ca.crt" }] } },
    read: env("data-plane", "NODE_EXTRA_CA_CERTS"),
    is: { name: "NODE_EXTRA_CA_CERTS", value: "/etc/ca/ca.crt" },
  },
  {
    value: "dataPlane.extraVolumes",
    set: { dataPlane: { extraVolumes: [{ name: "ca", configMap: { name: "ca" } }] } },
    read: last(dataPlane("volumes")),
    is: { name: "ca", configMap: { name: "ca" } },
  },
  {
    value: "dataPlane.extraVolumeMounts",
    set: { dataPlane: { extraVolumeMounts: [{ name: "ca", mountPath: "/etc/ca" }] } },
    read: last(dataPlane("containers", 0, "volumeMounts")),
    is: { name: "ca", mountPath: "/etc/ca" },
  },
  {
    value: "operator.replicas",
    set: { operator: { replicas: 1 } },
    read: at("Deployment", "gapura-operator", "spec", "replicas"),
    is: 1,
  },
  {
    value: "operator.resources",
    set: { operator: { resources: { requests: { cpu: "1", memory: "1Gi" }, limits: { memory: "2Gi" } } } },
    read: operator("containers", 0, "resources"),
    is: { requests: { cpu: "1", memory: "1Gi" }, limits: { memory: "2Gi" } },
  },
  {
    value: "operator.nodeSelector",
    set: { operator: { nodeSelector: { pool: "system" } } },
    read: operator("nodeSelector"),
    is: { pool: "system" },
  },
  {
    value: "operator.tolerations",
    set: { operator: { tolerations: [{ operator: "Exists" }] } },
    read: operator("tolerations"),
    is: [{ operator: "Exists" }],
  },
  {
    value: "operator.affinity",
    set: { operator: { affinity: { podAffinity: {} } } },
    read: operator("affinity"),
    is: { podAffinity: {} },
  },
  {
    value: "watchNamespaces",
    set: { watchNamespaces: ["a", "b"] },
    read: env("operator", "WATCH_NAMESPACES"),
    is: { name: "WATCH_NAMESPACES", value: "a,b" },
  },
  {
    value: "tenancy",
    set: { tenancy: "Namespaced" },
    read: env("operator", "TENANCY"),
    is: { name: "TENANCY", value: "Namespaced" },
  },
  {
    value: "platformNamespaces",
    set: { platformNamespaces: ["ml", "search"] },
    read: env("operator", "PLATFORM_NAMESPACES"),
    is: { name: "PLATFORM_NAMESPACES", value: "ml,search" },
  },
  {
    value: "quotas.objects",
    set: { quotas: { objects: 7 } },
    read: env("operator", "QUOTA_OBJECTS"),
    is: { name: "QUOTA_OBJECTS", value: "7" },
  },
  {
    value: "quotas.bytes",
    set: { quotas: { bytes: 10_485_760 } },
    read: env("operator", "QUOTA_BYTES"),
    is: { name: "QUOTA_BYTES", value: "10485760" },
  },
  {
    value: "rbac.aggregateClusterRoles",
    set: { rbac: { aggregateClusterRoles: false } },
    read: isThere("ClusterRole", "gapura:gw:gapura-edit"),
    is: false,
  },
  {
    value: "ownHosts",
    set: { ownHosts: ["10.0.0.5", "api.internal"] },
    read: env("data-plane", "OWN_HOSTS"),
    is: { name: "OWN_HOSTS", value: "gapura.gw.svc,gapura-ops.gw.svc,10.0.0.5,api.internal" },
  },
  {
    value: "publicUrl",
    base: { ingress },
    set: { ingress, publicUrl: "https://llm.example.com" },
    read: env("data-plane", "PUBLIC_URL"),
    is: { name: "PUBLIC_URL", value: "https://llm.example.com" },
  },
  {
    value: "logLevel",
    set: { logLevel: "debug" },
    read: (rendered) => ["data-plane", "operator"].map((program) => env(program, "LOG_LEVEL")(rendered)),
    is: [
      { name: "LOG_LEVEL", value: "debug" },
      { name: "LOG_LEVEL", value: "debug" },
    ],
  },
  ...(["data-plane", "migrate"] as const).flatMap((program): Case[] => [
    {
      value: "postgres.existingSecret",
      set: { postgres: { existingSecret: "other" } },
      read: env(program, "DATABASE_URL"),
      is: secret("DATABASE_URL", "other", "url"),
    },
    {
      value: "postgres.key",
      set: { postgres: { existingSecret: "pg", key: "uri" } },
      read: env(program, "DATABASE_URL"),
      is: secret("DATABASE_URL", "pg", "uri"),
    },
  ]),
  {
    value: "redis.existingSecret",
    set: { redis: { existingSecret: "other" } },
    read: env("data-plane", "REDIS_URL"),
    is: secret("REDIS_URL", "other", "url"),
  },
  {
    value: "redis.key",
    set: { redis: { existingSecret: "rd", key: "uri" } },
    read: env("data-plane", "REDIS_URL"),
    is: secret("REDIS_URL", "rd", "uri"),
  },
  {
    value: "redisCache.existingSecret",
    set: { redisCache: { existingSecret: "cache" } },
    read: env("data-plane", "REDIS_CACHE_URL"),
    is: secret("REDIS_CACHE_URL", "cache", "url"),
  },
  {
    value: "redisCache.key",
    base: { redisCache: { existingSecret: "cache" } },
    set: { redisCache: { existingSecret: "cache", key: "uri" } },
    read: env("data-plane", "REDIS_CACHE_URL"),
    is: secret("REDIS_CACHE_URL", "cache", "uri"),
  },
  {
    value: "sealKeys.existingSecret",
    set: { sealKeys: { existingSecret: "mine" } },
    read: (rendered) => [
      env("data-plane", "GAPURA_SEAL_KEYS")(rendered),
      env("operator", "SEAL_SECRET")(rendered),
    ],
    is: [secret("GAPURA_SEAL_KEYS", "mine", "seal-keys"), { name: "SEAL_SECRET", value: "mine" }],
  },
  {
    value: "sealKeys.key",
    base: { sealKeys: { existingSecret: "mine" } },
    set: { sealKeys: { existingSecret: "mine", key: "k" } },
    read: env("data-plane", "GAPURA_SEAL_KEYS"),
    is: secret("GAPURA_SEAL_KEYS", "mine", "k"),
  },
  {
    value: "files.s3.existingSecret",
    set: { files: { s3: { existingSecret: "s3" } } },
    read: env("data-plane", "FILES_S3_URL"),
    is: secret("FILES_S3_URL", "s3", "url"),
  },
  {
    value: "files.s3.key",
    base: { files: { s3: { existingSecret: "s3" } } },
    set: { files: { s3: { existingSecret: "s3", key: "uri" } } },
    read: env("data-plane", "FILES_S3_URL"),
    is: secret("FILES_S3_URL", "s3", "uri"),
  },
  {
    value: "migrations.enabled",
    set: { migrations: { enabled: false } },
    read: isThere("Job", "gapura-migrate"),
    is: false,
  },
  {
    value: "migrations.enabled",
    base: { quickstart },
    set: { quickstart, migrations: { enabled: false } },
    read: dataPlane("initContainers"),
    is: undefined,
  },
  {
    value: "service.type",
    set: { service: { type: "NodePort" } },
    read: at("Service", "gapura", "spec", "type"),
    is: "NodePort",
  },
  {
    value: "service.port",
    set: { service: { port: 8443 } },
    read: (rendered) => [
      at("Service", "gapura", "spec", "ports", 0, "port")(rendered),
      JSON.stringify(at("Pod", "gapura-smoke")(rendered)).includes("http://gapura:8443/"),
    ],
    is: [8443, true],
  },
  {
    value: "service.annotations",
    set: { service: { annotations: { internal: "true" } } },
    read: at("Service", "gapura", "metadata", "annotations"),
    is: { internal: "true" },
  },
  {
    value: "ingress.enabled",
    set: { ingress: { enabled: true } },
    read: at("Ingress", "gapura", "spec", "rules", 0, "http", "paths", 0, "backend"),
    is: { service: { name: "gapura", port: { name: "http" } } },
  },
  {
    value: "ingress.host",
    base: { ingress: { enabled: true } },
    set: { ingress },
    read: (rendered) => [
      at("Ingress", "gapura", "spec", "rules", 0, "host")(rendered),
      env("data-plane", "PUBLIC_URL")(rendered),
    ],
    is: ["api.example.com", { name: "PUBLIC_URL", value: "https://api.example.com" }],
  },
  {
    value: "ingress.className",
    base: { ingress },
    set: { ingress: { ...ingress, className: "traefik" } },
    read: at("Ingress", "gapura", "spec", "ingressClassName"),
    is: "traefik",
  },
  {
    value: "ingress.tls",
    base: { ingress },
    set: { ingress: { ...ingress, tls: [{ hosts: ["api.example.com"], secretName: "tls" }] } },
    read: at("Ingress", "gapura", "spec", "tls"),
    is: [{ hosts: ["api.example.com"], secretName: "tls" }],
  },
  {
    value: "ingress.annotations",
    base: { ingress },
    set: { ingress: { ...ingress, annotations: { "cert-manager.io/cluster-issuer": "le" } } },
    read: at("Ingress", "gapura", "metadata", "annotations", "cert-manager.io/cluster-issuer"),
    is: "le",
  },
  {
    value: "gateway.enabled",
    set: { gateway: { enabled: true, parentRefs: [{ name: "public" }] } },
    read: at("HTTPRoute", "gapura", "spec", "rules"),
    is: [
      {
        backendRefs: [{ name: "gapura", port: 80 }],
        timeouts: { request: "0s", backendRequest: "0s" },
      },
    ],
  },
  {
    value: "gateway.parentRefs",
    base: { gateway: { enabled: true, parentRefs: [{ name: "public" }] } },
    set: { gateway: { enabled: true, parentRefs: [{ name: "inner", namespace: "net" }] } },
    read: at("HTTPRoute", "gapura", "spec", "parentRefs"),
    is: [{ name: "inner", namespace: "net" }],
  },
  {
    value: "networkPolicy.enabled",
    set: { networkPolicy: { enabled: true } },
    read: (rendered) => rendered.all("NetworkPolicy").map(({ metadata }) => metadata.name),
    is: ["gapura-data-plane", "gapura-operator"],
  },
  {
    value: "networkPolicy.allowTo",
    base: { networkPolicy: { enabled: true } },
    set: {
      networkPolicy: {
        enabled: true,
        allowTo: [{ namespaceSelector: { matchLabels: { a: "b" } }, ports: [{ port: 5432 }] }],
      },
    },
    read: last(at("NetworkPolicy", "gapura-data-plane", "spec", "egress")),
    is: { to: [{ namespaceSelector: { matchLabels: { a: "b" } } }], ports: [{ port: 5432 }] },
  },
  {
    value: "metrics.serviceMonitor.enabled",
    set: { metrics: { serviceMonitor: { enabled: true } } },
    read: (rendered) => {
      const selector = at("ServiceMonitor", "gapura", "spec", "selector", "matchLabels")(rendered);
      const labels = at("Service", "gapura-ops", "metadata", "labels")(rendered);
      return (
        selector !== undefined &&
        labels !== undefined &&
        Object.entries(selector as object).every(
          ([key, value]) => (labels as Record<string, unknown>)[key] === value,
        )
      );
    },
    is: true,
  },
  {
    value: "metrics.prometheusRule.enabled",
    set: { metrics: { prometheusRule: { enabled: true } } },
    read: at("PrometheusRule", "gapura", "spec", "groups", 0, "name"),
    is: "gapura",
  },
  {
    value: "metrics.dashboards.enabled",
    set: { metrics: { dashboards: { enabled: true } } },
    read: (rendered) => {
      const text = at("ConfigMap", "gapura-dashboard", "data", "gapura.json")(rendered);
      return text === undefined ? undefined : (JSON.parse(text as string) as { uid: string }).uid;
    },
    is: "gapura",
  },
  {
    value: "tests.enabled",
    set: { tests: { enabled: false } },
    read: isThere("Pod", "gapura-smoke"),
    is: false,
  },
  {
    value: "quickstart.enabled",
    set: { quickstart, postgres: { existingSecret: "" }, redis: { existingSecret: "" } },
    read: (rendered) => [
      ...rendered.all("StatefulSet").map(({ metadata }) => metadata.name),
      env("data-plane", "DATABASE_URL")(rendered),
      env("data-plane", "REDIS_URL")(rendered),
    ],
    is: [
      "gapura-postgres",
      "gapura-redis",
      { name: "DATABASE_URL", value: "postgres://gapura@gapura-postgres:5432/gapura" },
      { name: "REDIS_URL", value: "redis://gapura-redis:6379" },
    ],
  },
  ...(["postgres", "redis"] as const).flatMap((store): Case[] => {
    const base = { postgres: { existingSecret: "" }, redis: { existingSecret: "" }, quickstart };
    const claim = (...path: string[]) => at("StatefulSet", `gapura-${store}`, ...CLAIM, ...path);
    return [
      {
        value: "quickstart.storage",
        base,
        set: { ...base, quickstart: { ...quickstart, storage: "20Gi" } },
        read: claim("resources", "requests", "storage"),
        is: "20Gi",
      },
      {
        value: "quickstart.storageClassName",
        base,
        set: { ...base, quickstart: { ...quickstart, storageClassName: "fast" } },
        read: claim("storageClassName"),
        is: "fast",
      },
      {
        value: `quickstart.${store}.image`,
        base,
        set: { ...base, quickstart: { ...quickstart, [store]: { image: "mirror.example/x:1" } } },
        read: imageOf(store),
        is: "mirror.example/x:1",
      },
    ];
  }),
];

const valuesFile = resolve(import.meta.dirname, "../../charts/gapura/values.yaml");
const values = chartValues(readFileSync(valuesFile, "utf8")).filter(({ group }) => !group);

describe("each value", () => {
  test("is proved to do something", () => {
    const proved = new Set(cases.map(({ value }) => value));
    expect(values.map(({ path }) => path).filter((path) => !proved.has(path))).toEqual([]);
  });

  test.each(cases)("$value changes the render in the right place", async ({ base = {}, set, read, is }) => {
    const [without, withIt] = await Promise.all([
      render({ ...stores, ...base }),
      render({ ...stores, ...set }),
    ]);
    expect(read(withIt)).toEqual(is);
    expect(read(without)).not.toEqual(is);
  });
});

describe("a wrong value is refused", () => {
  test("a misspelt name, wherever it stands", async () => {
    const wrong: Record<string, unknown> = {};
    for (const { path } of values) {
      const groups = path.split(".");
      const name = groups.pop() ?? "";
      let place = wrong;
      for (const group of groups) place = (place[group] ??= {}) as Record<string, unknown>;
      place[`${name}x`] = true;
    }
    const answer = await render(wrong).then(
      () => "rendered",
      (error: Error) => error.message,
    );
    const refusedAt = (path: string) => {
      const [, group = "", name = ""] = /^(?:(.*)\.)?([^.]+)$/.exec(path) ?? [];
      const place = group === "" ? "''" : `'/${group.replaceAll(".", "/")}'`;
      return answer.split("\n").some((line) => line.includes(place) && line.includes(`'${name}x'`));
    };
    expect({
      answer,
      accepted: values.map(({ path }) => path).filter((path) => !refusedAt(path)),
    }).toMatchObject({ accepted: [] });
  });

  test.each([
    ["dataPlane.replicas", { dataPlane: { replicas: "two" } }],
    ["operator.replicas", { operator: { replicas: -1 } }],
    ["watchNamespaces", { watchNamespaces: "team-a" }],
    ["watchNamespaces", { watchNamespaces: [7] }],
    ["imagePullSecrets", { imagePullSecrets: ["registry"] }],
    ["dataPlane.extraEnv", { dataPlane: { extraEnv: { A: "b" } } }],
    ["dataPlane.extraEnv", { dataPlane: { extraEnv: [{ value: "b" }] } }],
    ["ingress.enabled", { ingress: { enabled: "yes" } }],
    ["networkPolicy.allowTo", { networkPolicy: { allowTo: ["10.0.0.0/8"] } }],
    ["service.type", { service: { type: "Headless" } }],
    ["tenancy", { tenancy: "namespaced" }],
    ["platformNamespaces", { platformNamespaces: "ml" }],
    ["quotas.objects", { quotas: { objects: -1 } }],
    ["publicUrl", { publicUrl: "llm.example.com" }],
  ])("%s of the wrong form", async (path, wrong) => {
    const answer = await render({ ...stores, ...wrong }).then(
      () => "rendered",
      (error: Error) => error.message,
    );
    expect(answer).toMatch(new RegExp(`${path.replaceAll(".", "[./]")}\\b`));
  });
});
