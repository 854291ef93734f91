/** The lines of a batch's results, read from their rows a few MiB at a time. */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { unhindered, type PieceReader } from "../lib/piece-reader.ts";
import { ANSWER_SLICE_MS, Slices } from "../lib/slices.ts";
import { itemEnds, type Batch } from "./batch.ts";
import { neverRunLine } from "./lines.ts";

const BYTES_AT_ONCE = 2 * 1024 * 1024;
/** Slice of a line that is not read at once: it may be as long as an answer, and a slow client would keep all of it in memory. */
const SLICE_BYTES = 1024 * 1024;
const ROWS_AT_ONCE = 1_000;

const lineSchema = z.object({
  number: z.number(),
  customId: z.string(),
  requestId: z.string(),
  state: z.enum(itemEnds),
  /** null: it never ran, or is longer than may be read at once. */
  line: z.instanceof(Buffer).nullable(),
  lineBytes: z.number(),
});

type WithLines = Pick<Batch, "id" | "form" | "total" | "succeeded">;

/**
 * Yields the lines of a batch whose items are over, in input order. `which`: all; the succeeded ones; the rest.
 * @throws Error at the end when lines were deleted meanwhile, as when the batch is deleted: what was read is incomplete.
 */
export async function* resultLines(
  db: CommonQueryMethods,
  { id, form, total, succeeded }: WithLines,
  which: "all" | "output" | "errors",
  reader: PieceReader = unhindered,
): AsyncGenerator<Buffer> {
  const wanted = {
    all: sql.fragment`state in ('succeeded', 'errored', 'canceled', 'expired')`,
    output: sql.fragment`state = 'succeeded'`,
    errors: sql.fragment`state in ('errored', 'canceled', 'expired')`,
  }[which];
  let missing = { all: total, output: succeeded, errors: total - succeeded }[which];
  for (let after = -1; ;) {
    const most = reader.most(BYTES_AT_ONCE);
    // Takes the first row always, and more up to `most`: a row may be as large as an answer, and the line of an item
    // that never ran is little more than its custom_id, which may have 64 KiB.
    const rows = await reader.inTurn(() =>
      db.any(sql.type(lineSchema)`
      select number, custom_id as "customId", request_id as "requestId", state, "lineBytes",
        case when "lineBytes" <= ${most} then line end as line
      from (
        select *, coalesce(octet_length(line), 0) as "lineBytes",
          sum(coalesce(octet_length(line), 0) + octet_length(custom_id)) over (order by number) as bytes,
          row_number() over (order by number) as place
        from (
          select * from batch_items
          where batch_id = ${id} and number > ${after} and ${wanted} order by number limit ${ROWS_AT_ONCE}
        ) as next
      ) as sized
      where bytes <= ${most} or place = 1
      order by number
    `),
    );
    const last = rows.at(-1);
    if (last === undefined) break;
    missing -= rows.length;
    // A long line is the only row.
    if (last.lineBytes > most) yield* slicesOf(db, id, last, reader);
    else
      yield Buffer.concat(
        await new Slices(ANSWER_SLICE_MS).map(rows, (row) => row.line ?? neverRunLine(form, row)),
      );
    after = last.number;
  }
  if (missing !== 0) throw takenAway(id);
}

/** Yields one long line in slices. @throws Error when the line is deleted meanwhile. */
async function* slicesOf(
  db: CommonQueryMethods,
  id: string,
  { number, lineBytes }: z.infer<typeof lineSchema>,
  reader: PieceReader,
): AsyncGenerator<Buffer> {
  for (let from = 0; from < lineBytes;) {
    const at = from;
    const most = reader.most(SLICE_BYTES);
    const slice = await reader.inTurn(() =>
      db.maybeOneFirst(sql.type(z.object({ slice: z.instanceof(Buffer).nullable() }))`
        select substring(line from ${at + 1} for ${most}) as slice from batch_items
        where batch_id = ${id} and number = ${number}
      `),
    );
    if (slice === null) throw takenAway(id);
    yield slice;
    from += most;
  }
}

const takenAway = (id: string) => new Error(`results of ${id} were taken away while they were read`);
