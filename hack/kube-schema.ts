/**
 * JSON schemas of Kubernetes' own types (EnvVar, Affinity, Volume, …), as the chart's values hold them. They come from the
 * models of the Kubernetes client, so that a misspelt field is refused before anything is applied.
 */
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as models from "@kubernetes/client-node";

export type JsonSchema = { [key: string]: unknown };

interface Attribute {
  readonly name: string;
  readonly baseName: string;
  readonly type: string;
}

const folder = join(dirname(fileURLToPath(import.meta.resolve("@kubernetes/client-node"))), "gen/models");

/** Enumerations that the models lack: they have strings where the API has a few words. */
const ENUMS: Readonly<Record<string, readonly string[]>> = {
  "V1Toleration.operator": ["Exists", "Equal"],
  "V1Toleration.effect": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
  "V1TopologySpreadConstraint.whenUnsatisfiable": ["DoNotSchedule", "ScheduleAnyway"],
  "V1NetworkPolicyPort.protocol": ["TCP", "UDP", "SCTP"],
  "V1NodeSelectorRequirement.operator": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
  "V1LabelSelectorRequirement.operator": ["In", "NotIn", "Exists", "DoesNotExist"],
  "V1SeccompProfile.type": ["RuntimeDefault", "Localhost", "Unconfined"],
  "V1AppArmorProfile.type": ["RuntimeDefault", "Localhost", "Unconfined"],
  "V2MetricSpec.type": ["Object", "Pods", "Resource", "ContainerResource", "External"],
};
/** https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names */
export const OBJECT_NAME = {
  type: "string",
  maxLength: 253,
  pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
} as const;
/** https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set */
export const LABEL_VALUE = {
  type: "string",
  maxLength: 63,
  pattern: "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
} as const;
/**
 * Amounts may be written as numbers: `cpu: 2`.
 * https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
 */
const quantity: JsonSchema = {
  type: ["string", "number"],
  pattern: "^([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?$",
};
const OVERRIDES: Readonly<Record<string, JsonSchema>> = {
  "V1ResourceRequirements.limits": { type: "object", additionalProperties: quantity },
  "V1ResourceRequirements.requests": { type: "object", additionalProperties: quantity },
  "V1VolumeResourceRequirements.limits": { type: "object", additionalProperties: quantity },
  "V1VolumeResourceRequirements.requests": { type: "object", additionalProperties: quantity },
  "V1EmptyDirVolumeSource.sizeLimit": quantity,
  "V2MetricTarget.averageValue": quantity,
  "V2MetricTarget.value": quantity,
  "V1HostAlias.ip": { type: "string", pattern: "^([0-9.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)$" },
  "V1LocalObjectReference.name": OBJECT_NAME,
  "V1IPBlock.cidr": { type: "string", pattern: "^[0-9a-fA-F.:]+/[0-9]{1,3}$" },
};

/** A peer names something, and addresses or pods: the API server refuses both together. */
export const PEER: JsonSchema = {
  oneOf: [
    { required: ["ipBlock"] },
    { anyOf: [{ required: ["namespaceSelector"] }, { required: ["podSelector"] }] },
  ],
};
/** Rules on whole types that the models lack. */
const RULES: Readonly<Record<string, JsonSchema>> = { V1NetworkPolicyPeer: PEER };

/** Points to a type of `definitions`. */
export const kubeType = (name: string): JsonSchema => ({ $ref: `#/definitions/${name}` });

/** The definitions of these types and of all that they are made of, by name. */
export function kubeDefinitions(names: readonly string[]): Record<string, JsonSchema> {
  const found: Record<string, JsonSchema> = {};
  const visit = (name: string): void => {
    if (name in found) return;
    const optional = optionalFields(name);
    const attributes = attributesOf(name);
    const schema: JsonSchema = { type: "object", additionalProperties: false, ...RULES[name] };
    found[name] = schema;
    schema["properties"] = Object.fromEntries(
      attributes.map(({ baseName, type }) => {
        const options = ENUMS[`${name}.${baseName}`];
        return [
          baseName,
          options === undefined ? typeSchema(`${name}.${baseName}`, type, visit) : { enum: options },
        ];
      }),
    );
    const required = attributes
      .filter((attribute) => !optional.has(attribute.name))
      .map(({ baseName }) => baseName);
    if (required.length > 0) schema["required"] = required;
  };
  names.forEach(visit);
  return Object.fromEntries(Object.entries(found).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

function attributesOf(name: string): readonly Attribute[] {
  const model = (models as unknown as Record<string, { getAttributeTypeMap?: () => Attribute[] }>)[name];
  if (model?.getAttributeTypeMap === undefined) throw new Error(`the Kubernetes client has no ${name}`);
  return model.getAttributeTypeMap();
}

/** Fields that may be left out: only the type files of the models have that. */
function optionalFields(name: string): ReadonlySet<string> {
  const text = readFileSync(join(folder, `${name}.d.ts`), "utf8");
  return new Set(Array.from(text.matchAll(/^ {4}'(\w+)'\?:/gm), (match) => match[1] ?? ""));
}

function typeSchema(path: string, type: string, visit: (name: string) => void): JsonSchema {
  const override = OVERRIDES[path];
  if (override !== undefined) return override;
  const list = /^Array<(.*)>$/.exec(type)?.[1];
  if (list !== undefined) return { type: "array", items: typeSchema(path, list, visit) };
  const map = /^\{ \[key: string\]: (.*); \}$/.exec(type)?.[1];
  if (map !== undefined) return { type: "object", additionalProperties: typeSchema(path, map, visit) };
  if (type === "number") return { type: "integer" };
  if (type === "string" || type === "boolean") return { type };
  if (type === "IntOrString") return { type: ["integer", "string"] };
  if (type === "Date") return { type: "string" };
  if (type === "any") return {};
  visit(type);
  return kubeType(type);
}
