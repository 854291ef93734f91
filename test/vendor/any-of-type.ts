/** Values of a vendor's type, all kinds of blocks, parts and items among them, made from its JSON schema. */
import fc, { type GeneratorValue } from "fast-check";
import type { JsonObject, JsonValue } from "../../dataplane/dialects/messages/types.ts";
import type { Schema } from "./schemas.ts";

/** So deep, nothing is made that may be left out. */
const DEEP = 8;
const ARGUMENTS = '{"at":"it"}';
const text = fc.string({ maxLength: 12, unit: "grapheme" });

/** @param more how often a field stands that may be left out, 0 to 1. */
export function anyOfType(schema: Schema, more: number): fc.Arbitrary<JsonObject> {
  const definitions = (schema["definitions"] ?? {}) as Record<string, Schema>;
  return fc.gen().map((draw) => value(schema, 0, { draw, more, definitions }) as JsonObject);
}

interface Making {
  readonly draw: GeneratorValue;
  readonly more: number;
  readonly definitions: Readonly<Record<string, Schema>>;
}

function value(schema: Schema, depth: number, making: Making): JsonValue {
  const { draw, definitions } = making;
  if (typeof schema["$ref"] === "string") {
    const name = decodeURIComponent(schema["$ref"].replace("#/definitions/", ""));
    return value(definitions[name] ?? {}, depth, making);
  }
  if ("const" in schema) return schema["const"] as JsonValue;
  if (Array.isArray(schema["enum"])) return draw(fc.constantFrom, ...(schema["enum"] as JsonValue[]));
  if (Array.isArray(schema["anyOf"])) {
    const branches = schema["anyOf"] as Schema[];
    const flat = branches.filter((branch) => !("$ref" in branch) && branch["type"] !== "object");
    return value(
      draw(fc.constantFrom, ...(depth > DEEP && flat.length > 0 ? flat : branches)),
      depth + 1,
      making,
    );
  }
  const types = [schema["type"] ?? "object"].flat() as string[];
  switch (draw(fc.constantFrom, ...types)) {
    case "null":
      return null;
    case "boolean":
      return draw(fc.boolean);
    case "integer":
    case "number":
      return draw(fc.nat, 99);
    case "string":
      return draw(() => text);
    case "array": {
      const items = (schema["items"] ?? {}) as Schema;
      const length = depth > DEEP ? 0 : draw(fc.nat, 3);
      return Array.from({ length }, () => value(items, depth + 1, making));
    }
    default:
      return object(schema, depth, making);
  }
}

function object(schema: Schema, depth: number, making: Making): JsonObject {
  const required = new Set((schema["required"] ?? []) as string[]);
  const properties = Object.entries((schema["properties"] ?? {}) as Record<string, Schema>);
  const isMade = (name: string) =>
    required.has(name) || (depth <= DEEP && making.draw(fc.nat, 99) < making.more * 100);
  return Object.fromEntries(
    properties
      .filter(([name]) => isMade(name))
      // Arguments are a text that holds JSON, which no schema says.
      .map(([name, inner]) => [name, name === "arguments" ? ARGUMENTS : value(inner, depth + 1, making)]),
  );
}
