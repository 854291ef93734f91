/** `docs/configuration.md`: every field of the four kinds with its default and an example. */
import { type JsonSchema, inline, isSchema, specSchema } from "./crd.ts";
import { DEFAULT_NOTE, EXAMPLE_NOTE, GROUP, VERSION } from "./fields.ts";
import { NOTES, REASONS } from "../plan/conditions.ts";
import { KINDS, kinds } from "./kinds.ts";

const introduction = `# Configuration

*Written by \`npm run generate\` from \`operator/api\`; edit the schemas, not this page.*

Models, tools, prices and organizations are declared as four kinds of the group \`${GROUP}\`, version \`${VERSION}\`. The same YAML works in a cluster, where an operator reads it, and on one machine, where it lies in a folder beside plain \`kind: Secret\` documents. \`npm run validate -- DIR\` checks a folder, or a file, and names each fault with file and line (of one object the first twenty), words and numbers too that kubectl, which reads YAML 1.1, would take for something else (\`NO\`, \`on\`, \`010\`). In a folder hidden files and \`kustomization.yaml\` are left out; where kustomize or Helm changes manifests, check what it prints.

- Durations are strings such as \`90s\`, \`2m\` or \`1m30s\`, at most 24 hours. Prices and credits are decimals in quotes.
- A field that is not known is refused with its path. Nothing is filled in in your manifests: where a field is absent, the default of the table applies.
- References reach objects and Secrets of the same namespace only.
- An object that stops being valid keeps what it last served; its status says so. \`Accepted\` is about the object itself, \`ResolvedRefs\` about what it names, \`Programmed\` about what the data plane really holds, \`Ready\` is the sum.
`;

interface Row {
  readonly path: string;
  readonly type: string;
  readonly required: boolean;
  readonly schema: JsonSchema;
}

const asSchema = (value: unknown): JsonSchema | null => (isSchema(value) ? value : null);

function typeOf(schema: JsonSchema): string {
  if (Array.isArray(schema["enum"])) return schema["enum"].map((value) => `\`${String(value)}\``).join(", ");
  if (schema["type"] === "array") return `list of ${typeOf(asSchema(schema["items"]) ?? {})}`;
  const values = asSchema(schema["additionalProperties"]);
  if (values !== null) return `map of ${typeOf(values)}`;
  return String(schema["type"]);
}

function rowsOf(schema: JsonSchema, prefix: string): Row[] {
  const required = Array.isArray(schema["required"]) ? schema["required"] : [];
  return Object.entries(asSchema(schema["properties"]) ?? {}).flatMap(([name, value]) => {
    const inner = asSchema(value) ?? {};
    const items = asSchema(inner["items"]);
    const path = `${prefix}${name}${items === null ? "" : "[]"}`;
    const row = { path, type: typeOf(inner), required: required.includes(name), schema: inner };
    return [row, ...rowsOf(items ?? inner, `${path}.`)];
  });
}

const code = (value: unknown) => (value === undefined ? "" : `\`${inline(value)}\``);
const cell = (text: string) => text.replaceAll("|", "\\|");

/** Splits off a default that can only be given in words ("… Default: the model id."). */
function splitDescription(field: JsonSchema): { meaning: string; fallback: string } {
  const description = typeof field["description"] === "string" ? field["description"] : "";
  const [meaning = "", fallback = ""] = description.split(" Default: ");
  return { meaning, fallback: fallback.replace(/\.$/, "") };
}

function table(schema: JsonSchema): string {
  const lines = rowsOf(schema, "spec.").map(({ path, type, required, schema: field }) => {
    const { meaning, fallback } = splitDescription(field);
    const name = `\`${path}\`${required ? " *" : ""}`;
    const cells = [name, type, code(field[DEFAULT_NOTE]) || fallback, code(field[EXAMPLE_NOTE]), meaning];
    return `| ${cells.map(cell).join(" | ")} |`;
  });
  return ["| Field | Type | Default | Example | Meaning |", "|---|---|---|---|---|", ...lines].join("\n");
}

/** Makes the page; `examples` holds a whole manifest for each kind. */
export function configurationPage(examples: Readonly<Record<string, string>>): string {
  const sections = KINDS.map((kind) => {
    const { description, shortName } = kinds[kind];
    return [
      `## ${kind}`,
      `${description} Short name \`${shortName}\`. Fields with * are required (inside their parent).`,
      `\`\`\`yaml\n${(examples[kind] ?? "").trimEnd()}\n\`\`\``,
      table(specSchema(kind)),
    ].join("\n\n");
  });
  return `${[introduction.trimEnd(), ...sections, statusSection()].join("\n\n")}\n`;
}

function statusSection(): string {
  const rows = Object.entries(REASONS).flatMap(([condition, reasons]) =>
    Object.entries(reasons).map(
      ([reason, meaning]) => `| \`${condition}\` | \`${reason}\` | ${cell(meaning)} |`,
    ),
  );
  return [
    "## Status",
    "Every object has the conditions `Accepted`, `ResolvedRefs`, `Programmed` and `Ready`; `Ready` repeats the first cause that stands in the way. `Stalled` is there, and `True`, when only a change by a person can help. In a folder the operator prints a status when its meaning changes.",
    ["| Condition | Reason | Meaning |", "|---|---|---|", ...rows].join("\n"),
    "An Organization can be served and still hold something that is not as it is written: then the messages of `Programmed` and `Ready`, which stay `True`, name the field and one of these. With `Refused` this generation is not served, and the message names one without a field.",
    [
      "| Note | Meaning |",
      "|---|---|",
      ...Object.entries(NOTES).map(([note, meaning]) => `| \`${note}\` | ${cell(meaning)} |`),
    ].join("\n"),
  ].join("\n\n");
}
