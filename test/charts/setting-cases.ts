/** Values of images, names, sizes, rights and settings, each with a place of the render that it changes. */
import {
  at,
  autoscaling,
  type Case,
  dataPlane,
  env,
  HPA,
  ingress,
  isThere,
  ofOurImage,
} from "./value-readers.ts";
import { podOf } from "./helm.ts";

const DIGEST = `sha256:${"0123456789abcdef".repeat(4)}`;

export const settingCases: readonly Case[] = [
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
  {
    value: "tests.enabled",
    set: { tests: { enabled: false } },
    read: isThere("Pod", "gapura-smoke"),
    is: false,
  },
];
