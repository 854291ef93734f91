/**
 * What is derived of a chart's values.yaml: its schema and its README. The values file is the only source;
 * a comment that begins with `--` describes the value below it.
 */
import { isMap, isScalar, parseDocument, type Pair, type Node } from "yaml";

interface Value {
  /** Dotted. */
  readonly path: string;
  readonly description: string;
  /** As JSON; null for a group of further values. */
  readonly preset: unknown;
  readonly group: boolean;
}

/** Maps that a user fills with keys of their own. */
const OPEN = new Set(["resources", "nodeSelector", "affinity", "podAnnotations", "annotations"]);
const ENUMS: Readonly<Record<string, readonly string[]>> = {
  "image.pullPolicy": ["Always", "IfNotPresent", "Never"],
  logLevel: ["debug", "info", "warn", "error"],
  tenancy: ["Trusted", "Namespaced"],
  "service.type": ["ClusterIP", "NodePort", "LoadBalancer"],
};

/** An address, or nothing. */
const PATTERNS: Readonly<Record<string, string>> = { publicUrl: "^(https?://[^/].*)?$" };
/** Lists of plain names. */
const NAMES = new Set(["watchNamespaces", "platformNamespaces", "ownHosts"]);
/** Lists whose items are told apart by their names; those of all others but one are objects of some other kind. */
const NAMED = new Set([
  "imagePullSecrets",
  "dataPlane.extraEnv",
  "dataPlane.extraVolumes",
  "dataPlane.extraVolumeMounts",
  "gateway.parentRefs",
]);

/** Every value in the file's order; a value without a description is an error. */
export function chartValues(text: string): Value[] {
  const found: Value[] = [];
  const visit = (node: Node | null, path: readonly string[]): void => {
    if (!isMap(node)) return;
    for (const pair of node.items as Pair<Node, Node | null>[]) {
      const key = isScalar(pair.key) ? String(pair.key.value) : "";
      const here = [...path, key];
      const open = OPEN.has(key) || !isMap(pair.value) || pair.value.items.length === 0;
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

type Schema = { [key: string]: unknown; properties?: Record<string, Schema> };

/** JSON schema of the values: unknown keys are refused, so that a misspelt value is not silently the default. */
export function chartSchema(text: string): Schema {
  const root: Schema = {
    $schema: "http://json-schema.org/draft-07/schema#",
    type: "object",
    additionalProperties: false,
    properties: { global: { type: "object" } },
  };
  for (const value of chartValues(text)) {
    const steps = value.path.split(".");
    const last = steps.pop() ?? "";
    const parent = steps.reduce<Schema>((schema, step) => schema.properties?.[step] ?? schema, root);
    parent.properties ??= {};
    parent.properties[last] = value.group
      ? { type: "object", additionalProperties: false, properties: {} }
      : { description: value.description, ...typeOf(value) };
  }
  return root;
}

function typeOf({ path, preset }: Value): Schema {
  const options = ENUMS[path];
  if (options !== undefined) return { enum: [...options] };
  if (Array.isArray(preset)) return { type: "array", items: itemsOf(path) };
  if (typeof preset === "number") return { type: "integer", minimum: 0 };
  if (typeof preset === "boolean") return { type: "boolean" };
  if (typeof preset !== "string") return { type: "object" };
  const pattern = PATTERNS[path];
  return { type: "string", ...(pattern === undefined ? {} : { pattern }) };
}

function itemsOf(path: string): Schema {
  if (NAMES.has(path)) return { type: "string", minLength: 1 };
  return { type: "object", ...(NAMED.has(path) ? { required: ["name"] } : {}) };
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
