/**
 * Limits how many names a tenant's namespace may use up (rule 8.3). A row stays for each organization, project and key that
 * was declared once, as the same name brings back what belongs to it; so a tenant who declares ever new ones would fill
 * Postgres for everybody.
 */
import { sql, type CommonQueryMethods, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import { limitsSchema, type Limits, type NoteReason, type OrganizationEntry } from "../config/schema.ts";

/** Most names of a tenant's namespace that it does not declare any more; then it may use those again, and no new ones. */
export const MOST_UNDECLARED = 10_000;
/** From so many of these names on, its organizations carry a note. */
export const WARNED_UNDECLARED = (MOST_UNDECLARED / 10) * 9;

export interface WithinNames {
  /** Without the new projects and keys of namespaces that have used up their names. */
  readonly entries: readonly OrganizationEntry[];
  /** New organizations of such namespaces. */
  readonly refused: readonly string[];
}

/** Returns what of the declarations may be copied. What was copied once always may. */
export async function withinNames(
  transaction: DatabaseTransactionConnection,
  entries: readonly OrganizationEntry[],
): Promise<WithinNames> {
  const tenants = entries.filter(({ isTenants }) => isTenants === true);
  if (tenants.length === 0) return { entries, refused: [] };
  const known = await readNames(
    transaction,
    tenants.map(({ id }) => id),
  );
  const growing = tenants.filter((entry) => namesOf(entry).some((name) => !known.has(name)));
  const full = await fullNamespaces(transaction, growing);
  const limited = growing.filter(({ source }) => full.has(source.namespace));
  const refused = new Set(
    limited.filter(({ id }) => !known.has(nameOf("organization", id))).map(({ id }) => id),
  );
  const places = await readPlaces(
    transaction,
    limited.map(({ id }) => id),
  );
  return {
    entries: entries
      .filter(({ id }) => !refused.has(id))
      .map((entry) => (limited.includes(entry) ? withKnown(entry, known, places) : entry)),
    refused: [...refused],
  };
}

const nameOf = (...parts: readonly string[]): string => JSON.stringify(parts);

const namesOf = ({ id, projects, apiKeys, adminKeys }: OrganizationEntry): string[] => [
  nameOf("organization", id),
  ...projects.map((name) => nameOf("project", id, name)),
  ...apiKeys.map(({ name }) => nameOf("inference", id, name)),
  ...adminKeys.map(({ name }) => nameOf("admin", id, name)),
];

/** Where a live key is. */
interface Place {
  readonly project: string;
  /** The project's limits as they were declared; null: none were. */
  readonly limits: Limits | null;
}

/**
 * Returns the entry without its new names. A live key that moves to a new project stays in its old one, which then stays as it
 * is, even if it is not declared any more.
 */
function withKnown(
  entry: OrganizationEntry,
  known: ReadonlySet<string>,
  places: ReadonlyMap<string, Place>,
): OrganizationEntry {
  const declared = new Set(entry.projects.filter((name) => known.has(nameOf("project", entry.id, name))));
  const projects = new Set(declared);
  const projectLimits = { ...entry.projectLimits };
  const apiKeys = entry.apiKeys.flatMap((key) => {
    const name = nameOf("inference", entry.id, key.name);
    if (!known.has(name)) return [];
    if (declared.has(key.project)) return [key];
    const place = places.get(name);
    if (place === undefined) return [];
    if (!projects.has(place.project)) {
      projects.add(place.project);
      if (place.limits !== null) projectLimits[place.project] = place.limits;
    }
    return [{ ...key, project: place.project }];
  });
  return {
    ...entry,
    projects: [...projects],
    projectLimits,
    apiKeys,
    adminKeys: entry.adminKeys.filter(({ name }) => known.has(nameOf("admin", entry.id, name))),
  };
}

/** Reads the places of the live declared keys of these organizations, by their names. */
async function readPlaces(
  transaction: DatabaseTransactionConnection,
  ids: readonly string[],
): Promise<ReadonlyMap<string, Place>> {
  if (ids.length === 0) return new Map();
  const rowSchema = z.object({
    id: z.string(),
    name: z.string(),
    project: z.string(),
    limits: limitsSchema.nullable(),
  });
  const rows = await transaction.any(sql.type(rowSchema)`
    select key.organization_id as id, key.name, project.name as project,
      case when project.limits_declared then project.limits end as limits
    from api_keys key join projects project on project.id = key.project_id
    where key.source = 'declared' and key.kind = 'inference' and key.status = 'active'
      and project.archived_at is null and key.organization_id = any(${sql.array([...ids], "text")})
  `);
  return new Map(rows.map(({ id, name, ...place }) => [nameOf("inference", id, name), place]));
}

/** Returns namespaces that have used up their names. By index, whatever others have: a tenant may declare again and again. */
async function fullNamespaces(
  transaction: DatabaseTransactionConnection,
  entries: readonly OrganizationEntry[],
): Promise<ReadonlySet<string>> {
  const used = await usedNames(transaction, entries, MOST_UNDECLARED);
  return new Set(used.keys());
}

/** Returns how many names each namespace of the entries has used up, of those that used up at least `atLeast`. */
async function usedNames(
  database: CommonQueryMethods,
  entries: readonly OrganizationEntry[],
  atLeast: number,
): Promise<ReadonlyMap<string, number>> {
  const namespaces = new Set(entries.map(({ source }) => source.namespace));
  if (namespaces.size === 0) return new Map();
  const rowSchema = z.object({ namespace: z.string(), names: z.bigint().transform(Number) });
  const rows = await database.any(sql.type(rowSchema)`
    select namespace, names from (
      select tenant.namespace, coalesce(cardinality(gone), 0)
        + (select count(*) from projects where organization_id = any(gone))
        + (select count(*) from projects where organization_id = any(declared) and archived_at is not null)
        + (select count(*) from api_keys where organization_id = any(gone) and source = 'declared')
        + (select count(*) from api_keys
          where organization_id = any(declared) and source = 'declared' and status = 'inactive') as names
      from unnest(${sql.array([...namespaces], "text")}) as tenant (namespace)
      cross join lateral (
        select array_agg(id) filter (where deleted_at is not null) as gone,
          array_agg(id) filter (where deleted_at is null) as declared
        from organizations where organizations.namespace = tenant.namespace
      ) own
    ) used
    where names >= ${atLeast}
  `);
  return new Map(rows.map(({ namespace, names }) => [namespace, names]));
}

/** Returns all names that were ever declared for these organizations. */
async function readNames(
  transaction: DatabaseTransactionConnection,
  ids: readonly string[],
): Promise<ReadonlySet<string>> {
  const wanted = sql.fragment`any(${sql.array([...ids], "text")})`;
  const rows = await transaction.any(
    sql.type(z.object({ kind: z.string(), id: z.string(), name: z.string().nullable() }))`
      select 'organization' as kind, id, null as name from organizations where id = ${wanted}
      union all
      select 'project', organization_id, name from projects where organization_id = ${wanted}
      union all
      select kind, organization_id, name from api_keys where source = 'declared' and organization_id = ${wanted}
    `,
  );
  return new Set(rows.map(({ kind, id, name }) => nameOf(kind, id, ...(name === null ? [] : [name]))));
}

/** A note on used-up names: a declared project that is not there, or a namespace that has few names left. */
export interface NameNote {
  readonly organizationId: string;
  /** Path in the Organization. */
  readonly path: string;
  readonly reason: Extract<NoteReason, `Names${string}`>;
}

/** Compares what tenants declare with what is stored, and their namespaces with what they may use up. */
export async function nameNotes(
  pool: CommonQueryMethods,
  organizations: readonly OrganizationEntry[],
): Promise<readonly NameNote[]> {
  const tenants = organizations.filter(({ isTenants }) => isTenants === true);
  return [...(await warnings(pool, tenants)), ...(await missingProjects(pool, tenants))];
}

async function warnings(
  pool: CommonQueryMethods,
  tenants: readonly OrganizationEntry[],
): Promise<readonly NameNote[]> {
  const used = await usedNames(pool, tenants, WARNED_UNDECLARED);
  return tenants.flatMap(({ id, source }) => {
    const names = used.get(source.namespace);
    if (names === undefined) return [];
    const reason = names < MOST_UNDECLARED ? "NamesNearlyUsedUp" : "NamesUsedUp";
    return [{ organizationId: id, path: "metadata.namespace", reason }];
  });
}

async function missingProjects(
  pool: CommonQueryMethods,
  tenants: readonly OrganizationEntry[],
): Promise<readonly NameNote[]> {
  const declared = tenants.flatMap(({ id, projects }) => projects.map((name) => [id, name]));
  if (declared.length === 0) return [];
  const rows = await pool.any(sql.type(z.object({ organizationId: z.string(), name: z.string() }))`
    select declared.organization_id as "organizationId", declared.name
    from ${sql.unnest(declared, ["text", "text"])} as declared (organization_id, name)
    left join projects project
      on project.organization_id = declared.organization_id and project.name = declared.name
    where project.id is null or project.archived_at is not null
    order by declared.organization_id, declared.name
  `);
  return rows.map(({ organizationId, name }) => ({
    organizationId,
    path: `spec.projects[name=${JSON.stringify(name)}]`,
    reason: "NamesUsedUp",
  }));
}
