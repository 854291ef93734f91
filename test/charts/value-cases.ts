/** Each value with a place of the render that it changes; what the programs share stands in program-cases.ts. */
import {
  at,
  autoscaling,
  type Case,
  CLAIM,
  dataPlane,
  env,
  HPA,
  imageOf,
  ingress,
  isThere,
  last,
  ofOurImage,
  quickstart,
  secret,
} from "./value-readers.ts";
import { podOf } from "./helm.ts";

/** User and password in keys of their own. */
const apart = { existingSecret: "pg", host: "db.internal" };
const gateway = { enabled: true, parentRefs: [{ name: "public" }] };
const monitoring = { namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "monitoring" } } };
const DIGEST = `sha256:${"0123456789abcdef".repeat(4)}`;

export const valueCases: readonly Case[] = [
  {
    value: "image.repository",
    set: { image: { repository: "r.example/g" } },
    read: ofOurImage(({ image }) => image),
    is: ["r.example/g:0.2.0"],
  },
  {
    value: "image.tag",
    set: { image: { tag: "1.2.3" } },
    read: ofOurImage(({ image }) => image),
    is: ["gapura:1.2.3"],
  },
  {
    value: "image.digest",
    set: { image: { tag: "1.2.3", digest: DIGEST } },
    read: ofOurImage(({ image }) => image),
    is: [`gapura@${DIGEST}`],
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
    value: "imagePullSecrets",
    base: { quickstart, postgres: { existingSecret: "" }, redis: { existingSecret: "" } },
    set: {
      quickstart,
      postgres: { existingSecret: "" },
      redis: { existingSecret: "" },
      imagePullSecrets: [{ name: "registry" }],
    },
    // Images of the stores come from a mirror as well.
    read: (rendered) =>
      rendered
        .all("StatefulSet")
        .map((object) => (podOf(object) as { imagePullSecrets?: unknown }).imagePullSecrets),
    is: Array.from({ length: 2 }, () => [{ name: "registry" }]),
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
    value: "dataPlane.replicas",
    set: { dataPlane: { replicas: null } },
    read: at("Deployment", "gapura-data-plane", "spec", "replicas"),
    is: undefined,
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
    value: "dataPlane.autoscaling.metrics",
    base: { dataPlane: { autoscaling } },
    set: {
      dataPlane: {
        autoscaling: {
          ...autoscaling,
          metrics: [
            {
              type: "Pods",
              pods: {
                metric: { name: "gapura_upstream_active_requests" },
                target: { type: "AverageValue", averageValue: "200" },
              },
            },
          ],
        },
      },
    },
    read: at(...HPA, "metrics", 1, "pods", "metric", "name"),
    is: "gapura_upstream_active_requests",
  },
  {
    value: "dataPlane.autoscaling.behavior",
    base: { dataPlane: { autoscaling } },
    set: {
      dataPlane: {
        autoscaling: { ...autoscaling, behavior: { scaleDown: { stabilizationWindowSeconds: 60 } } },
      },
    },
    read: at(...HPA, "behavior", "scaleDown", "stabilizationWindowSeconds"),
    is: 60,
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
    value: "operator.replicas",
    set: { operator: { replicas: 1 } },
    read: at("Deployment", "gapura-operator", "spec", "replicas"),
    is: 1,
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
    value: "console.enabled",
    set: { console: { enabled: true } },
    read: env("data-plane", "CONSOLE"),
    is: { name: "CONSOLE", value: "true" },
  },
  {
    value: "metrics.organizations",
    set: { metrics: { organizations: true } },
    read: env("data-plane", "METRICS_ORGANIZATIONS"),
    is: { name: "METRICS_ORGANIZATIONS", value: "true" },
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
  ...(
    [
      ["host", {}, "postgres://db.internal:5432/gapura?sslmode=require"],
      ["port", { port: 6432 }, "postgres://db.internal:6432/gapura?sslmode=require"],
      ["database", { database: "led/g er+" }, "postgres://db.internal:5432/led%2Fg%20er%2B?sslmode=require"],
      ["sslMode", { sslMode: "no-verify" }, "postgres://db.internal:5432/gapura?sslmode=no-verify"],
    ] as const
  ).map(([name, given, url]): Case => ({
    value: `postgres.${name}`,
    ...(name === "host" ? {} : { base: { postgres: apart } }),
    set: { postgres: { ...apart, ...given } },
    read: (rendered) => ["data-plane", "migrate"].map((program) => env(program, "DATABASE_URL")(rendered)),
    is: ["data-plane", "migrate"].map(() => ({ name: "DATABASE_URL", value: url })),
  })),
  ...(
    [
      ["migrate", "migrate", "MIGRATE_DATABASE_URL"],
      ["read", "data-plane", "DATABASE_READ_URL"],
    ] as const
  ).flatMap(([prefix, program, name]): Case[] => [
    {
      value: `postgres.${prefix}Key`,
      set: { postgres: { existingSecret: "pg", [`${prefix}Key`]: "other" } },
      read: env(program, name),
      is: secret(name, "pg", "other"),
    },
    ...(["db-direct", "db-direct:6543"] as const).map((host): Case => ({
      value: `postgres.${prefix}Host`,
      base: { postgres: apart },
      set: { postgres: { ...apart, [`${prefix}Host`]: host } },
      read: env(program, name),
      is: {
        name,
        value: `postgres://${host.includes(":") ? host : `${host}:5432`}/gapura?sslmode=require`,
      },
    })),
  ]),
  {
    value: "postgres.connections",
    set: { postgres: { existingSecret: "pg", connections: 5 } },
    read: env("data-plane", "DATABASE_CONNECTIONS"),
    is: { name: "DATABASE_CONNECTIONS", value: "5" },
  },
  ...(
    [
      ["requests", "RETENTION_REQUESTS", "12h"],
      ["usage", "RETENTION_USAGE", "400d"],
      ["drop", "RETENTION_DROP", true],
    ] as const
  ).map(([key, name, value]): Case => ({
    value: `retention.${key}`,
    set: { retention: { [key]: value } },
    read: env("data-plane", name),
    is: { name, value: String(value) },
  })),
  {
    value: "postgres.userKey",
    base: { postgres: apart },
    set: { postgres: { ...apart, userKey: "user" } },
    read: env("migrate", "DATABASE_USER"),
    is: secret("DATABASE_USER", "pg", "user"),
  },
  {
    value: "postgres.passwordKey",
    base: { postgres: apart },
    set: { postgres: { ...apart, passwordKey: "postgres-password" } },
    read: env("data-plane", "DATABASE_PASSWORD"),
    is: secret("DATABASE_PASSWORD", "pg", "postgres-password"),
  },
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
    value: "redis.sentinelPasswordKey",
    set: { redis: { existingSecret: "rd", sentinelPasswordKey: "sentinels" } },
    read: env("data-plane", "SENTINEL_PASSWORD"),
    is: secret("SENTINEL_PASSWORD", "rd", "sentinels"),
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
    value: "service.loadBalancerClass",
    base: { service: { type: "LoadBalancer" } },
    set: { service: { type: "LoadBalancer", loadBalancerClass: "service.k8s.aws/nlb" } },
    read: at("Service", "gapura", "spec", "loadBalancerClass"),
    is: "service.k8s.aws/nlb",
  },
  {
    value: "service.loadBalancerSourceRanges",
    base: { service: { type: "LoadBalancer" } },
    set: { service: { type: "LoadBalancer", loadBalancerSourceRanges: ["192.0.2.0/24"] } },
    read: at("Service", "gapura", "spec", "loadBalancerSourceRanges"),
    is: ["192.0.2.0/24"],
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
    value: "ingress.hosts",
    base: { ingress: { enabled: true }, gateway },
    set: { ingress: { enabled: true, hosts: ["llm.example.com", { host: "llm.example.org" }] }, gateway },
    read: (rendered) => [
      (at("Ingress", "gapura", "spec", "rules")(rendered) as { host?: string; http: unknown }[]).map(
        ({ host }) => host,
      ),
      at("Ingress", "gapura", "spec", "rules", 1, "http", "paths", 0, "backend", "service", "name")(rendered),
      at("HTTPRoute", "gapura", "spec", "hostnames")(rendered),
      env("data-plane", "PUBLIC_URL")(rendered),
    ],
    is: [
      ["llm.example.com", "llm.example.org"],
      "gapura",
      ["llm.example.com", "llm.example.org"],
      { name: "PUBLIC_URL", value: "https://llm.example.com" },
    ],
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
    value: "gateway.annotations",
    base: { gateway },
    set: { gateway: { ...gateway, annotations: { "external-dns.alpha.kubernetes.io/ttl": "60" } } },
    read: at("HTTPRoute", "gapura", "metadata", "annotations"),
    is: { "external-dns.alpha.kubernetes.io/ttl": "60" },
  },
  {
    value: "networkPolicy.enabled",
    set: { networkPolicy: { enabled: true } },
    read: (rendered) => rendered.all("NetworkPolicy").map(({ metadata }) => metadata.name),
    is: ["gapura-data-plane", "gapura-operator", "gapura-smoke"],
  },
  {
    value: "networkPolicy.apiServerPorts",
    base: { networkPolicy: { enabled: true } },
    set: { networkPolicy: { enabled: true, apiServerPorts: [8443] } },
    read: at("NetworkPolicy", "gapura-operator", "spec", "egress", 1),
    is: { ports: [{ port: 8443 }] },
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
    value: "networkPolicy.opsFrom",
    base: { networkPolicy: { enabled: true } },
    set: { networkPolicy: { enabled: true, opsFrom: [monitoring] } },
    read: (rendered) => [
      at("NetworkPolicy", "gapura-data-plane", "spec", "ingress", 1, "from")(rendered),
      at("NetworkPolicy", "gapura-operator", "spec", "ingress", 0, "from")(rendered),
    ],
    is: [
      [
        {
          podSelector: {
            matchLabels: {
              "app.kubernetes.io/name": "gapura",
              "app.kubernetes.io/instance": "gapura",
              "app.kubernetes.io/component": "operator",
            },
          },
        },
        monitoring,
      ],
      [monitoring],
    ],
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
    value: "metrics.job",
    base: { metrics: { prometheusRule: { enabled: true } } },
    set: { metrics: { job: "kubernetes-pods", prometheusRule: { enabled: true } } },
    read: at("PrometheusRule", "gapura", "spec", "groups", 0, "rules", 0, "expr"),
    is: 'absent(gapura_config_info{namespace="gw",job="kubernetes-pods"})',
  },
  {
    value: "metrics.serviceAnnotations",
    set: { metrics: { serviceAnnotations: { "prometheus.io/scrape": "true" } } },
    read: at("Service", "gapura-ops", "metadata", "annotations"),
    is: { "prometheus.io/scrape": "true" },
  },
  {
    value: "metrics.serviceMonitor.labels",
    base: { metrics: { serviceMonitor: { enabled: true } } },
    set: { metrics: { serviceMonitor: { enabled: true, labels: { release: "prometheus" } } } },
    read: at("ServiceMonitor", "gapura", "metadata", "labels", "release"),
    is: "prometheus",
  },
  {
    value: "metrics.serviceMonitor.interval",
    base: { metrics: { serviceMonitor: { enabled: true } } },
    set: { metrics: { serviceMonitor: { enabled: true, interval: "1m" } } },
    read: at("ServiceMonitor", "gapura", "spec", "endpoints", 0, "interval"),
    is: "1m",
  },
  {
    value: "metrics.prometheusRule.labels",
    base: { metrics: { prometheusRule: { enabled: true } } },
    set: { metrics: { prometheusRule: { enabled: true, labels: { release: "prometheus" } } } },
    read: at("PrometheusRule", "gapura", "metadata", "labels", "release"),
    is: "prometheus",
  },
  {
    value: "metrics.prometheusRule.annotations",
    base: { metrics: { prometheusRule: { enabled: true } } },
    set: { metrics: { prometheusRule: { enabled: true, annotations: { "example.com/a": "b" } } } },
    read: at("PrometheusRule", "gapura", "metadata", "annotations", "example.com/a"),
    is: "b",
  },
  {
    value: "metrics.prometheusRule.interval",
    base: { metrics: { prometheusRule: { enabled: true } } },
    set: { metrics: { prometheusRule: { enabled: true, interval: "2m" } } },
    read: at("PrometheusRule", "gapura", "spec", "groups", 0, "interval"),
    is: "2m",
  },
  {
    value: "metrics.prometheusRule.runbookUrl",
    base: { metrics: { prometheusRule: { enabled: true } } },
    set: { metrics: { prometheusRule: { enabled: true, runbookUrl: "https://wiki.example/gapura" } } },
    read: at("PrometheusRule", "gapura", "spec", "groups", 0, "rules", 0, "annotations", "runbook_url"),
    is: "https://wiki.example/gapura#gapuranodataplane",
  },
  {
    value: "metrics.dashboards.labels",
    base: { metrics: { dashboards: { enabled: true } } },
    set: { metrics: { dashboards: { enabled: true, labels: { grafana: "main" } } } },
    read: (rendered) =>
      ["grafana", "grafana_dashboard"].map((label) =>
        at("ConfigMap", "gapura-dashboard", "metadata", "labels", label)(rendered),
      ),
    is: ["main", "1"],
  },
  {
    value: "metrics.dashboards.annotations",
    base: { metrics: { dashboards: { enabled: true } } },
    set: { metrics: { dashboards: { enabled: true, annotations: { grafana_folder: "Inference" } } } },
    read: at("ConfigMap", "gapura-dashboard", "metadata", "annotations"),
    is: { grafana_folder: "Inference" },
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
