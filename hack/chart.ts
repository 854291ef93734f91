/**
 * Derives a chart's schema and README from its values.yaml, the only source; a comment that begins with `--` describes the
 * value below it.
 */
import { kubeDefinitions, kubeType, LABEL_VALUE, OBJECT_NAME, PEER } from "./kube-schema.ts";
import { isMap, isScalar, parseDocument, type Pair, type Node } from "yaml";

interface Value {
  /** Path with dots. */
  readonly path: string;
  readonly description: string;
  /** As JSON; null for a group of further values. */
  readonly preset: unknown;
  readonly group: boolean;
}

type Schema = { [key: string]: unknown; properties?: Record<string, Schema>; required?: string[] };

/** Maps of strings that a user fills with keys of their own, by their last name: what each string is. */
const MAPS: Readonly<Record<string, Schema>> = {
  nodeSelector: LABEL_VALUE,
  annotations: { type: "string" },
  podAnnotations: { type: "string" },
  serviceAnnotations: { type: "string" },
  labels: LABEL_VALUE,
  podLabels: LABEL_VALUE,
  commonLabels: LABEL_VALUE,
};
/** Values of a type of Kubernetes, by their last name; lists of them with `[]`. */
const KUBE: Readonly<Record<string, string>> = {
  affinity: "V1Affinity",
  behavior: "V2HorizontalPodAutoscalerBehavior",
  containerSecurityContext: "V1SecurityContext",
  dnsConfig: "V1PodDNSConfig",
  extraEnv: "V1EnvVar[]",
  extraVolumeMounts: "V1VolumeMount[]",
  extraVolumes: "V1Volume[]",
  hostAliases: "V1HostAlias[]",
  imagePullSecrets: "V1LocalObjectReference[]",
  initContainers: "V1Container[]",
  // Metrics of the autoscaler; the chart's own `metrics` is a group.
  metrics: "V2MetricSpec[]",
  opsFrom: "V1NetworkPolicyPeer[]",
  podSecurityContext: "V1PodSecurityContext",
  resources: "V1ResourceRequirements",
  sidecars: "V1Container[]",
  tls: "V1IngressTLS[]",
  tolerations: "V1Toleration[]",
  topologySpread: "V1TopologySpreadConstraint[]",
};
const name = { type: "string", minLength: 1 };
const HOST = "^(\\*\\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$";
const CIDR = "^[0-9a-fA-F.:]+/[0-9]{1,3}$";
const port = { type: "integer", minimum: 1, maximum: 65_535 };
const pattern = (text: string): Schema => ({ type: "string", pattern: text });
interface Name {
  readonly pattern: string;
  readonly maxLength: number;
}
const named = ({ pattern: text, maxLength }: Name): Schema => ({ ...pattern(text), maxLength });
const orNothing = ({ pattern: text, maxLength }: Name): Schema =>
  named({ pattern: `(^$)|(${text})`, maxLength });
const DATA_KEY: Name = { pattern: "^[-._a-zA-Z0-9]+$", maxLength: 253 };
/** Key of a label, an annotation (which alone may have capitals before the slash) or a label of a node. */
const LABEL_KEY = "^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";
/** Part of `metrics.job`, for alerts: in quotes of PromQL and in lines of YAML that have none. */
const JOB_WORD = "[-_./@:A-Za-z0-9]*[-_./@A-Za-z0-9]";
/** With less than 35 days no pod starts. */
const AT_LEAST_35_DAYS = "((3[5-9]|[4-9][0-9]|[1-9][0-9]{2,3})d|(8[4-9][0-9]|9[0-9]{2}|[1-9][0-9]{3})h)";
/** A duration as the Prometheus operator's definitions have it: largest unit first. */
const INTERVAL = "^(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?$";
/** Names of objects and of data keys, by their last name; empty where the default is. */
const NAMES: Readonly<Record<string, Name>> = {
  className: OBJECT_NAME,
  existingSecret: OBJECT_NAME,
  key: DATA_KEY,
  migrateKey: DATA_KEY,
  passwordKey: DATA_KEY,
  priorityClassName: OBJECT_NAME,
  readKey: DATA_KEY,
  sentinelPasswordKey: DATA_KEY,
  serviceAccountName: OBJECT_NAME,
  storageClassName: OBJECT_NAME,
  userKey: DATA_KEY,
};
/** Schemas that follow neither from the default nor from a type of Kubernetes. */
const SPECIAL: Readonly<Record<string, Schema>> = {
  // Names of Services begin with it.
  fullnameOverride: pattern("^([a-z]([a-z0-9-]*[a-z0-9])?)?$"),
  nameOverride: pattern("^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$"),
  "dataPlane.serviceAccount.name": orNothing(OBJECT_NAME),
  "operator.serviceAccount.name": orNothing(OBJECT_NAME),
  "image.pullPolicy": { enum: ["Always", "IfNotPresent", "Never"] },
  "image.repository": pattern("^([a-zA-Z0-9.-]+(:[0-9]+)?/)?[a-z0-9._-]+(/[a-z0-9._-]+)*$"),
  "image.tag": pattern("^[A-Za-z0-9_.-]*$"),
  "image.digest": pattern("^(sha256:[0-9a-f]{64})?$"),
  logLevel: { enum: ["debug", "info", "warn", "error"] },
  tenancy: { enum: ["Trusted", "Namespaced"] },
  "service.type": { enum: ["ClusterIP", "NodePort", "LoadBalancer"] },
  "service.port": port,
  "service.loadBalancerSourceRanges": { type: "array", items: pattern(CIDR) },
  "postgres.host": pattern("^[A-Za-z0-9.-]*$"),
  "postgres.port": port,
  "postgres.migrateHost": pattern("^[A-Za-z0-9.-]*(:[0-9]{1,5})?$"),
  "postgres.readHost": pattern("^[A-Za-z0-9.-]*(:[0-9]{1,5})?$"),
  "postgres.connections": { type: "integer", minimum: 2, maximum: 100 },
  // With more than 90d no pod starts.
  "retention.requests": {
    anyOf: [
      pattern("^(0|([1-9]|[1-8][0-9]|90)d|([1-9][0-9]{0,2}|1[0-9]{3}|20[0-9]{2}|21[0-5][0-9]|2160)h)$"),
      { const: 0 },
    ],
  },
  "retention.audit": pattern(`^${AT_LEAST_35_DAYS}$`),
  "retention.usage": pattern(`^${AT_LEAST_35_DAYS}?$`),
  "postgres.sslMode": { enum: ["disable", "require", "no-verify"] },
  // An address, or nothing.
  publicUrl: pattern("^(https?://[^/\\s?#@]+(/[^\\s?#]*)?)?$"),
  "metrics.job": pattern(`^(${JOB_WORD}( ${JOB_WORD})*)?$`),
  "metrics.prometheusRule.runbookUrl": pattern("^(https?://[^/][^#]*)?$"),
  "metrics.serviceMonitor.interval": { ...pattern(INTERVAL), minLength: 1 },
  "metrics.prometheusRule.interval": pattern(INTERVAL),
  "quickstart.storage": pattern("^[0-9]+(\\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)$"),
  "dataPlane.replicas": { type: ["integer", "null"], minimum: 0 },
  // An address: a name would be looked up before anything is there.
  "dataPlane.host": pattern("^([0-9]+(\\.[0-9]+){3}|[0-9a-fA-F:]*:[0-9a-fA-F:.]*)$"),
  "dataPlane.drainTimeout": { type: "integer", minimum: 1, maximum: 86_400 },
  "dataPlane.terminationGracePeriodSeconds": { type: "integer", minimum: 0, maximum: 90_000 },
  "dataPlane.autoscaling.minReplicas": { type: "integer", minimum: 1 },
  "dataPlane.autoscaling.maxReplicas": { type: "integer", minimum: 1 },
  "dataPlane.autoscaling.targetCPU": { type: "integer", minimum: 1, maximum: 1000 },
  watchNamespaces: { type: "array", uniqueItems: true, items: pattern("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$") },
  platformNamespaces: { type: "array", uniqueItems: true, items: pattern("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$") },
  ownHosts: {
    type: "array",
    items: pattern("^([-_.a-zA-Z0-9]+|\\[[0-9a-fA-F:.]+\\])(:[0-9]{1,5})?$|^[0-9a-fA-F:.]+$"),
  },
  "ingress.host": pattern(`(^$)|(${HOST})`),
  "ingress.hosts": {
    type: "array",
    items: {
      type: ["string", "object"],
      pattern: HOST,
      required: ["host"],
      additionalProperties: false,
      properties: { host: pattern(HOST) },
    },
  },
  "gateway.parentRefs": {
    type: "array",
    items: {
      type: "object",
      required: ["name"],
      additionalProperties: false,
      properties: { group: name, kind: name, namespace: name, name, sectionName: name, port },
    },
  },
  "networkPolicy.dnsPorts": { type: "array", minItems: 1, uniqueItems: true, items: port },
  "networkPolicy.apiServerPorts": { type: "array", minItems: 1, uniqueItems: true, items: port },
  "networkPolicy.allowTo": {
    type: "array",
    items: {
      type: "object",
      additionalProperties: false,
      ...PEER,
      properties: {
        ipBlock: kubeType("V1IPBlock"),
        namespaceSelector: kubeType("V1LabelSelector"),
        podSelector: kubeType("V1LabelSelector"),
        ports: { type: "array", items: kubeType("V1NetworkPolicyPort") },
      },
    },
  },
  extraObjects: {
    type: "array",
    items: { type: "object", required: ["apiVersion", "kind", "metadata"] },
  },
};

const isOpen = (key: string, value: unknown) =>
  key in MAPS || (key in KUBE && !(key === "metrics" && isMap(value)));

/** Every value in the file's order; a value without a description is an error. */
export function chartValues(text: string): Value[] {
  const found: Value[] = [];
  const visit = (node: Node | null, path: readonly string[]): void => {
    if (!isMap(node)) return;
    for (const pair of node.items as Pair<Node, Node | null>[]) {
      const key = isScalar(pair.key) ? String(pair.key.value) : "";
      const here = [...path, key];
      const open = isOpen(key, pair.value) || !isMap(pair.value) || pair.value.items.length === 0;
      // The comment before a map's first key belongs to the map itself.
      const comment = pair.key.commentBefore ?? (pair === node.items[0] ? node.commentBefore : null) ?? "";
      const description = /^\s*--\s*(.*)$/m.exec(comment)?.[1] ?? "";
      if (open && description === "") throw new Error(`${here.join(".")} has no description`);
      found.push({
        path: here.join("."),
        description,
        preset: open ? pair.value?.toJSON() : null,
        group: !open,
      });
      if (!open) visit(pair.value, here);
    }
  };
  visit(parseDocument(text).contents, []);
  return found;
}

/**
 * JSON schema of the values: unknown keys are refused, so that a misspelt value is not silently the default. Helm removes a
 * value that is null, as a group with nothing below it is, from the defaults: only a list or a map may be null, and none that
 * keeps pods restricted.
 */
export function chartSchema(values: string): Schema {
  const root: Schema = {
    $schema: "http://json-schema.org/draft-07/schema#",
    type: "object",
    additionalProperties: false,
    properties: { global: { type: "object" } },
  };
  for (const value of chartValues(values)) {
    const steps = value.path.split(".");
    const last = steps.pop() ?? "";
    const parent = steps.reduce<Schema>((schema, step) => schema.properties?.[step] ?? schema, root);
    parent.properties ??= {};
    const schema = value.group
      ? { type: "object", additionalProperties: false, properties: {} }
      : { description: value.description, ...typeOf(value) };
    parent.properties[last] = schema;
    if (!mayBeNull(value, schema)) (parent.required ??= []).push(last);
  }
  const text = JSON.stringify(root);
  const used = new Set(Array.from(text.matchAll(/#\/definitions\/(\w+)/g), (match) => match[1] ?? ""));
  return used.size === 0 ? root : { ...root, definitions: kubeDefinitions([...used]) };
}

/** Maps that keep pods restricted: without them pods might run as root. */
const RESTRICTIONS: readonly string[] = ["podSecurityContext", "containerSecurityContext"];

const mayBeNull = ({ path, group, preset }: Value, { type, minItems }: Schema): boolean => {
  if (group || minItems !== undefined || RESTRICTIONS.includes(path)) return false;
  return (Array.isArray(type) && type.includes("null")) || typeof preset === "object";
};

function typeOf({ path, preset }: Value): Schema {
  const special = SPECIAL[path];
  if (special !== undefined) return special;
  const key = path.split(".").at(-1) ?? "";
  const item = MAPS[key];
  if (item !== undefined)
    return { type: "object", patternProperties: { [LABEL_KEY]: item }, additionalProperties: false };
  const form = NAMES[key];
  if (form !== undefined) return preset === "" ? orNothing(form) : named(form);
  const kube = KUBE[key];
  if (kube?.endsWith("[]") === true) return { type: "array", items: kubeType(kube.slice(0, -2)) };
  if (kube !== undefined) return kubeType(kube);
  if (typeof preset === "number") return { type: "integer", minimum: 0 };
  if (typeof preset === "boolean") return { type: "boolean" };
  if (typeof preset === "string") return { type: "string" };
  throw new Error(`${path} needs a schema of its own (hack/chart.ts)`);
}

/** README of a chart: what it is, and a table of its values. */
export function chartReadme(title: string, intro: string, text: string): string {
  const rows = chartValues(text)
    .filter(({ group }) => !group)
    .map(
      ({ path, description, preset }) =>
        `| \`${path}\` | ${description.replaceAll("|", "\\|")} | \`${JSON.stringify(preset)}\` |`,
    );
  return [
    `# ${title}`,
    "",
    intro,
    "",
    "| value | what it does | default |",
    "| --- | --- | --- |",
    ...rows,
    "",
  ].join("\n");
}
