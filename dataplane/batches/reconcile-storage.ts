/**
 * Counts what organizations store and compares it with the sums that limits are checked against (rule 7.8). Data planes
 * may run meanwhile: rows and sums change in one transaction, and everything is read as of one moment.
 */
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { firstLines } from "../billing/reconcile/report-lines.ts";

/** @returns one line for each broken invariant; none when everything agrees. */
export async function reconcileStorage(pool: DatabasePool): Promise<readonly string[]> {
  return await pool.transaction(async (transaction) => {
    await transaction.query(sql.unsafe`set transaction isolation level repeatable read, read only`);
    const count = z.bigint().transform(Number);
    const sums = z.object({ id: z.string(), bytes: count, files: count, kept: count, keptFiles: count });
    const wrongSums = await transaction.any(sql.type(sums)`
      with kept as (
        select organization_id, sum(bytes)::int8 as bytes, sum(files)::int8 as files from (
          select organization_id, stored_bytes as bytes, 1 as files from files where state <> 'removed'
          union all
          select organization_id, stored_bytes, 0 from batches
        ) as rows group by organization_id
      )
      select organization_id as id, coalesce(storage.bytes, 0) as bytes, coalesce(storage.files, 0) as files,
        coalesce(kept.bytes, 0) as kept, coalesce(kept.files, 0) as "keptFiles"
      from storage full join kept using (organization_id)
      where (coalesce(storage.bytes, 0), coalesce(storage.files, 0))
        is distinct from (coalesce(kept.bytes, 0), coalesce(kept.files, 0))
      order by 1
    `);
    const batchCounts = z.object({ id: z.string(), counted: count, there: count });
    const wrongBatches = await transaction.any(sql.type(batchCounts)`
      with there as (select organization_id, count(*) as batches from batches group by organization_id)
      select organization_id as id, coalesce(storage.batches, 0) as counted, coalesce(there.batches, 0) as there
      from storage full join there using (organization_id)
      where coalesce(storage.batches, 0) <> coalesce(there.batches, 0)
      order by 1
    `);
    const wrongFiles = await transaction.any(sql.type(z.object({ id: z.string() }))`
      select id from files where state in ('ready', 'hidden') and stored_bytes <> size_bytes order by 1
    `);
    return [
      ...firstLines(
        wrongSums,
        ({ id, bytes, files, kept, keptFiles }) =>
          `${id}: keeps ${kept} bytes in ${keptFiles} files, its storage says ${bytes} in ${files}`,
      ),
      ...firstLines(
        wrongBatches,
        ({ id, counted, there }) => `${id}: has ${there} batches, its storage says ${counted}`,
      ),
      ...firstLines(wrongFiles, ({ id }) => `${id}: the room it takes is not its size`),
    ];
  });
}
