/** Finds batches. Foreign, unknown and malformed ids get the same answer (rule 4.16). */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { ApiError } from "../lib/api-error.ts";
import { cutColumns, pageFrom, type ListPage, type PageAsked } from "../store/list-page.ts";
import { timestamp } from "../store/timestamp.ts";
import { attachedBytes, batchColumns, batchSchema, SHOWN_MS, type Batch, type BatchForm } from "./batch.ts";
import type { BatchContext } from "./context.ts";

const idPattern = { messages: /^msgbatch_[A-Za-z0-9]{1,64}$/, openai: /^batch_[A-Za-z0-9]{1,64}$/ };
/** What looking for batches needs. */
interface Finding extends Pick<BatchContext, "clock"> {
  readonly pool: CommonQueryMethods;
}

/** Also where a sweep is late: from `SHOWN_MS` on a batch is gone, though its row still is there. */
const visible = ({ clock }: Finding) => sql.fragment`
  batch.state <> 'creating' and batch.deleted_at is null
  and (batch.ended_at is null or batch.ended_at > ${timestamp(clock.now() - SHOWN_MS)})
`;

/** @throws ApiError 404 */
export async function findBatch(
  context: Finding,
  organizationId: string,
  form: BatchForm,
  id: string,
): Promise<Batch> {
  const batch = idPattern[form].test(id)
    ? await context.pool.maybeOne(sql.type(batchSchema)`
        select ${batchColumns} from batches batch
        where id = ${id} and organization_id = ${organizationId} and form = ${form} and ${visible(context)}
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
export async function listBatches(context: Finding, query: BatchListQuery): Promise<ListPage<Batch> | null> {
  const { pool } = context;
  const { organizationId, form, cursor } = query;
  const scope = sql.fragment`organization_id = ${organizationId} and form = ${form}`;
  let position: bigint | null = null;
  if (cursor !== null) {
    if (!idPattern[form].test(cursor.id)) return null;
    // A deleted batch is a valid cursor: a client that deletes what it lists asks for the page after it.
    position = await pool.maybeOneFirst(sql.type(z.object({ position: z.bigint() }))`
      select position from batches where id = ${cursor.id} and ${scope} and state <> 'creating'
    `);
    if (position === null) return null;
  }
  const page = pageFrom(query, position);
  const walked = sql.fragment`select * from batches batch where ${scope} and ${visible(context)} ${page.beyond} ${page.walk}`;
  const rows = await pool.any(sql.type(batchSchema.extend(cutColumns))`
    select ${batchColumns}, batch.found, batch."largeBytes" from ${page.within(walked, bytes, sql.fragment`batch`)}
  `);
  return page.show<Batch>(rows);
}
