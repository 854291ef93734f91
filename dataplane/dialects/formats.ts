/**
 * Structured output (dialects.md §D1): Messages has a schema alone; Chat and Responses also name and describe it
 * and have a mode for JSON without a schema, which crosses between them beside the hub.
 */
import type { Carry } from "./codecs.ts";
import type { Cursor } from "./cursor.ts";
import type { JsonObject, JsonValue, MessagesRequest } from "./messages/types.ts";
import type { DropListener } from "./drop-listener.ts";
import { isClosed, strictSchema } from "./schemas.ts";
import { isObject } from "../lib/json-object.ts";

/** The name of a schema that came without one. */
const SCHEMA_NAME = "output";

/** The parts of a `json_schema` format, which are nested in Chat and flat in Responses. */
export interface SchemaFormat {
  readonly [key: string]: JsonValue;
  readonly type: "json_schema";
  readonly name: string;
  readonly schema: JsonObject;
  readonly strict: boolean;
}

/** Reads a client's schema into the hub. `format` holds name, schema and strict. @throws ApiError */
export function readSchemaFormat(format: Cursor): MessagesRequest["output_config"] {
  format.text("name");
  format.text("description");
  format.boolean("strict");
  return { format: { type: "json_schema", schema: format.requiredObject("schema").value } };
}

/** The client's own format object, flat as in Responses; undefined when it has none, is a Messages client, or gets a summary. */
function clientFormat(carry: Carry): JsonObject | undefined {
  const { request } = carry;
  if (carry.compacts) return undefined;
  if (carry.dialect === "responses")
    return isObject(request["text"]) && isObject(request["text"]["format"])
      ? request["text"]["format"]
      : undefined;
  const format = carry.dialect === "chat" ? request["response_format"] : undefined;
  if (!isObject(format)) return undefined;
  return isObject(format["json_schema"]) ? { ...format["json_schema"], type: "json_schema" } : format;
}

/** Whether the client asks for JSON without a schema. */
export const wantsJsonObject = (carry: Carry): boolean => clientFormat(carry)?.["type"] === "json_object";

/** The schema that a request asks for, as Chat and Responses want it; rule 2.9 for `strict`. */
export function writeSchemaFormat(
  request: MessagesRequest,
  carry: Carry,
  notes: DropListener,
): SchemaFormat | undefined {
  const schema = request.output_config?.format?.schema;
  if (schema === undefined) return undefined;
  if (carry.dialect === "messages") {
    const field = carry.request["output_format"] === undefined ? "output_config.format" : "output_format";
    const strict = strictSchema(schema, `${field}.schema`, notes);
    return { type: "json_schema", name: SCHEMA_NAME, schema: strict ?? schema, strict: strict !== null };
  }
  const { name, description, strict } = clientFormat(carry) ?? {};
  return {
    type: "json_schema",
    name: typeof name === "string" && name !== "" ? name : SCHEMA_NAME,
    ...(typeof description === "string" && { description }),
    schema,
    strict: typeof strict === "boolean" ? strict : isClosed(schema),
  };
}
