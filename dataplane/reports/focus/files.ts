/** Writes the two files of the FOCUS export page by page: neither is ever in memory as a whole. */
import { stringify } from "csv-stringify/sync";
import { ByteWriter, ParquetWriter } from "hyparquet-writer";
import { creditsText } from "../../billing/credits.ts";
import { tagsOf } from "../../lib/tags.ts";
import { isoSeconds } from "../../lib/unix-time.ts";
import { rupiahText } from "../values.ts";
import { chargesOf, columns, type FocusMonth, type FocusColumn } from "./columns.ts";
import type { DayGroup } from "./pages.ts";

type Pages = AsyncIterable<readonly DayGroup[]>;
type FocusCharge = ReturnType<typeof chargesOf>[number];

/** Makes CSV in which no text is a formula for a spreadsheet: users choose the names of keys and projects. */
const csv = (rows: readonly (readonly (string | null)[])[]): string =>
  stringify([...rows], { escape_formulas: true });

/** Writes CSV with a header line; null is an empty field. */
export async function* focusCsv(month: FocusMonth, pages: Pages): AsyncGenerator<string> {
  yield csv([columns.map(({ name }) => name)]);
  for await (const page of pages) {
    yield csv(chargesOf(month, page).map((charge) => columns.map((column) => cell(column, charge))));
  }
}

function cell(column: FocusColumn, charge: FocusCharge): string | null {
  switch (column.kind) {
    case "text":
      return column.of(charge);
    case "time":
      return isoSeconds(column.of(charge));
    case "rupiah":
      return rupiahText(column.of(charge));
    case "credits":
      return creditsText(column.of(charge));
    case "count":
      return column.of(charge).toString();
    case "tags":
      return JSON.stringify(tagsOf(column.of(charge)));
  }
}

/** Writes Parquet with one row group for each page. */
export async function* focusParquet(month: FocusMonth, pages: Pages): AsyncGenerator<Uint8Array> {
  const bytes = new ByteWriter();
  /** Takes the written bytes out of the buffer; offsets still count from the start of the file. */
  const taken = (): Uint8Array => {
    const chunk = bytes.getBytes().slice();
    bytes.index = 0;
    return chunk;
  };
  const schema = [{ name: "focus", num_children: columns.length }, ...columns.map(element)];
  const file = new ParquetWriter({ writer: bytes, schema, createdBy: "gapura" });
  for await (const page of pages) {
    const charges = chargesOf(month, page);
    if (charges.length === 0) continue;
    await file.write({
      columnData: columns.map((column) => ({
        name: column.name,
        data: charges.map((charge) => value(column, charge)),
      })),
      rowGroupSize: charges.length,
    });
    yield taken();
  }
  await file.finish();
  yield taken();
}

type Element = ConstructorParameters<typeof ParquetWriter>[0]["schema"][number];

const text = { type: "BYTE_ARRAY", converted_type: "UTF8" } as const;
const number = (scale: number) =>
  ({ type: "INT64", converted_type: "DECIMAL", precision: 18, scale }) as const;
/** Parquet types of the kinds. A credit is 100 rupiah, so a micro-credit is 0.0001 rupiah. */
const types = {
  text,
  tags: { type: "BYTE_ARRAY", converted_type: "JSON" },
  time: { type: "INT64", converted_type: "TIMESTAMP_MILLIS" },
  rupiah: number(4),
  credits: number(6),
  count: number(0),
} as const satisfies Record<FocusColumn["kind"], Partial<Element>>;

const element = ({ name, kind }: FocusColumn): Element => ({
  name,
  repetition_type: kind === "text" ? "OPTIONAL" : "REQUIRED",
  ...types[kind],
});

/** Returns a value for Parquet. Integers stay bigints, which the column's type scales: no float rounds them. */
function value(column: FocusColumn, charge: FocusCharge): unknown {
  switch (column.kind) {
    case "time":
      return new Date(column.of(charge));
    case "tags":
      return tagsOf(column.of(charge));
    default:
      return column.of(charge);
  }
}
