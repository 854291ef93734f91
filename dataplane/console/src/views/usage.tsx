/** Usage by day or hour: a chart, its figures, and these as a file. The address holds the whole query. */
import type { ComponentChildren } from "preact";
import { csv } from "../lib/csv.ts";
import { minute } from "../lib/days.ts";
import { download } from "../lib/download.ts";
import { useFilters } from "../lib/filters.ts";
import { useLoad } from "../lib/load.ts";
import { useNames, type Names } from "../lib/organization.ts";
import {
  groupValue,
  readGroups,
  readUsage,
  sumBy,
  sumUsage,
  type Range,
  type TagFilter,
  type UsageBucket,
  type UsageGroup,
  type UsageResult,
  type UsageSum,
} from "../lib/reports.ts";
import { useStore } from "../lib/store.ts";
import { Button, Empty, Figure, Section } from "../parts/basics.tsx";
import { Choice, IdChoice } from "../parts/choice.tsx";
import { Chart, MOST_SERIES } from "../parts/chart.tsx";
import { GroupChoice, groupOf, groups, groupTitle, TagFields, tagsOf, valueTitle } from "../parts/groups.tsx";
import { RangeChoice, RangeFields, rangeOf } from "../parts/range.tsx";
import { Table, type Column } from "../parts/table.tsx";
import { place, refine } from "../router.ts";
import { formatCount, useTexts } from "../texts/texts.ts";
import type { Texts } from "../texts/en.ts";

interface Question {
  readonly range: Range;
  readonly width: "1d" | "1h";
  readonly group: UsageGroup | null;
  readonly model: string;
  readonly key: string;
  readonly project: string;
  readonly tier: string;
  /** True: batches only; false: all others only; null: both. */
  readonly batch: boolean | null;
  readonly tags: TagFilter;
}

function questionOf(query: URLSearchParams): Question {
  return {
    range: rangeOf(query, Date.now()),
    width: query.get("interval") === "hour" ? "1h" : "1d",
    group: groupOf(query),
    model: query.get("model") ?? "",
    key: query.get("key") ?? "",
    project: query.get("project") ?? "",
    tier: query.get("tier") ?? "",
    batch: batchOf(query),
    tags: tagsOf(query),
  };
}

const batchOf = (query: URLSearchParams): boolean | null => {
  const batch = query.get("batch");
  return batch === "true" || batch === "false" ? batch === "true" : null;
};

const oneOf = (text: string): string[] => (text === "" ? [] : [text]);

export default function Usage() {
  const t = useTexts();
  const question = questionOf(useStore(place).query);
  const names = useNames();
  const loaded = useLoad(
    async (signal) => {
      const { range, width, group, model, key, project, tier, batch, tags } = question;
      const filters = {
        models: oneOf(model),
        api_key_ids: oneOf(key),
        project_ids: oneOf(project),
        service_tiers: oneOf(tier),
        ...(batch === null ? {} : { batch }),
        tags,
      };
      const [buckets, models, tiers] = await Promise.all([
        readUsage(range, width, group, filters, signal),
        readGroups(range, "model", {}, signal),
        readGroups(range, "service_tier", {}, signal),
      ]);
      const used = (by: "model" | "service_tier", results: readonly UsageResult[]) =>
        results.map((result) => result[by] ?? "").sort();
      return { question, buckets, models: used("model", models), tiers: used("service_tier", tiers) };
    },
    [JSON.stringify(question)],
  );
  return (
    <>
      <Filters
        question={question}
        models={loaded.value?.models ?? []}
        tiers={loaded.value?.tiers ?? []}
        names={names}
      />
      <Section loaded={loaded} busy={names.busy}>
        {(answer) => <Report {...answer} groupName={groupNamer(answer.question.group, names, t)} />}
      </Section>
    </>
  );
}

interface FiltersProps {
  readonly question: Question;
  readonly models: readonly string[];
  readonly tiers: readonly string[];
  readonly names: Names;
}

function Filters({ question, models, tiers, names: { callers, projects } }: FiltersProps) {
  const t = useTexts();
  const filtered = useFilters();
  return (
    <>
      <RangeChoice range={question.range} />
      <div class="filters">
        <RangeFields range={question.range} />
        <Choice
          label={t.reports.interval}
          value={question.width === "1h" ? "hour" : "day"}
          onInput={(interval) => refine({ interval })}
          choices={[
            ["day", t.reports.day],
            ["hour", t.reports.hour],
          ]}
        />
        <GroupChoice groups={groups} none />
        <IdChoice
          label={t.reports.groups.model}
          things={models.map((model) => ({ id: model, name: model }))}
          {...filtered("model")}
        />
        <IdChoice label={t.reports.groups.api_key_id} things={callers} {...filtered("key")} />
        <IdChoice label={t.reports.groups.project_id} things={projects} {...filtered("project")} />
        <IdChoice
          label={t.reports.groups.service_tier}
          things={tiers.map((tier) => ({ id: tier, name: tier }))}
          {...filtered("tier")}
        />
        <Choice
          label={t.reports.groups.batch}
          value={question.batch === null ? "" : String(question.batch)}
          onInput={(batch) => refine({ batch })}
          choices={[
            ["", t.common.all],
            ["true", t.reports.batch],
            ["false", t.reports.live],
          ]}
        />
        <TagFields />
      </div>
    </>
  );
}

/** Returns the function that names a result of the grouped report. */
function groupNamer(group: UsageGroup | null, names: Names, t: Texts): (result: UsageResult) => string {
  return (result) =>
    group === null ? t.usage.tokens : valueTitle(group, groupValue(group, result), names, t);
}

interface ReportProps {
  readonly question: Question;
  readonly buckets: readonly UsageBucket[];
  readonly groupName: (result: UsageResult) => string;
}

function Report({ question, buckets, groupName }: ReportProps) {
  const t = useTexts();
  const results = buckets.flatMap((bucket) => bucket.results);
  if (results.length === 0)
    return (
      <Empty title={t.usage.empty}>
        <p>{t.usage.emptyHint}</p>
      </Empty>
    );
  const total = sumUsage(results);
  const groupSums = sumBy(results, groupName);
  const momentOf = ({ start_time: start }: UsageBucket) => {
    const text = minute(start * 1000);
    return question.width === "1d" ? text.slice(0, 10) : text;
  };
  return (
    <>
      <dl class="stats">
        <Figure name={t.usage.requests} value={formatCount(total.requests, t)} />
        <Figure
          name={t.usage.input}
          value={formatCount(total.input, t)}
          note={t.usage.cachedNote(formatCount(total.cached, t))}
        />
        <Figure name={t.usage.output} value={formatCount(total.output, t)} />
      </dl>
      <Chart
        name={t.usage.chart}
        moments={buckets.map(momentOf)}
        series={seriesOf(buckets, groupSums, question.group, groupName, t)}
        format={(value) => formatCount(value, t)}
      />
      {question.group !== null && (
        <UsageTable
          title={groupTitle(question.group, t)}
          head={groupTitle(question.group, t)}
          rows={groupSums.map((row) => ({ ...row, head: row.name }))}
        />
      )}
      <UsageTable
        title={question.width === "1d" ? t.reports.days : t.reports.hours}
        head={t.reports.start}
        rows={buckets
          .filter((bucket) => bucket.results.length > 0)
          .map((bucket) => ({ head: momentOf(bucket), sum: sumUsage(bucket.results) }))
          .reverse()}
        aside={
          <Button onClick={() => save(question, buckets, momentOf, groupName, t)}>
            {t.reports.download}
          </Button>
        }
      />
    </>
  );
}

/** Returns one series for each of the largest groups and one for the rest; ungrouped, one for input and one for output. */
function seriesOf(
  buckets: readonly UsageBucket[],
  groupSums: readonly { readonly name: string }[],
  group: UsageGroup | null,
  groupName: (result: UsageResult) => string,
  t: Texts,
) {
  if (group === null) {
    const sums = buckets.map((bucket) => sumUsage(bucket.results));
    return [
      { name: t.usage.input, values: sums.map(({ input }) => input) },
      { name: t.usage.output, values: sums.map(({ output }) => output) },
    ];
  }
  const own = groupSums.length > MOST_SERIES ? groupSums.slice(0, MOST_SERIES - 1) : groupSums;
  const index = new Map(own.map(({ name }, position) => [name, position]));
  const names =
    groupSums.length > own.length
      ? [...own.map(({ name }) => name), t.reports.others]
      : own.map(({ name }) => name);
  const series = names.map((name) => ({ name, values: buckets.map(() => 0) }));
  for (const [moment, bucket] of buckets.entries())
    for (const result of bucket.results) {
      const values = series[index.get(groupName(result)) ?? own.length]?.values;
      if (values !== undefined)
        values[moment] = (values[moment] ?? 0) + result.input_tokens + result.output_tokens;
    }
  return series;
}

interface UsageRow {
  readonly head: string;
  readonly sum: UsageSum;
}

interface UsageTableProps {
  readonly title: string;
  /** Title of the column that names the rows. */
  readonly head: string;
  readonly rows: readonly UsageRow[];
  readonly aside?: ComponentChildren;
}

function UsageTable({ title, head: headTitle, rows, aside }: UsageTableProps) {
  const t = useTexts();
  const count = (name: string, of: (row: UsageSum) => number): Column<UsageRow> => ({
    title: name,
    numeric: true,
    cell: ({ sum }) => formatCount(of(sum), t),
  });
  return (
    <>
      <div class="section-head">
        <h2>{title}</h2>
        {aside}
      </div>
      <Table
        name={title}
        rows={rows}
        id={({ head }) => head}
        columns={[
          { title: headTitle, heads: true, cell: ({ head }) => head },
          count(t.usage.requests, ({ requests }) => requests),
          count(t.usage.input, ({ input }) => input),
          count(t.usage.cached, ({ cached }) => cached),
          count(t.usage.output, ({ output }) => output),
        ]}
      />
    </>
  );
}

function save(
  { range, group }: Question,
  buckets: readonly UsageBucket[],
  momentOf: (bucket: UsageBucket) => string,
  groupName: (result: UsageResult) => string,
  t: Texts,
): void {
  const head = [
    t.reports.start,
    ...(group === null ? [] : [groupTitle(group, t)]),
    t.usage.requests,
    t.usage.input,
    t.usage.cached,
    t.usage.output,
  ];
  const rows = buckets.flatMap((bucket) =>
    bucket.results.map((result) => [
      momentOf(bucket),
      ...(group === null ? [] : [groupName(result)]),
      ...[
        result.num_model_requests,
        result.input_tokens,
        result.input_cached_tokens,
        result.output_tokens,
      ].map(String),
    ]),
  );
  download(`usage-${range.from}-${range.to}.csv`, csv([head, ...rows]), "text/csv;charset=utf-8");
}
