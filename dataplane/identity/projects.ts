/** An organization and its projects, as the admin API shows them. */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { limitsSchema } from "../config/schema.ts";
import { cutColumns, pageFrom, type ListPage, type PageAsked } from "../store/list-page.ts";
import { readRows } from "../store/read-rows.ts";

/** Most projects that are listed; a resource declares far fewer, but more may be archived. */
const MOST_PROJECTS = 10_000;

const projectSchema = z.object({
  id: z.string(),
  name: z.string(),
  createdAt: z.number(),
  archivedAt: z.number().nullable(),
  limits: limitsSchema.nullable(),
  /** Whether the Organization resource declares the limits: then only there they can be changed. */
  limitsDeclared: z.boolean(),
});
const listedSchema = projectSchema.extend(cutColumns);
/** `archivedAt`: since when the Organization resource does not list it any more. Times are Unix milliseconds. */
export type Project = z.infer<typeof projectSchema>;

const columns = sql.fragment`id, name, created_at as "createdAt", archived_at as "archivedAt", limits,
  limits_declared as "limitsDeclared"
`;

/** Reads the name that an organization is shown under. */
export async function readOrganizationName(pool: CommonQueryMethods, id: string): Promise<string> {
  return await pool.oneFirst(sql.type(z.object({ name: z.string() }))`
    select display_name as name from organizations where id = ${id}
  `);
}

/**
 * Reads the ids of projects, newest first, those that were declared together by name. `archivedToo`: also those that are not
 * declared any more.
 */
export async function readProjectIds(
  pool: CommonQueryMethods,
  organizationId: string,
  archivedToo: boolean,
): Promise<readonly { readonly id: string }[]> {
  return await pool.any(sql.type(z.object({ id: z.string() }))`
    select id from projects
    where organization_id = ${organizationId} and (archived_at is null or ${archivedToo})
    order by created_at desc, name limit ${MOST_PROJECTS}
  `);
}

/** Reads a page in the order of `ids`. What large limits leave no room for is missing at the end further from the cursor. */
export async function readProjects(
  pool: CommonQueryMethods,
  ids: readonly string[],
  asked: Pick<PageAsked, "cursor" | "largeBytes">,
): Promise<ListPage<Project>> {
  const page = pageFrom({ ...asked, limit: ids.length, order: "asc" }, null, ["place"]);
  const found = sql.fragment`
    select * from projects join unnest(${sql.array([...ids], "text")}) with ordinality as asked (id, place) using (id) ${page.walk}
  `;
  const rows = await readRows(
    pool,
    listedSchema,
    sql.fragment`select ${columns}, found, "largeBytes" from ${page.within(found, sql.fragment`limits_bytes`)}`,
  );
  return page.show<Project>(rows);
}

/** Resolves a filter by project: an id, known or not, stays; `default` stands for a project's id (rule 5.1). */
export async function projectIdOf(
  pool: CommonQueryMethods,
  organizationId: string,
  idOrDefault: string,
): Promise<string> {
  if (idOrDefault !== "default") return idOrDefault;
  return (await findProject(pool, organizationId, idOrDefault))?.id ?? idOrDefault;
}

/** Finds a project by its id, or the one that `default` stands for; null when the organization has no such one. */
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
