/** An organization and its projects, as the admin API shows them. */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { limitsSchema } from "../config/schema.ts";
import { readRows } from "../store/read-rows.ts";

/** A resource says far fewer; there may be more that are archived. */
const MOST_PROJECTS = 10_000;

const projectSchema = z.object({
  id: z.string(),
  name: z.string(),
  createdAt: z.number(),
  archivedAt: z.number().nullable(),
  limits: limitsSchema.nullable(),
  /** The Organization resource says them: only there they can be changed. */
  limitsDeclared: z.boolean(),
});
/** `archivedAt`: since when the Organization resource does not list it any more. Times are Unix milliseconds. */
export type Project = z.infer<typeof projectSchema>;

const columns = sql.fragment`id, name, created_at as "createdAt", archived_at as "archivedAt", limits,
  limits_declared as "limitsDeclared"
`;

export async function readOrganizationName(pool: CommonQueryMethods, id: string): Promise<string> {
  return await pool.oneFirst(sql.type(z.object({ name: z.string() }))`
    select display_name as name from organizations where id = ${id}
  `);
}

/** Newest first; projects that were declared together by name. `archivedToo`: those that are declared no more as well. */
export async function readProjects(
  pool: CommonQueryMethods,
  organizationId: string,
  archivedToo: boolean,
): Promise<readonly Project[]> {
  return await readRows(
    pool,
    projectSchema,
    sql.fragment`
      select ${columns} from projects
      where organization_id = ${organizationId} and (archived_at is null or ${archivedToo})
      order by created_at desc, name limit ${MOST_PROJECTS}
    `,
  );
}

/** What a filter by project means: an id, known or not, or the id of the project that `default` stands for (rule 5.1). */
export async function projectIdOf(
  pool: CommonQueryMethods,
  organizationId: string,
  idOrDefault: string,
): Promise<string> {
  if (idOrDefault !== "default") return idOrDefault;
  return (await findProject(pool, organizationId, idOrDefault))?.id ?? idOrDefault;
}

/** A project by its id, or the one that `default` stands for; null when the organization has no such one. */
export async function findProject(
  pool: CommonQueryMethods,
  organizationId: string,
  idOrDefault: string,
): Promise<Project | null> {
  const named = idOrDefault === "default" ? sql.fragment`is_default` : sql.fragment`id = ${idOrDefault}`;
  return await pool.maybeOne(sql.type(projectSchema)`
    select ${columns} from projects where organization_id = ${organizationId} and ${named}
  `);
}
