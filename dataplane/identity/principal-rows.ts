/** Reading keys from Postgres: the columns of one, and how a principal is made of them. */
import { sql } from "slonik";
import { z } from "zod";
import { effectiveScopes } from "../billing/scopes.ts";
import { limitsSchema } from "../config/schema.ts";
import type { Principal } from "./principal.ts";

const rowSchema = z.object({
  kind: z.enum(["inference", "admin", "viewer"]),
  keyId: z.string(),
  keyName: z.string(),
  organizationId: z.string(),
  projectId: z.string().nullable(),
  keyEpoch: z.bigint().transform(Number),
  expiresAt: z.number().nullable(),
  keyLimits: limitsSchema.nullable(),
  keyDefaults: limitsSchema.nullable(),
  projectLimits: limitsSchema.nullable(),
});
export const principalSchema = rowSchema.transform(withScopes);
/** With the project that was asked for. */
export const inProjectSchema = rowSchema
  .extend({ askedProjectId: z.string() })
  .transform(({ askedProjectId, ...row }) => ({ projectId: askedProjectId, principal: withScopes(row) }));
/** With the digest of the key. */
export const foundSchema = rowSchema
  .extend({ sha256: z.string() })
  .transform(({ sha256, ...row }) => ({ sha256, principal: withScopes(row) }));

function withScopes({
  keyLimits,
  keyDefaults,
  projectLimits,
  ...principal
}: z.output<typeof rowSchema>): Principal {
  // Admin keys spend nothing.
  const defaults = principal.kind === "inference" ? keyDefaults : null;
  const limits = effectiveScopes(
    { id: principal.keyId, limits: keyLimits, defaults },
    { id: principal.projectId, limits: projectLimits },
  );
  return { ...principal, limits };
}

/** Selects principals: `more` columns, the key's project or that of `joined` rows. The caller adds conditions on `key`. */
export const selectPrincipals = (
  more = sql.fragment``,
  projectId = sql.fragment`key.project_id`,
  joined = sql.fragment``,
) => sql.fragment`
  select key.kind, key.id as "keyId", key.name as "keyName", key.organization_id as "organizationId",
    project.id as "projectId", key.expires_at as "expiresAt", organization.key_epoch as "keyEpoch",
    key.limits as "keyLimits", organization.key_limits as "keyDefaults", project.limits as "projectLimits" ${more}
  from api_keys key join organizations organization on organization.id = key.organization_id
  ${joined}
  left join projects project on project.id = ${projectId} and project.organization_id = organization.id
`;

/**
 * Condition on rows of `selectPrincipals`. A key of an archived project is not valid. A person may be in one: the rules of their
 * identity provider decide on their project and their end.
 */
export const isValidKey = sql.fragment`
  key.status = 'active' and key.deleted_at is null
  and (key.expires_at is null or key.expires_at > clock_timestamp())
  and not organization.suspended and organization.deleted_at is null
  and (project.archived_at is null or key.source = 'identity')
`;
