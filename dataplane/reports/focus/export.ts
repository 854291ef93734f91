/** `GET /v1/organization/costs/export`. Source: rule 14.5. */
import type { CommonQueryMethods } from "slonik";
import { atOnce, type ReadInTurn } from "../../lib/piece-reader.ts";
import { requireKnownNames } from "../../lib/query.ts";
import { invalidParameter } from "../../lib/query.ts";
import type { ReportQuery } from "../parameters.ts";
import { focusCsv, focusParquet } from "./files.ts";
import { monthPages } from "./pages.ts";

const files = {
  "focus-csv": { type: "text/csv", ending: "csv", write: focusCsv },
  "focus-parquet": { type: "application/vnd.apache.parquet", ending: "parquet", write: focusParquet },
} as const;
export const exportFormats = Object.keys(files) as (keyof typeof files)[];
export const exportTypes = Object.values(files).map(({ type }) => type);

export interface Export {
  readonly type: string;
  readonly name: string;
  readonly contents: AsyncIterable<string | Uint8Array>;
}

/** Makes the export of a month. @param inTurn runs each read in its turn. @throws ApiError 400 naming the parameter. */
export function exportCosts(
  pool: CommonQueryMethods,
  organizationId: string,
  query: ReportQuery,
  inTurn: ReadInTurn = atOnce,
): Export {
  requireKnownNames(query, ["format", "month"]);
  const format = exportFormats.find((known) => known === query["format"]);
  if (format === undefined) throw invalidParameter("format", `format must be ${exportFormats.join(" or ")}.`);
  const [text, year, month] = /^(2\d{3})-(0[1-9]|1[0-2])$/.exec(String(query["month"])) ?? [];
  if (text === undefined) throw invalidParameter("month", "month must be a month of UTC such as 2026-11.");
  // `Date.UTC` takes month 12 for the next year's January.
  const bounds = [Number(month) - 1, Number(month)].map((index) => Date.UTC(Number(year), index));
  const [from = 0, to = 0] = bounds;
  const { type, ending, write } = files[format];
  const pages = monthPages(pool, organizationId, { from, to }, { inTurn });
  return { type, name: `focus-${text}.${ending}`, contents: write({ organizationId, from, to }, pages) };
}
