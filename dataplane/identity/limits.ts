/** Limits of keys and projects as they are stored, and what changes of them mean (rules 9.4, 9.5). */
import { sql, type CommonQueryMethods, type FragmentSqlToken } from "slonik";
import { z } from "zod";
import { limitsSchema, type Limits } from "../config/schema.ts";
import { readRows } from "../store/read-rows.ts";
import { effectiveScopes, NO_LIMITS, type LimitedScope } from "../billing/scopes.ts";

/** Absent fields stay as they are, null takes one away. */
export type LimitsChange = { readonly [Field in keyof Limits]: Limits[Field] | null };

/** Applies a change to limits; null: none is left. */
export function changedLimits(before: Limits | null, change: LimitsChange | null): Limits | null {
  if (change === null) return null;
  const kept = Object.entries({ ...before, ...change }).filter(
    ([, value]) => value !== null && value !== undefined,
  );
  return kept.length === 0 ? null : limitsSchema.parse(Object.fromEntries(kept));
}

export const jsonb = (limits: Limits | null) =>
  limits === null ? sql.fragment`null::jsonb` : sql.jsonb(limits);

const limitedSchema = z
  .object({
    id: z.string(),
    limits: limitsSchema,
    defaults: limitsSchema,
    projectId: z.string().nullable(),
    projectLimits: limitsSchema,
  })
  .transform(
    ({ projectId, projectLimits, ...key }) =>
      [key.id, effectiveScopes(key, { id: projectId, limits: projectLimits })] as const,
  );

/** Selects the limits of credit only, as only they have a standing: lists of models may be long. */
const creditsOf = (limits: FragmentSqlToken) =>
  sql.fragment`jsonb_strip_nulls(jsonb_build_object('credits', ${limits} -> 'credits'))`;

/** Returns the limits of credit that hold for each of these keys, by id; none for keys that may ask no models. */
export async function scopesOfKeys(
  pool: CommonQueryMethods,
  keyIds: readonly string[],
): Promise<(keyId: string) => readonly LimitedScope[]> {
  const rows = await readRows(
    pool,
    limitedSchema,
    sql.fragment`
      select key.id, ${creditsOf(sql.fragment`key.limits`)} as limits,
      ${creditsOf(sql.fragment`organization.key_limits`)} as defaults, project.id as "projectId",
      ${creditsOf(sql.fragment`project.limits`)} as "projectLimits"
    from api_keys key join organizations organization on organization.id = key.organization_id
    left join projects project on project.id = key.project_id
    where key.id = any(${sql.array([...keyIds], "text")}) and key.kind = 'inference'
    `,
  );
  const scopes = new Map(rows);
  return (keyId) => scopes.get(keyId) ?? NO_LIMITS;
}
