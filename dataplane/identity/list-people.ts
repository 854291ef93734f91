/** People with tokens, as the admin API shows them to their organization: who stands behind `usr_…`. */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { limitsSchema } from "../config/schema.ts";
import { readRows } from "../store/read-rows.ts";
import { cutColumns, pageFrom, type ListPage, type PageAsked } from "../store/list-page.ts";

const shownSchema = z.object({
  id: z.string(),
  kind: z.enum(["inference", "admin", "viewer"]),
  /** Empty: no token had one. */
  name: z.string(),
  projectId: z.string().nullable(),
  createdAt: z.number(),
  lastUsedAt: z.number().nullable(),
  limits: limitsSchema.nullable(),
});
const listedSchema = shownSchema.extend(cutColumns);
/** A person as their newest token says. Times are Unix milliseconds. */
export type KnownPerson = z.infer<typeof shownSchema>;

const columns = sql.fragment`
  id, kind, name, project_id as "projectId", created_at as "createdAt", last_used_at as "lastUsedAt", limits
`;
const peopleOf = (organizationId: string) =>
  sql.fragment`organization_id = ${organizationId} and source = 'identity'`;

/** Returns a person of the organization; null: it has none of that id. */
export async function findPerson(
  pool: CommonQueryMethods,
  organizationId: string,
  id: string,
): Promise<KnownPerson | null> {
  return await pool.maybeOne(sql.type(shownSchema)`
    select ${columns} from api_keys where id = ${id} and ${peopleOf(organizationId)}
  `);
}

/** Lists one page, in the order asked for; null when the cursor names nobody of the organization. */
export async function listPeople(
  pool: CommonQueryMethods,
  organizationId: string,
  asked: PageAsked,
): Promise<ListPage<KnownPerson> | null> {
  const { cursor } = asked;
  const position =
    cursor === null
      ? null
      : await pool.maybeOneFirst(sql.type(z.object({ position: z.bigint() }))`
          select position from api_keys where id = ${cursor.id} and ${peopleOf(organizationId)}
        `);
  if (cursor !== null && position === null) return null;
  const page = pageFrom(asked, position);
  const found = sql.fragment`select * from api_keys where ${peopleOf(organizationId)} ${page.beyond} ${page.walk}`;
  const rows = await readRows(
    pool,
    listedSchema,
    sql.fragment`select ${columns}, found, "largeBytes" from ${page.within(found, sql.fragment`limits_bytes`)}`,
  );
  return page.show<KnownPerson>(rows);
}
