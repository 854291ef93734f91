import { sql, type DatabaseTransactionConnection } from "slonik";

/**
 * What changes an organization's keys, people or projects takes turns, until the transaction ends. Copying a snapshot
 * locks it first as well, then its keys, then its account.
 * @param namespace where it must own the organization. @returns whether it is there.
 */
export async function lockOrganization(
  transaction: DatabaseTransactionConnection,
  id: string,
  namespace?: string,
): Promise<boolean> {
  const owned = namespace === undefined ? sql.fragment`` : sql.fragment`and namespace = ${namespace}`;
  const { rowCount } = await transaction.query(sql.unsafe`
    select 1 from organizations where id = ${id} ${owned} for no key update
  `);
  return rowCount > 0;
}
