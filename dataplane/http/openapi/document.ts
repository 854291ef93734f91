/** The OpenAPI 3.1 document, made from the table of operations. Pure. */
import { z } from "zod";
import { MAX_TAG_LENGTH, MAX_TAGS } from "../../lib/tags.ts";
import { errorStyle } from "../error-style.ts";
import { operations, type ApiOperation } from "./operations.ts";
import { components, messagesError, openAIError } from "./schema-parts.ts";

export type Json = Readonly<Record<string, unknown>>;

/** Names of path parameters as they are shown. */
const parameterNames: Readonly<Record<string, string>> = { project: "project_id", id: "id" };
const MODEL_PARAMETER = "model";

/** A header of each inference request (rule 14.4). */
const tagsHeader = {
  name: "x-gapura-tags",
  in: "header",
  required: false,
  description: `The organization's own marks, for its reports: at most ${MAX_TAGS} of at most ${MAX_TAG_LENGTH} characters.`,
  schema: { type: "string", example: "team=ml,feature=search" },
};

export interface ApiDocument {
  readonly openapi: "3.1.0";
  readonly paths: Readonly<Record<string, Readonly<Record<string, Json>>>>;
  readonly [field: string]: unknown;
}

/** Makes the whole document from `operations`. */
export function openApiDocument(): ApiDocument {
  const paths: Record<string, Record<string, Json>> = {};
  for (const [name, operation] of Object.entries(operations)) {
    const [method = "", url = ""] = name.split(" ");
    const path = documentPath(url);
    const methods = (paths[path] ??= {});
    methods[method.toLowerCase()] = operationObject(method, path, operation);
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Gapura",
      version: "1",
      description: "Inference in three dialects, files, batches, and the admin API of an inference gateway.",
    },
    servers: [{ url: "/" }],
    paths,
    components: {
      schemas: componentSchemas(),
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer" },
        header: { type: "apiKey", in: "header", name: "x-api-key" },
      },
    },
  };
}

/** `/v1/files/:id` as `/v1/files/{id}`. */
export function documentPath(url: string): string {
  return url
    .replace("*", `{${MODEL_PARAMETER}}`)
    .replace(/:([a-z]+)/g, (_, name: string) => `{${parameterNames[name] ?? name}}`);
}

function operationObject(method: string, path: string, operation: ApiOperation): Json {
  const isApi = path.startsWith("/v1/");
  const open = operation.keyless === true || !isApi;
  const inPath = Array.from(path.matchAll(/\{(\w+)\}/g), ([, name]) => ({
    name,
    in: "path",
    required: true,
    schema: { type: "string" },
  }));
  const { body, answer, streams } = operation;
  const parameters = [
    ...inPath,
    ...queryParameters(operation.query),
    ...(streams === true ? [tagsHeader] : []),
  ];
  const content: Record<string, Json> = {
    ...Object.fromEntries(
      [answer.type]
        .flat()
        .map((type) => [type, answer.schema === null ? {} : { schema: reference(answer.schema) }]),
    ),
    ...(streams === true ? { "text/event-stream": { schema: { type: "string" } } } : {}),
  };
  return {
    operationId: operationId(method, path),
    summary: operation.summary,
    tags: [/^\/v1\/organizations?\//.test(path) ? "admin" : (path.split("/")[2] ?? "service")],
    security: open ? [] : [{ bearer: [] }, { header: [] }],
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined
      ? {}
      : { requestBody: { required: true, content: { [body.type]: { schema: reference(body.schema) } } } }),
    responses: {
      200: { description: "Done", content },
      ...(isApi
        ? { default: { description: "An error", content: { "application/json": { schema: errorOf(path) } } } }
        : {}),
    },
  };
}

/** On shared paths the version header decides the style of errors, and the body holds the fields of both. */
function errorOf(path: string): Json {
  const style = errorStyle(path, undefined);
  if (style.union) return { anyOf: [reference(openAIError), reference(messagesError)] };
  return reference(style.family === "messages" ? messagesError : openAIError);
}

function queryParameters(query: z.ZodObject | undefined): Json[] {
  if (query === undefined) return [];
  const { properties = {}, required = [] } = z.toJSONSchema(query, { io: "input" });
  return Object.entries(properties).map(([name, schema]) => {
    const given = notNull(schema);
    return {
      name,
      in: "query",
      required: required.includes(name),
      // Null is sent as an empty value.
      ...(given !== schema && { allowEmptyValue: true }),
      ...styleOf(given),
      schema: given,
    };
  });
}

/** Returns the schema of a value that is not null. */
function notNull(schema: unknown): unknown {
  const { anyOf, type } = schema as {
    readonly anyOf?: readonly { readonly type?: string }[];
    readonly type?: unknown;
  };
  if (Array.isArray(type) && type.length === 2 && type[1] === "null")
    return { ...(schema as object), type: type[0] as unknown };
  return anyOf?.length === 2 && anyOf[1]?.type === "null" ? anyOf[0] : schema;
}

function styleOf(schema: unknown): Json {
  const { type } = schema as { readonly type?: unknown };
  if (type === "array") return { style: "form", explode: true };
  return type === "object" ? { style: "deepObject", explode: true } : {};
}

const place = (id: string) => `#/components/schemas/${id}`;

function reference(schema: z.ZodType): Json {
  const id = components.get(schema)?.id;
  return id === undefined ? withoutDialect(z.toJSONSchema(schema)) : { $ref: place(id) };
}

function componentSchemas(): Json {
  const { schemas } = z.toJSONSchema(components, { uri: place });
  return Object.fromEntries(Object.entries(schemas).map(([id, schema]) => [id, withoutDialect(schema)]));
}

/** Inside of a document a schema has neither a dialect nor an address of its own. */
function withoutDialect(schema: Json): Json {
  return Object.fromEntries(Object.entries(schema).filter(([name]) => name !== "$schema" && name !== "$id"));
}

/** `GET /v1/files/{id}/content` as `get_files_id_content`. */
function operationId(method: string, path: string): string {
  const words = path.replace(/^\/v1/, "").match(/[a-z0-9_]+/gi) ?? [];
  return [method.toLowerCase(), ...words].join("_");
}
