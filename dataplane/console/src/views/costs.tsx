/** Charges to the micro-credit, in credits and in rupiah, and the grants that paid for them. */
import { useState } from "preact/hooks";
import type { Credits } from "../api/schema.ts";
import { csv } from "../lib/csv.ts";
import { approximate, compare, rupiahOf, subtract, sum } from "../lib/decimal.ts";
import { download } from "../lib/download.ts";
import { useFilter } from "../lib/filters.ts";
import { useLoad } from "../lib/load.ts";
import { isFound, readModels } from "../lib/models.ts";
import { useNames, type Names } from "../lib/organization.ts";
import {
  costParts,
  groupValue,
  readCosts,
  readGroups,
  type Range,
  type TagFilter,
  type UsageGroup,
} from "../lib/reports.ts";
import { useStore } from "../lib/store.ts";
import { Badge, Button, Empty, Field, Figure, Moment, Section, ViewLink } from "../parts/basics.tsx";
import { Choice } from "../parts/choice.tsx";
import { FormDialog } from "../parts/dialog.tsx";
import { Chart } from "../parts/chart.tsx";
import { GroupChoice, groupOf, groupTitle, TagFields, tagsOf, valueTitle } from "../parts/groups.tsx";
import { PriceTable } from "../parts/prices.tsx";
import { daysOf, RangeChoice, RangeFields, rangeOf } from "../parts/range.tsx";
import { InferenceGate } from "../parts/inference-gate.tsx";
import { Table } from "../parts/table.tsx";
import { addDays, startOfDay } from "../lib/days.ts";
import { place } from "../router.ts";
import { admin, adminFile } from "../session.ts";
import { formatCount, formatCredits, formatRupiah, useTexts } from "../texts/texts.ts";

const costGroups = [
  "model",
  "line_item",
  "api_key_id",
  "project_id",
  "service_tier",
  "batch",
  "tag",
] as const;

type CostGroup = UsageGroup | "line_item";

interface CostRow {
  /** The group's value in the API: of keys and projects the id. */
  readonly value: string;
  readonly credits: string;
}

export default function Costs() {
  const t = useTexts();
  const { query } = useStore(place);
  const names = useNames();
  const [isExporting, setIsExporting] = useState(false);
  const range = rangeOf(query, Date.now());
  const group: CostGroup = query.get("group") === "line_item" ? "line_item" : (groupOf(query) ?? "model");
  const tags = tagsOf(query);
  const loaded = useLoad(
    async (signal) => {
      const [credit, costs, rows] = await Promise.all([
        admin("GET /v1/organization/credits", { signal }),
        readCosts(range, { tags }, signal),
        group === "line_item" ? readLines(range, tags, signal) : readGroupCosts(range, group, tags, signal),
      ]);
      return { range, group, credit, costs, rows };
    },
    [range.from, range.to, group, JSON.stringify(tags)],
  );
  return (
    <>
      <RangeChoice range={range} />
      <div class="filters">
        <RangeFields range={range} />
        <GroupChoice groups={costGroups} />
        <TagFields />
        <Button onClick={() => setIsExporting(true)}>{t.costs.focus}</Button>
      </div>
      <Section loaded={loaded} busy={names.busy}>
        {(answer) => (
          <>
            <Sums credit={answer.credit} total={answer.costs.total} />
            {answer.rows.length === 0 ? (
              <Empty title={t.costs.empty}>
                <p>{t.usage.emptyHint}</p>
              </Empty>
            ) : (
              <>
                <Chart
                  name={t.costs.chart}
                  moments={daysOf(answer.range)}
                  series={[{ name: t.common.credits, values: answer.costs.days.map(approximate) }]}
                  format={(value) => formatCredits(String(value), t)}
                />
                <CostTable {...answer} names={names} total={answer.costs.total} />
                <h2>{t.reports.days}</h2>
                <MoneyTable
                  title={t.reports.days}
                  head={t.reports.start}
                  rows={daysOf(answer.range)
                    .map((day, index) => ({ name: day, credits: answer.costs.days[index] ?? "0" }))
                    .filter(({ credits }) => credits !== "0")
                    .reverse()}
                  total={answer.costs.total}
                />
              </>
            )}
            <Grants credit={answer.credit} />
          </>
        )}
      </Section>
      <p class="hint">{t.costs.rate}</p>
      <Prices />
      {isExporting && <FocusExport month={range.to.slice(0, 7)} onClose={() => setIsExporting(false)} />}
    </>
  );
}

/** Prices of every model that an inference key may call: only such a key may list models. */
function Prices() {
  const t = useTexts();
  return (
    <section class="section">
      <h2>{t.models.prices}</h2>
      <InferenceGate>
        <PriceList />
      </InferenceGate>
    </section>
  );
}

function PriceList() {
  const t = useTexts();
  const search = useFilter("search");
  const loaded = useLoad(readModels, []);
  return (
    <Section loaded={loaded}>
      {(models) => {
        const found = models.filter((model) => isFound(model, search.value));
        return (
          <>
            <div class="filters">
              <Field label={t.common.search} type="search" {...search} />
            </div>
            {found.length === 0 ? <Empty title={t.models.empty} /> : <PriceTable models={found} named />}
            <p class="hint">
              {t.costs.prices} <ViewLink to="models">{t.views.models}</ViewLink>
            </p>
          </>
        );
      }}
    </Section>
  );
}

/** The export of a month for tools that compare costs of clouds (FOCUS, the FinOps Foundation's format). */
function FocusExport({ month: first, onClose }: { month: string; onClose: () => void }) {
  const t = useTexts();
  const [month, setMonth] = useState(first);
  const [format, setFormat] = useState("focus-csv");
  const submit = async () => {
    const file = await adminFile(`/v1/organization/costs/export?${new URLSearchParams({ format, month })}`);
    const isCsv = format === "focus-csv";
    download(
      `focus-${month}.${isCsv ? "csv" : "parquet"}`,
      file,
      isCsv ? "text/csv" : "application/octet-stream",
    );
    onClose();
  };
  return (
    <FormDialog title={t.costs.focus} action={t.files.download} onSubmit={submit} onClose={onClose}>
      <p class="muted">{t.costs.focusText}</p>
      <Field label={t.costs.month} type="month" value={month} onInput={setMonth} required autofocus />
      <Choice
        label={t.costs.format}
        value={format}
        onInput={setFormat}
        choices={[
          ["focus-csv", "CSV"],
          ["focus-parquet", "Parquet"],
        ]}
      />
    </FormDialog>
  );
}

function Sums({ credit, total }: { credit: Credits; total: string }) {
  const t = useTexts();
  const balance = subtract(credit.granted, credit.used);
  return (
    <dl class="stats">
      <Figure
        name={t.costs.charged}
        value={formatCredits(total, t)}
        unit={t.common.credits}
        note={formatRupiah(total, t)}
      />
      <Figure
        name={t.overview.balance}
        value={formatCredits(balance, t)}
        unit={t.common.credits}
        note={formatRupiah(balance, t)}
      />
      <Figure
        name={t.costs.granted}
        value={formatCredits(credit.granted, t)}
        unit={t.common.credits}
        note={t.costs.usedSoFar(formatCredits(credit.used, t))}
      />
    </dl>
  );
}

interface CostTableProps {
  readonly range: Range;
  readonly group: CostGroup;
  readonly rows: readonly CostRow[];
  readonly names: Names;
  readonly total: string;
}

function CostTable({ range, group, rows: values, names, total }: CostTableProps) {
  const t = useTexts();
  const title = group === "line_item" ? t.reports.groups[group] : groupTitle(group, t);
  const rows = values.map(({ value, credits }) => ({ name: valueTitle(group, value, names, t), credits }));
  const save = () => {
    const lines = [...rows, { name: t.common.total, credits: total }].map(({ name, credits }) => [
      name,
      credits,
      rupiahOf(credits),
    ]);
    const file = csv([[title, t.common.credits, "IDR"], ...lines]);
    download(`costs-${range.from}-${range.to}.csv`, file, "text/csv;charset=utf-8");
  };
  return (
    <>
      <div class="section-head">
        <h2>{title}</h2>
        <Button onClick={save}>{t.reports.download}</Button>
      </div>
      <MoneyTable title={title} head={title} rows={rows} total={total} />
    </>
  );
}

interface MoneyTableProps {
  readonly title: string;
  /** Title of the column that names the rows. */
  readonly head: string;
  readonly rows: readonly { readonly name: string; readonly credits: string }[];
  readonly total: string;
}

function MoneyTable({ title, head, rows, total }: MoneyTableProps) {
  const t = useTexts();
  return (
    <Table
      name={title}
      rows={rows}
      total={{ name: t.common.total, credits: total }}
      id={({ name }) => name}
      columns={[
        { title: head, heads: true, cell: ({ name }) => name },
        { title: t.costs.credits, numeric: true, cell: ({ credits }) => formatCredits(credits, t) },
        { title: t.costs.rupiah, numeric: true, cell: ({ credits }) => formatRupiah(credits, t) },
      ]}
    />
  );
}

function Grants({ credit: { grants } }: { credit: Credits }) {
  const t = useTexts();
  return (
    <>
      <h2>{t.costs.grants}</h2>
      {grants.length === 0 ? (
        <Empty title={t.costs.noGrants} />
      ) : (
        <Table
          name={t.costs.grants}
          rows={grants}
          id={({ name }) => name}
          columns={[
            { title: t.overview.name, heads: true, cell: ({ name }) => name },
            { title: t.costs.grantedAt, cell: (grant) => <Moment at={grant.granted_at} /> },
            {
              title: t.costs.source,
              cell: ({ source }) => <Badge kind="calm">{t.costs.sources[source]}</Badge>,
            },
            { title: t.costs.credits, numeric: true, cell: ({ amount }) => formatCredits(amount, t) },
          ]}
        />
      )}
      <p class="hint">{t.costs.grantCount(formatCount(grants.length, t))}</p>
    </>
  );
}

/** Reads in one call what each model, key, project, tier or tag cost, however many there are. */
async function readGroupCosts(
  range: Range,
  group: UsageGroup,
  tags: TagFilter,
  signal: AbortSignal,
): Promise<CostRow[]> {
  const results = await readGroups(range, group, { tags }, signal);
  return results.map((result) => ({ value: groupValue(group, result), credits: result.credits }));
}

async function readLines(range: Range, tags: TagFilter, signal: AbortSignal): Promise<CostRow[]> {
  const reports = await Promise.all(
    costParts(range).map((part) =>
      admin("GET /v1/organizations/cost_report", {
        query: {
          starting_at: startOfDay(part.from) / 1000,
          ending_at: startOfDay(addDays(part.to, 1)) / 1000,
          group_by: ["description"],
          tags,
        },
        signal,
      }),
    ),
  );
  const found = new Map<string, string>();
  for (const { description, credits } of reports.flatMap(({ results }) => results))
    found.set(description ?? "", sum([found.get(description ?? "") ?? "0", credits]));
  return Array.from(found, ([value, credits]) => ({ value, credits })).toSorted((one, other) =>
    compare(other.credits, one.credits),
  );
}
