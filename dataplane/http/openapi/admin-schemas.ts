/** The resources of the admin API, for the OpenAPI document (schemas.ts); its reports: report-schemas.ts. */

import { z } from "zod";
import { limitPeriods } from "../../config/schema.ts";
import { MOST_NAME } from "../../lib/names.ts";
import { limitsForm } from "../admin/limits.ts";
import { credits, isoMoment, list, named, tokens, unixMoment } from "./schema-parts.ts";

export const organization = named(
  "Organization",
  z.looseObject({ id: z.string(), type: z.literal("organization"), name: z.string() }),
);
export const consoleSignIn = named(
  "ConsoleSignIn",
  z.looseObject({
    type: z.literal("console_sign_in"),
    organization_id: z.string(),
    issuer: z.string(),
    client_id: z.string(),
    scopes: z.array(z.string()).describe("`openid` is the first"),
    audience: z.string().nullable().describe("The parameter `audience` to send"),
    resource: z.string().nullable().describe("The parameter `resource` to send (RFC 8707)"),
  }),
);
const declaredIn = z
  .string()
  .nullable()
  .describe(
    "`Organization NAMESPACE/NAME` where a resource declares the key, which is then changed only there",
  );
const limitsShown = named(
  "Limits",
  z.looseObject({
    credits: z.looseObject({ amount: credits, per: z.enum(limitPeriods) }).nullable(),
    models: z.array(z.string()).nullable(),
    requests_per_minute: z.int().nullable(),
    tokens_per_minute: z.int().nullable(),
    concurrent_requests: z.int().nullable(),
  }),
);
const standing = named(
  "Standing",
  z.looseObject({
    scope: z.enum(["key", "project"]),
    per: z.enum(limitPeriods),
    amount: credits,
    spent: credits,
    held: credits,
    left: credits,
    begins_anew_at: isoMoment.nullable(),
  }),
);
const limited = {
  limits: limitsShown.nullable().describe("Its own; null: none"),
  standing: z.array(standing).describe("How each credit limit stands that holds"),
};
const limitsAsked = named("LimitsChange", limitsForm);
const keyFields = {
  id: z.string(),
  type: z.literal("api_key"),
  name: z.string(),
  workspace_id: z.string(),
  created_at: isoMoment,
  created_by: z.looseObject({ id: z.string(), type: z.literal("user") }),
  partial_key_hint: z.string(),
  status: z.enum(["active", "inactive"]),
  last_used_at: isoMoment.nullable(),
  declared_in: declaredIn,
  expires_at: isoMoment.nullable(),
  ...limited,
  scope: z.looseObject({ type: z.literal("workspace"), workspace_id: z.string() }),
  principal: z.null(),
};
export const apiKey = named("ApiKey", z.looseObject(keyFields));
export const newApiKey = named(
  "NewApiKey",
  z.looseObject({ ...keyFields, key: z.string().describe("The plaintext; shown only here") }),
);
export const apiKeyList = named("ApiKeyList", list(apiKey));
const expiry = z
  .union([isoMoment, unixMoment])
  .nullable()
  .optional()
  .describe("From then on the key answers 401; null: never");
export const keyToMake = named(
  "NewKey",
  z.strictObject({
    name: z.string().min(1).max(MOST_NAME),
    expires_at: expiry,
    limits: limitsAsked.nullable().optional(),
  }),
);
export const keyChange = named(
  "KeyChange",
  z.strictObject({
    name: z.string().min(1).max(MOST_NAME).nullable().optional(),
    status: z.enum(["active", "inactive"]).nullable().optional(),
    expires_at: expiry,
    limits: limitsAsked.nullable().optional(),
  }),
);
export const projectChange = named(
  "ProjectChange",
  z.strictObject({ limits: limitsAsked.nullable().optional() }),
);
export const ownKey = named(
  "Key",
  z.looseObject({
    object: z.literal("key"),
    id: z.string(),
    name: z.string(),
    project_id: z.string(),
    created_at: isoMoment,
    expires_at: isoMoment.nullable(),
    ...limited,
  }),
);
export const project = named(
  "Project",
  z.looseObject({
    id: z.string(),
    object: z.literal("organization.project"),
    name: z.string(),
    created_at: unixMoment,
    status: z.enum(["active", "archived"]),
    archived_at: unixMoment.nullable(),
    limits_declared_in: z
      .string()
      .nullable()
      .describe(
        "`Organization NAMESPACE/NAME` where a resource declares the limits, which then change only there",
      ),
    ...limited,
  }),
);
export const projectList = named("ProjectList", list(project));
const projectKeyFields = {
  object: z.literal("organization.project.api_key"),
  id: z.string(),
  name: z.string(),
  redacted_value: z.string(),
  created_at: unixMoment,
  last_used_at: unixMoment.nullable(),
  declared_in: declaredIn,
  expires_at: unixMoment.nullable(),
  ...limited,
  owner: z.looseObject({ type: z.string() }),
  owner_project_access: z.literal("active"),
};
export const projectKey = named("ProjectApiKey", z.looseObject(projectKeyFields));
export const newProjectKey = named(
  "NewProjectApiKey",
  z.looseObject({ ...projectKeyFields, value: z.string().describe("The plaintext; shown only here") }),
);
export const projectKeyList = named("ProjectApiKeyList", list(projectKey));
export const deletedProjectKey = named(
  "DeletedProjectApiKey",
  z.looseObject({
    object: z.literal("organization.project.api_key.deleted"),
    id: z.string(),
    deleted: z.literal(true),
  }),
);
export const creditsState = named(
  "Credits",
  z.looseObject({
    object: z.literal("organization.credits"),
    granted: credits,
    used: credits,
    held: credits,
    available: credits,
    storage: z
      .looseObject({ bytes: z.int(), max_bytes: z.int(), files: z.int(), max_files: z.int() })
      .describe("What is kept of files, requests of batches and results, and what may be"),
    grants: z.array(
      z.looseObject({
        name: z.string(),
        amount: credits,
        granted_at: isoMoment,
        source: z.enum(["declared", "command"]),
      }),
    ),
  }),
);
export const configurationList = named(
  "ConfigurationList",
  list(
    named(
      "ConfigurationObject",
      z.looseObject({
        id: z.string(),
        object: z.literal("organization.configuration"),
        kind: z.enum(["Organization", "ModelRoute", "ToolPolicy", "PriceTable"]),
        namespace: z.string(),
        name: z.string(),
        generation: z.int(),
        conditions: z.array(
          z.looseObject({ type: z.string(), status: z.string(), reason: z.string(), message: z.string() }),
        ),
      }),
    ),
  ),
);

// Requests.

export const requestRecordBody = named(
  "Request",
  z.looseObject({
    object: z.literal("organization.request"),
    id: z.string(),
    created_at: unixMoment,
    api_key_id: z.string().nullable(),
    project_id: z.string().nullable(),
    dialect: z.string().nullable().describe("messages, chat, responses; null: it asked for no inference"),
    path: z.enum(["relay", "convert", "tools"]).nullable(),
    model: z.string().nullable(),
    status: z
      .int()
      .describe("HTTP status; 499: the client left before the end, 503: also what a pod that ended cut"),
    error_code: z
      .string()
      .nullable()
      .describe("As this service's OpenAI-style errors name it, in every dialect"),
    streamed: z.boolean(),
    first_byte_ms: z.number().nullable(),
    duration_ms: z.number(),
    tries: z
      .array(
        z.looseObject({
          status: z.int().nullable().describe("Of the provider's answer; null: there was none"),
          reason: z
            .string()
            .nullable()
            .describe(
              "connect, timeout, cut, garbage, account, rate_limited, server_error, refused, cancelled, exhausted, unsendable; null: it answered",
            ),
          ms: z.number(),
        }),
      )
      .describe("Calls to providers, the first 100"),
    input_tokens: tokens,
    output_tokens: tokens,
    credits,
    tool_calls: z.int(),
    batch_id: z.string().nullable(),
    tags: z.record(z.string(), z.string()),
  }),
);
export const requestRecordList = named("RequestList", list(requestRecordBody));

export const user = named(
  "User",
  z.looseObject({
    object: z.literal("organization.user"),
    id: z.string().describe("Stands where a key's id stands"),
    name: z.string().nullable().describe("As their token says; null: it does not"),
    role: z.enum(["member", "viewer", "admin"]),
    project_id: z.string().nullable().describe("Of a member; null: of another role"),
    added_at: unixMoment,
    last_used_at: unixMoment.nullable(),
    ...limited,
  }),
);
export const userList = named("UserList", list(user));
