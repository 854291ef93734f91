/** What was charged, to the micro-credit, in credits and in rupiah; and what it was paid from. */
import type { Answer } from "../api/client.ts";
import type { CostReport, Credits } from "../api/schema.ts";
import { csv, download } from "../lib/csv.ts";
import { approximate, compare, rupiahOf, subtract, sum } from "../lib/decimal.ts";
import { useLoad } from "../lib/load.ts";
import { namesOf, readKeys, readProjects } from "../lib/organization.ts";
import { noFilters, readCosts, readUsage, type Range } from "../lib/reports.ts";
import { useStore } from "../lib/store.ts";
import { Badge, Button, Choice, Empty, Figure, Moment, Section } from "../parts/basics.tsx";
import { Chart } from "../parts/chart.tsx";
import { daysOf, RangeFields, rangeOf } from "../parts/range.tsx";
import { Table } from "../parts/table.tsx";
import { addDays, startOfDay } from "../lib/days.ts";
import { place, refine } from "../router.ts";
import { admin } from "../session.ts";
import { formatCount, formatCredits, formatRupiah, useTexts } from "../texts/texts.ts";

const groups = ["model", "line_item", "api_key_id", "project_id"] as const;
type CostGroup = (typeof groups)[number];

interface CostRow {
  readonly name: string;
  readonly credits: string;
}

/** The report has no groups of keys and projects: each is asked for by itself, so many at once. */
const AT_ONCE = 6;

export default function Costs() {
  const t = useTexts();
  const { query } = useStore(place);
  const range = rangeOf(query, Date.now());
  const group = groups.find((one) => one === query.get("group")) ?? "model";
  const loaded = useLoad(
    async (signal) => {
      const [credit, costs, rows] = await Promise.all([
        admin("GET /v1/organization/credits", { signal }),
        readCosts(range, {}, signal),
        readRows(range, group, signal),
      ]);
      return {
        range,
        group,
        credit,
        costs,
        rows: rows.toSorted((one, other) => compare(other.credits, one.credits)),
      };
    },
    [range.from, range.to, group],
  );
  return (
    <>
      <div class="filters">
        <RangeFields range={range} />
        <Choice
          label={t.reports.groupBy}
          value={group}
          onInput={(chosen) => refine({ group: chosen })}
          choices={groups.map((one) => [one, t.reports.groups[one]])}
        />
      </div>
      <Section loaded={loaded}>
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
                <CostTable {...answer} total={answer.costs.total} />
              </>
            )}
            <Grants credit={answer.credit} />
          </>
        )}
      </Section>
      <p class="hint">
        {t.costs.rate} {t.common.utc}
      </p>
    </>
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
  readonly total: string;
}

function CostTable({ range, group, rows, total }: CostTableProps) {
  const t = useTexts();
  const title = t.reports.groups[group];
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
      <Table
        name={title}
        rows={[...rows, { name: t.common.total, credits: total }]}
        id={({ name }) => name}
        columns={[
          { title, heads: true, cell: ({ name }) => name },
          { title: t.costs.credits, numeric: true, cell: ({ credits }) => formatCredits(credits, t) },
          { title: t.costs.rupiah, numeric: true, cell: ({ credits }) => formatRupiah(credits, t) },
        ]}
      />
    </>
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

async function readRows(range: Range, group: CostGroup, signal: AbortSignal): Promise<CostRow[]> {
  if (group === "api_key_id" || group === "project_id") return await rowsByScope(range, group, signal);
  const report: Answer<"GET /v1/organizations/cost_report"> = await admin(
    "GET /v1/organizations/cost_report",
    {
      query: {
        starting_at: startOfDay(range.from) / 1000,
        ending_at: startOfDay(addDays(range.to, 1)) / 1000,
        group_by: ["description"],
      },
      signal,
    },
  );
  return collect(
    report.results,
    group === "model" ? ({ model }) => model ?? "" : ({ description }) => description ?? "",
  );
}

function collect(
  results: CostReport["results"],
  nameOf: (result: CostReport["results"][number]) => string,
): CostRow[] {
  const found = new Map<string, string>();
  for (const result of results) {
    const name = nameOf(result);
    found.set(name, sum([found.get(name) ?? "0", result.credits]));
  }
  return Array.from(found, ([name, credits]) => ({ name, credits }));
}

/** Each key or project that was used in the range, with its own costs. */
async function rowsByScope(
  range: Range,
  group: "api_key_id" | "project_id",
  signal: AbortSignal,
): Promise<CostRow[]> {
  const [buckets, named] = await Promise.all([
    readUsage(range, "1d", group, noFilters, signal),
    group === "api_key_id" ? readKeys(signal) : readProjects(signal),
  ]);
  const nameOf = namesOf(named);
  const ids = [...new Set(buckets.flatMap(({ results }) => results.map((result) => result[group] ?? "")))];
  const rows: CostRow[] = [];
  for (let next = 0; next < ids.length; next += AT_ONCE) {
    const some = ids.slice(next, next + AT_ONCE).map(async (id) => {
      const filter = group === "api_key_id" ? { api_key_ids: [id] } : { project_ids: [id] };
      return { name: nameOf(id), credits: (await readCosts(range, filter, signal)).total };
    });
    rows.push(...(await Promise.all(some)));
  }
  return rows;
}
