/** What models cost, as a table: every price that holds now, in tiers too, and every one that is announced. */
import type { Model } from "../api/schema.ts";
import { minute, momentOf } from "../lib/days.ts";
import { priceRows, type PriceRow, type Rates } from "../lib/prices.ts";
import { formatCount, formatCredits, useTexts } from "../texts/texts.ts";
import type { Texts } from "../texts/en.ts";
import { Badge } from "./basics.tsx";
import { Table, type Column } from "./table.tsx";

interface ShownRow {
  readonly model: string;
  readonly when: string;
  readonly row: PriceRow;
}

/** @param named whether rows show the names of their models */
export function PriceTable({ models, named = false }: { models: readonly Model[]; named?: boolean }) {
  const t = useTexts();
  const rows = models.flatMap(({ id, pricing }) =>
    priceRows(pricing).map((row): ShownRow => ({ model: id, when: caseOf(row, t), row })),
  );
  const offered = (name: keyof Rates) => rows.some(({ row }) => "rates" in row && row.rates[name] !== null);
  const price = (title: string, name: keyof Rates): Column<ShownRow> => ({
    title,
    numeric: true,
    cell: ({ row }) => {
      if ("multiplier" in row) return `× ${formatCredits(row.multiplier, t)}`;
      const credits = row.rates[name];
      return credits === null ? "–" : formatCredits(credits, t);
    },
  });
  const when: Column<ShownRow> = {
    title: t.models.when,
    heads: !named,
    cell: ({ when: words, row }) => (
      <>
        {words}
        {row.from !== null && (
          <>
            {" "}
            <Badge kind="warn">{t.models.announced}</Badge>
          </>
        )}
      </>
    ),
  };
  const columns: Column<ShownRow>[] = [
    ...(named ? [{ title: t.models.id, heads: true, cell: ({ model }: ShownRow) => model }] : []),
    when,
    price(t.models.input, "input"),
    price(t.models.output, "output"),
    price(t.models.cacheRead, "cache_read"),
    price(t.models.cacheWrite5m, "cache_write_5m"),
    price(t.models.cacheWrite1h, "cache_write_1h"),
    ...(offered("audio_input") ? [price(t.models.audioInput, "audio_input")] : []),
    ...(offered("audio_output") ? [price(t.models.audioOutput, "audio_output")] : []),
    ...(offered("image_output") ? [price(t.models.imageOutput, "image_output")] : []),
  ];
  return (
    <>
      <Table
        name={t.models.prices}
        rows={rows}
        id={({ model, when: words }) => `${model} ${words}`}
        columns={columns}
      />
      <p class="hint">
        {t.models.per}
        {rows.some(({ row }) => "multiplier" in row) && ` ${t.models.multiplied}`}
      </p>
    </>
  );
}

/** Says in words for which requests a price holds. */
function caseOf({ from, tier, over }: PriceRow, t: Texts): string {
  const parts = [
    ...(from === null ? [] : [t.models.from(minute(momentOf(from)))]),
    ...(tier === null ? [] : [t.models.tier(tier)]),
    ...(over === null ? [] : [t.models.over(formatCount(over, t))]),
  ];
  return parts.length === 0 ? t.models.now : parts.join(", ");
}
