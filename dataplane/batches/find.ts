/** Finds batches. Foreign, unknown and malformed ids get the same answer (rule 4.16). */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { ApiError } from "../lib/api-error.ts";
import { pageFrom, type PageAsked } from "../store/list-page.ts";
import { attachedBytes, batchColumns, batchSchema, type Batch, type BatchForm } from "./batch.ts";

const idPattern = { messages: /^msgbatch_[A-Za-z0-9]{1,64}$/, openai: /^batch_[A-Za-z0-9]{1,64}$/ };
const visible = sql.fragment`batch.state <> 'creating' and batch.deleted_at is null`;

/** @throws ApiError 404 */
export async function findBatch(
  db: CommonQueryMethods,
  organizationId: string,
  form: BatchForm,
  id: string,
): Promise<Batch> {
  const batch = idPattern[form].test(id)
    ? await db.maybeOne(sql.type(batchSchema)`
        select ${batchColumns} from batches batch
        where id = ${id} and organization_id = ${organizationId} and form = ${form} and ${visible}
      `)
    : null;
  if (batch === null) throw batchNotFound(id);
  return batch;
}

export const batchNotFound = (id: string): ApiError =>
  new ApiError("not_found", `No batch with the id ${JSON.stringify(id.slice(0, 100))} was found.`);

/** Bytes of a batch's headers, metadata and input errors: each may be some 10 or 100 KiB. */
const bytes = sql.fragment`octet_length(headers) + ${attachedBytes}`;

export interface BatchListQuery extends PageAsked {
  readonly organizationId: string;
  readonly form: BatchForm;
}

/**
 * Returns one page in the requested order, which ends early where its batches are large. null: the cursor names no batch
 * of the organization in this form.
 */
export async function listBatches(
  db: CommonQueryMethods,
  query: BatchListQuery,
): Promise<{ readonly batches: readonly Batch[]; readonly hasMore: boolean } | null> {
  const { organizationId, form, cursor } = query;
  const scope = sql.fragment`organization_id = ${organizationId} and form = ${form}`;
  let position: bigint | null = null;
  if (cursor !== null) {
    if (!idPattern[form].test(cursor.id)) return null;
    // A deleted batch is a valid cursor: a client that deletes what it lists asks for the page after it.
    position = await db.maybeOneFirst(sql.type(z.object({ position: z.bigint() }))`
      select position from batches where id = ${cursor.id} and ${scope} and state <> 'creating'
    `);
    if (position === null) return null;
  }
  const page = pageFrom(query, position);
  const walked = sql.fragment`select * from batches batch where ${scope} and ${visible} ${page.beyond} ${page.walk}`;
  const rows = await db.any(sql.type(batchSchema.extend({ found: z.bigint().transform(Number) }))`
    select ${batchColumns}, batch.found from ${page.within(walked, bytes, sql.fragment`batch`)}
  `);
  const { items, hasMore } = page.show(rows, rows[0]?.found);
  return { batches: items, hasMore };
}
