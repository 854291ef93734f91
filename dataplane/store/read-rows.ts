import { sql, type CommonQueryMethods, type FragmentSqlToken } from "slonik";
import { z } from "zod";
import { ANSWER_SLICE_MS, Slices } from "../lib/slices.ts";

/**
 * Reads the rows of a statement that may have very many, and checks them while others have their turns: the pool would check
 * them all at once. @throws ZodError when a row is not what the schema says: a bug of ours.
 */
export async function readRows<Schema extends z.ZodType>(
  from: Pick<CommonQueryMethods, "any">,
  schema: Schema,
  statement: FragmentSqlToken,
): Promise<z.output<Schema>[]> {
  const rows = await from.any(sql.type(z.unknown())`${statement}`);
  return await new Slices(ANSWER_SLICE_MS).map(rows, (row) => schema.parse(row));
}
