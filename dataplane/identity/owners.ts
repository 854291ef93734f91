/** Which namespace owns which organization id (rule 8.3), as far as the operator cannot see it in the snapshot. */
import { sql, type CommonQueryMethods, type DatabasePool } from "slonik";
import { z } from "zod";
import type { ConfigStatus } from "../config/schema.ts";

export type Owned = NonNullable<ConfigStatus["owners"]>;

/**
 * Number of undeclared ids that are reported to the operator, those that were deleted first: there may be as many as anybody
 * ever made up. It learns of another one when another namespace declares it, as copying a snapshot refuses that.
 */
const MAX_UNDECLARED = 1_000;

/** Ids that the operator has to know of. */
export interface AskedIds {
  /** Declared by another namespace than the one that owns them. */
  readonly foreign: readonly string[];
  /** Reported before, and remembered in the snapshot. */
  readonly remembered: readonly string[];
}

/** Reads ids that their owner does not declare, each with its owner. */
export async function readOwned(pool: CommonQueryMethods, { foreign, remembered }: AskedIds): Promise<Owned> {
  const rows = await pool.any(sql.type(z.object({ id: z.string(), namespace: z.string() }))`
    select id, namespace from organizations
    where namespace is not null and id = any(${sql.array([...foreign], "text")})
    union
    select id, namespace from organizations
    where namespace is not null and deleted_at is not null and id = any(${sql.array([...remembered], "text")})
    union
    (
      select id, namespace from organizations
      where namespace is not null and deleted_at is not null
      order by deleted_at, id limit ${MAX_UNDECLARED}
    )
    order by id
  `);
  return [...rows];
}

const usage = "usage: release-organization ID";

/** @throws Error that says what is wrong with the arguments. */
export function parseRelease(args: readonly string[]): string {
  const [id, ...more] = args;
  if (id === undefined || id.startsWith("-") || more.length > 0) throw new Error(usage);
  return id;
}

/**
 * Releases the id: the next namespace that declares it has it, with everything that is kept under it. Returns what to print.
 * @throws Error when there is no such id, or its owner still declares it.
 */
export async function releaseOrganizationId(pool: DatabasePool, id: string): Promise<string> {
  return await pool.transaction(async (transaction) => {
    const found = await transaction.maybeOne(
      sql.type(z.object({ namespace: z.string().nullable(), declared: z.boolean() }))`
        select namespace, deleted_at is null as declared from organizations where id = ${id} for update
      `,
    );
    if (found === null) throw new Error(`there is no organization ${id}`);
    const { namespace, declared } = found;
    if (declared)
      throw new Error(
        `${id} is still declared in namespace ${namespace ?? "(unknown)"}: delete its Organization there first`,
      );
    if (namespace === null) return `${id} belongs to no namespace; nothing changed`;
    await transaction.query(sql.unsafe`update organizations set namespace = null where id = ${id}`);
    return `${id} belonged to namespace ${namespace}; the next namespace that declares it has it, with its balance, keys, files and batches`;
  });
}
