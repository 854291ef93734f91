/**
 * The API's types for the console's client, made from the OpenAPI document: what the page expects of an answer is what the
 * service promises. Understands as much of JSON Schema as zod writes.
 */
import { openApiDocument, type Json } from "../dataplane/http/openapi/document.ts";

const path = "dataplane/console/src/api/schema.ts";

/** @returns the generated file: its path from the root, and its text. */
export function consoleTypes(): readonly [string, string] {
  const document = openApiDocument();
  const { schemas } = document["components"] as { schemas: Record<string, Json> };
  const named = Object.entries(schemas).map(
    ([name, schema]) => `export type ${name} = ${typeOf(schema, "")};\n`,
  );
  const operations = Object.entries(document.paths).flatMap(([url, methods]) =>
    Object.entries(methods).map(
      ([method, operation]) => `  "${method.toUpperCase()} ${url}": ${operationType(operation)};\n`,
    ),
  );
  return [
    path,
    [
      "/** Generated from the OpenAPI document: `npm run generate`. */\n",
      ...named,
      `/** By method and path: what an operation takes and answers. */\nexport interface Operations {\n${operations.join("")}}\n`,
    ].join("\n"),
  ];
}

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required: boolean;
  readonly schema: Json;
}
type Contents = Readonly<Record<string, { readonly schema?: Json }>>;

function operationType(operation: Json): string {
  const parameters = (operation["parameters"] ?? []) as readonly Parameter[];
  const query = parameters.filter((parameter) => parameter.in === "query");
  const body = (operation["requestBody"] as { content: Contents } | undefined)?.content["application/json"];
  const { content } = (operation["responses"] as Record<string, { content: Contents }>)["200"] ?? {};
  const answer = content?.["application/json"]?.schema;
  const fields = [
    ...(query.length === 0 ? [] : [`query: { ${query.map(parameterType).join("; ")} }`]),
    ...(body?.schema === undefined ? [] : [`body: ${typeOf(body.schema, "    ")}`]),
    `answer: ${answer === undefined ? "unknown" : typeOf(answer, "    ")}`,
  ];
  return `{ ${fields.join("; ")} }`;
}

const parameterType = ({ name, required, schema }: Parameter): string =>
  `${name}${required ? "" : "?"}: ${typeOf(schema, "    ")}`;

function typeOf(schema: Json, indent: string): string {
  const reference = schema["$ref"];
  if (typeof reference === "string") return reference.split("/").at(-1) ?? "never";
  if ("const" in schema) return JSON.stringify(schema["const"]);
  const choices = schema["enum"] as readonly unknown[] | undefined;
  if (choices !== undefined) return choices.map((choice) => JSON.stringify(choice)).join(" | ");
  const variants = (schema["anyOf"] ?? schema["oneOf"]) as readonly Json[] | undefined;
  if (variants !== undefined) return variants.map((variant) => typeOf(variant, indent)).join(" | ");
  const types = schema["type"];
  if (Array.isArray(types))
    return types.map((type) => typeOf({ ...schema, type: type as string }, indent)).join(" | ");
  switch (types) {
    case "string":
    case "boolean":
    case "null":
      return types;
    case "integer":
    case "number":
      return "number";
    case "array":
      return `readonly (${typeOf((schema["items"] ?? {}) as Json, indent)})[]`;
    case "object":
      return objectType(schema, indent);
    default:
      return "unknown";
  }
}

function objectType(schema: Json, indent: string): string {
  const properties = Object.entries((schema["properties"] ?? {}) as Record<string, Json>);
  if (properties.length === 0) return "Readonly<Record<string, unknown>>";
  const required = new Set((schema["required"] ?? []) as readonly string[]);
  const inner = `${indent}  `;
  const fields = properties.map(
    ([name, value]) => `${inner}readonly ${name}${required.has(name) ? "" : "?"}: ${typeOf(value, inner)};`,
  );
  return `{\n${fields.join("\n")}\n${indent}}`;
}
