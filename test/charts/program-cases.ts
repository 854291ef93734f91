/** Values that the data plane, the operator and the migration have alike, and those about the life of a pod. */
import { at, type Case, env, isThere, last, quickstart } from "./value-readers.ts";
import type { Rendered } from "./helm.ts";

const programs = [
  { group: "dataPlane", kind: "Deployment", name: "gapura-data-plane", container: "data-plane" },
  { group: "operator", kind: "Deployment", name: "gapura-operator", container: "operator" },
  { group: "migrations", kind: "Job", name: "gapura-migrate", container: "migrate" },
] as const;
const deployments = programs.slice(0, 2);
/** Where all pods of ours say something: both programs, the migration, the smoke test. */
const everyPod = (field: string) => (rendered: Rendered) => [
  ...programs.map(({ kind, name }) => at(kind, name, "spec", "template", "spec", field)(rendered)),
  at("Pod", "gapura-smoke", "spec", field)(rendered),
];

const ofEachProgram = programs.flatMap(({ group, kind, name, container }): Case[] => {
  const pod = (...path: readonly (string | number)[]) => at(kind, name, "spec", "template", "spec", ...path);
  const metadata = (...path: readonly string[]) => at(kind, name, "spec", "template", "metadata", ...path);
  const row = (value: string, given: unknown, read: Case["read"], is: unknown = given): Case => ({
    value: `${group}.${value}`,
    set: { [group]: { [value]: given } },
    read,
    is,
  });
  const resources = {
    requests: { cpu: 2, memory: "1Gi", "ephemeral-storage": "1Gi" },
    limits: { memory: "3Gi", "ephemeral-storage": "3Gi" },
  };
  const mount = { name: "ca", mountPath: "/etc/ca", readOnly: true };
  return [
    row("resources", resources, pod("containers", 0, "resources")),
    row("nodeSelector", { pool: "gw" }, pod("nodeSelector")),
    row("tolerations", [{ operator: "Exists" }], pod("tolerations")),
    row("affinity", { podAffinity: {} }, pod("affinity")),
    row("priorityClassName", "business-critical", pod("priorityClassName")),
    row(
      "annotations",
      { "example.com/owner": "ml" },
      at(kind, name, "metadata", "annotations", "example.com/owner"),
      "ml",
    ),
    row("podAnnotations", { team: "ml" }, metadata("annotations")),
    row(
      "podLabels",
      { "azure.workload.identity/use": "true" },
      metadata("labels", "azure.workload.identity/use"),
      "true",
    ),
    row(
      "extraEnv",
      [{ name: "NODE_EXTRA_CA_CERTS", value: "/etc/ca/ca.crt" }],
      env(container, "NODE_EXTRA_CA_CERTS"),
      {
        name: "NODE_EXTRA_CA_CERTS",
        value: "/etc/ca/ca.crt",
      },
    ),
    row("extraVolumes", [{ name: "ca", configMap: { name: "ca" } }], last(pod("volumes")), {
      name: "ca",
      configMap: { name: "ca" },
    }),
    row("extraVolumeMounts", [mount], last(pod("containers", 0, "volumeMounts")), mount),
  ];
});

const ofEachDeployment = deployments.flatMap(({ group, name }): Case[] => {
  const account = (given: object) => ({ [group]: { serviceAccount: given } });
  const used = at("Deployment", name, "spec", "template", "spec", "serviceAccountName");
  return [
    {
      value: `${group}.serviceAccount.create`,
      base: account({ name: "mine" }),
      set: account({ create: false, name: "mine" }),
      read: (rendered) => [used(rendered), isThere("ServiceAccount", "mine")(rendered)],
      is: ["mine", false],
    },
    {
      // Never the namespace's default account, which anybody's pods have: the operator's may read Secrets.
      value: `${group}.serviceAccount.create`,
      set: account({ create: false }),
      read: (rendered) => [
        used(rendered),
        isThere("ServiceAccount", name)(rendered),
        JSON.stringify(rendered.all("RoleBinding")).includes('"name":"default"'),
      ],
      is: [name, false, false],
    },
    {
      value: `${group}.serviceAccount.name`,
      set: account({ name: "mine" }),
      read: (rendered) => [
        used(rendered),
        isThere("ServiceAccount", "mine")(rendered),
        // The operator's rights go to it.
        ...rendered.all("RoleBinding").flatMap((binding) => binding["subjects"]),
      ],
      is: [
        "mine",
        true,
        { kind: "ServiceAccount", name: group === "operator" ? "mine" : "gapura-operator", namespace: "gw" },
      ],
    },
    {
      value: `${group}.serviceAccount.annotations`,
      set: account({ annotations: { "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/gapura" } }),
      read: at("ServiceAccount", name, "metadata", "annotations"),
      is: { "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/gapura" },
    },
    {
      value: `${group}.podDisruptionBudget.enabled`,
      set: { [group]: { podDisruptionBudget: { enabled: false } } },
      read: isThere("PodDisruptionBudget", name),
      is: false,
    },
  ];
});

const dataPlane = (...path: readonly (string | number)[]) =>
  at("Deployment", "gapura-data-plane", "spec", "template", "spec", ...path);

export const programCases: readonly Case[] = [
  ...ofEachProgram,
  ...ofEachDeployment,
  {
    value: "migrations.serviceAccountName",
    set: { migrations: { serviceAccountName: "migrator" } },
    read: at("Job", "gapura-migrate", "spec", "template", "spec", "serviceAccountName"),
    is: "migrator",
  },
  {
    value: "dataPlane.host",
    set: { dataPlane: { host: "::" } },
    read: env("data-plane", "HOST"),
    is: { name: "HOST", value: "::" },
  },
  {
    value: "dataPlane.drainTimeout",
    set: { dataPlane: { drainTimeout: 1800 } },
    read: (rendered) => [
      env("data-plane", "DRAIN_TIMEOUT")(rendered),
      dataPlane("terminationGracePeriodSeconds")(rendered),
    ],
    is: [{ name: "DRAIN_TIMEOUT", value: "1800" }, 1860],
  },
  {
    value: "dataPlane.terminationGracePeriodSeconds",
    set: { dataPlane: { terminationGracePeriodSeconds: 900 } },
    read: dataPlane("terminationGracePeriodSeconds"),
    is: 900,
  },
  {
    value: "dataPlane.initContainers",
    base: { quickstart },
    set: { quickstart, dataPlane: { initContainers: [{ name: "wait", image: "busybox:1" }] } },
    read: (rendered) => (dataPlane("initContainers")(rendered) as { name: string }[]).map(({ name }) => name),
    // What the user starts first may be what the migration needs.
    is: ["wait", "migrate"],
  },
  {
    value: "dataPlane.sidecars",
    set: { dataPlane: { sidecars: [{ name: "proxy", image: "proxy:1" }] } },
    read: (rendered) => (dataPlane("containers")(rendered) as { name: string }[]).map(({ name }) => name),
    is: ["data-plane", "proxy"],
  },
  {
    value: "hostAliases",
    set: { hostAliases: [{ ip: "10.0.0.9", hostnames: ["db.internal"] }] },
    read: everyPod("hostAliases"),
    is: Array.from({ length: 4 }, () => [{ ip: "10.0.0.9", hostnames: ["db.internal"] }]),
  },
  {
    value: "dnsConfig",
    set: { dnsConfig: { options: [{ name: "ndots", value: "1" }] } },
    read: everyPod("dnsConfig"),
    is: Array.from({ length: 4 }, () => ({ options: [{ name: "ndots", value: "1" }] })),
  },
  {
    // As OpenShift's restricted-v2 wants it: the cluster chooses the ids.
    value: "podSecurityContext",
    set: { podSecurityContext: { runAsUser: null, runAsGroup: null, fsGroup: null } },
    read: everyPod("securityContext"),
    is: Array.from({ length: 4 }, () => ({ runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } })),
  },
  {
    value: "containerSecurityContext",
    set: { containerSecurityContext: { readOnlyRootFilesystem: false } },
    read: dataPlane("containers", 0, "securityContext", "readOnlyRootFilesystem"),
    is: false,
  },
  {
    value: "commonLabels",
    set: { commonLabels: { team: "ml", "app.kubernetes.io/name": "not-gapura" } },
    read: (rendered) => [
      rendered.objects.every(({ metadata }) => metadata.labels?.["team"] === "ml"),
      // Selectors go by the chart's own, which win.
      rendered.objects.every(({ metadata }) => metadata.labels?.["app.kubernetes.io/name"] === "gapura"),
      at("Deployment", "gapura-operator", "spec", "template", "metadata", "labels", "team")(rendered),
    ],
    is: [true, true, "ml"],
  },
  {
    value: "extraObjects",
    set: {
      extraObjects: [
        {
          apiVersion: "v1",
          kind: "ConfigMap",
          metadata: { name: "{{ .Release.Name }}-ca" },
          data: { a: "b" },
        },
      ],
    },
    read: at("ConfigMap", "gapura-ca", "data"),
    is: { a: "b" },
  },
];
