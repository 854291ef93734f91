/** Makes CustomResourceDefinitions, and JSON schemas for editors, from the zod schemas. */
import { z } from "zod";
import {
  API_VERSION,
  DEFAULT_NOTE,
  EXAMPLE_NOTE,
  GROUP,
  MADE_ORGANIZATION_ID_LENGTH,
  VERSION,
} from "./fields.ts";
import { type Kind, type KindInfo, kinds } from "./kinds.ts";

export type JsonSchema = { [key: string]: unknown };

export const isSchema = (value: unknown): value is JsonSchema =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Returns the JSON schema of a kind's spec, with our notes still in it. */
export function specSchema(kind: Kind): JsonSchema {
  const { $schema: _, ...schema } = z.toJSONSchema(kinds[kind].spec, { io: "input" }) as JsonSchema;
  return schema;
}

/** Writes a value as a manifest would have it, in one line. */
export const inline = (value: unknown): string =>
  typeof value === "string" ? value : JSON.stringify(value).replaceAll('","', '", "');

/** Walks a schema and its sub-schemas, from the inside out. */
function mapSchema(schema: JsonSchema, change: (schema: JsonSchema) => JsonSchema): JsonSchema {
  const inner = { ...schema };
  if (isSchema(inner["properties"]))
    inner["properties"] = Object.fromEntries(
      Object.entries(inner["properties"]).map(([name, value]) => [
        name,
        isSchema(value) ? mapSchema(value, change) : value,
      ]),
    );
  for (const key of ["items", "additionalProperties"])
    if (isSchema(inner[key])) inner[key] = mapSchema(inner[key], change);
  return change(inner);
}

/** Writes the default into the description: the schema itself must carry none (GitOps diffs stay clean). */
function described(schema: JsonSchema): JsonSchema {
  const { [DEFAULT_NOTE]: fallback, [EXAMPLE_NOTE]: _example, description, ...rest } = schema;
  const text =
    typeof description === "string" && fallback !== undefined
      ? `${description} Default: ${inline(fallback)}.`
      : description;
  return text === undefined ? rest : { description: text, ...rest };
}

const withoutSafeBounds = (schema: JsonSchema): JsonSchema => {
  if (schema["type"] !== "integer") return schema;
  const { minimum, maximum, ...rest } = schema;
  return {
    ...rest,
    format: "int64",
    ...(minimum === Number.MIN_SAFE_INTEGER || minimum === undefined ? {} : { minimum }),
    ...(maximum === Number.MAX_SAFE_INTEGER || maximum === undefined ? {} : { maximum }),
  };
};

/** Makes what the API server calls a structural schema. */
function structural(schema: JsonSchema): JsonSchema {
  return mapSchema(schema, (one) => {
    const { propertyNames: _, additionalProperties, ...rest } = described(withoutSafeBounds(one));
    // Unknown fields are refused by the API server's own field validation, not by the schema.
    return additionalProperties === undefined || additionalProperties === false
      ? rest
      : { ...rest, additionalProperties };
  });
}

/** Makes a schema that editors understand, without Kubernetes extensions. */
function plain(schema: JsonSchema): JsonSchema {
  return mapSchema(schema, (one) =>
    Object.fromEntries(
      Object.entries(described(withoutSafeBounds(one))).filter(
        ([key]) => !key.startsWith("x-") && key !== "format",
      ),
    ),
  );
}

const text = (description: string, maxLength: number, more: JsonSchema = {}): JsonSchema => ({
  description,
  type: "string",
  maxLength,
  ...more,
});
const count = (description: string): JsonSchema => ({ description, type: "integer", format: "int64" });

const conditionSchema: JsonSchema = {
  description: "One aspect of the object's state.",
  type: "object",
  required: ["type", "status", "reason", "message", "lastTransitionTime"],
  properties: {
    type: text("Accepted, ResolvedRefs, Programmed, Ready or Stalled.", 316),
    status: text("True, False or Unknown.", 16, { enum: ["True", "False", "Unknown"] }),
    reason: text("The cause as one word, for programs.", 1024),
    message: text("The cause as a sentence, for people.", 32_768),
    lastTransitionTime: text("When status last changed.", 64, { format: "date-time" }),
    observedGeneration: count("The generation that this condition is about."),
  },
};

/** kstatus must not call an object current before the operator has seen it. */
const defaultStatus = {
  observedGeneration: -1,
  conditions: [
    {
      type: "Ready",
      status: "Unknown",
      reason: "Pending",
      message: "Waiting for the operator",
      lastTransitionTime: "1970-01-01T00:00:00Z",
    },
  ],
};

/** What a status of each kind tells beside its conditions: `Verdict.facts`. */
const factSchemas: Readonly<Record<Kind, Readonly<Record<string, JsonSchema>>>> = {
  ModelRoute: { model: text("The id that clients send.", 253), upstreams: count("Number of upstreams.") },
  ToolPolicy: { engine: text("Engine of web_search.", 64) },
  PriceTable: { models: count("Number of priced models.") },
  Organization: {
    id: text("The id under which it is charged.", MADE_ORGANIZATION_ID_LENGTH),
    limits: text("Its limits of credit, of keys and projects.", 512),
  },
};

const statusSchema = (kind: Kind): JsonSchema => ({
  description: "What the operator found and what the data plane holds; written by the operator alone.",
  type: "object",
  default: defaultStatus,
  properties: {
    observedGeneration: count("The newest generation that the operator has judged."),
    conditions: {
      description:
        "Accepted, ResolvedRefs, Programmed and Ready, and Stalled when only a change by a person can help.",
      type: "array",
      maxItems: 16,
      "x-kubernetes-list-type": "map",
      "x-kubernetes-list-map-keys": ["type"],
      items: conditionSchema,
    },
    ...factSchemas[kind],
  },
});

const readyColumn = (
  name: string,
  field: string,
  description: string,
  more: JsonSchema = {},
): JsonSchema => ({
  name,
  type: "string",
  description,
  jsonPath: `.status.conditions[?(@.type=="Ready")].${field}`,
  ...more,
});

const columnsOf = (info: KindInfo): JsonSchema[] => [
  ...info.columns.map((column) => ({ ...column })),
  readyColumn("Ready", "status", "True when everything about the object is well."),
  readyColumn("Reason", "reason", "Why it is, or is not."),
  { name: "Age", type: "date", description: "Time since creation.", jsonPath: ".metadata.creationTimestamp" },
  readyColumn("Message", "message", "The cause as a sentence.", { priority: 1 }),
];

export const crdFileName = (kind: Kind): string => `${kinds[kind].plural}.yaml`;
export const jsonSchemaFileName = (kind: Kind): string => `${kinds[kind].singular}_${VERSION}.json`;

/** Makes the CustomResourceDefinition of one kind, ready to be written as YAML. */
export function customResourceDefinition(kind: Kind): JsonSchema {
  const info = kinds[kind];
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${info.plural}.${GROUP}`, labels: { "app.kubernetes.io/part-of": "gapura" } },
    spec: {
      group: GROUP,
      names: {
        kind,
        listKind: `${kind}List`,
        plural: info.plural,
        singular: info.singular,
        shortNames: [info.shortName],
        categories: ["gapura"],
      },
      scope: "Namespaced",
      versions: [
        {
          name: VERSION,
          served: true,
          storage: true,
          subresources: { status: {} },
          additionalPrinterColumns: columnsOf(info),
          schema: {
            openAPIV3Schema: {
              description: info.description,
              type: "object",
              required: ["spec"],
              properties: {
                apiVersion: { type: "string", description: `Always ${API_VERSION}.` },
                kind: { type: "string", description: `Always ${kind}.` },
                // The API server describes `metadata` itself, and takes no description here.
                metadata: { type: "object" },
                spec: { ...structural(specSchema(kind)), description: "What is wanted." },
                status: statusSchema(kind),
              },
            },
          },
        },
      ],
    },
  };
}

/** Makes the JSON schema of a whole manifest of one kind, for editors and offline checks. */
export function manifestJsonSchema(kind: Kind): JsonSchema {
  return {
    $schema: "http://json-schema.org/draft-07/schema#",
    title: kind,
    description: kinds[kind].description,
    type: "object",
    required: ["apiVersion", "kind", "metadata", "spec"],
    additionalProperties: false,
    properties: {
      apiVersion: { const: API_VERSION },
      kind: { const: kind },
      metadata: {
        description: "Name, namespace, labels and annotations.",
        type: "object",
        required: ["name"],
        properties: { name: { type: "string" }, namespace: { type: "string" } },
      },
      spec: { description: "What is wanted.", ...plain(specSchema(kind)) },
      status: { description: "Written by the operator alone.", type: "object" },
    },
  };
}
