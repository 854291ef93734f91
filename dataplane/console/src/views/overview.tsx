/** The organization at a glance: its credit, how fast it is spent, and by whom. */
import type { Credits, Request } from "../api/schema.ts";
import { addDays, dayOf } from "../lib/days.ts";
import { approximate, compare, divide, isPositive, subtract, sum } from "../lib/decimal.ts";
import { failureOf, firstBytes, percentile } from "../lib/health.ts";
import { useLoad } from "../lib/load.ts";
import { useNames } from "../lib/organization.ts";
import { readCosts, readGroups, sumUsage, type UsageResult } from "../lib/reports.ts";
import { Empty, Figure, Moment, Section, ViewLink } from "../parts/basics.tsx";
import { Chart } from "../parts/chart.tsx";
import { milliseconds, Outcome } from "../parts/outcome.tsx";
import { Table } from "../parts/table.tsx";
import { admin } from "../session.ts";
import { formatCount, formatCredits, formatRupiah, useTexts } from "../texts/texts.ts";
import type { Texts } from "../texts/en.ts";

const DAYS = 30;
/** Whole days that the forecast is made from; today does not count. */
const PACE_DAYS = 7;
const EVERY_MS = 30_000;
const TOP = 5;
/** The number of newest requests that health is judged by, whatever their age. */
const NEWEST = 500;

export default function Overview() {
  const t = useTexts();
  const { keyName, busy } = useNames();
  const loaded = useLoad(
    async (signal) => {
      const to = dayOf(Date.now());
      const range = { from: addDays(to, 1 - DAYS), to };
      const [credit, costs, models, keyUsage, newest] = await Promise.all([
        admin("GET /v1/organization/credits", { signal }),
        readCosts(range, {}, signal),
        readGroups(range, "model", {}, signal),
        readGroups(range, "api_key_id", {}, signal),
        admin("GET /v1/organization/requests", { query: { limit: NEWEST }, signal }),
      ]);
      return {
        range,
        credit,
        costs,
        models,
        keyUsage,
        newest: newest.data,
      };
    },
    [],
    EVERY_MS,
  );
  return (
    <Section loaded={loaded} busy={busy}>
      {({ range, credit, costs, models, keyUsage, newest }) => {
        const used = sumUsage(models);
        return (
          <>
            <dl class="stats">
              <Balance credit={credit} t={t} />
              <Figure
                name={t.overview.spent(DAYS)}
                value={formatCredits(costs.total, t)}
                unit={t.common.credits}
                note={formatRupiah(costs.total, t)}
              />
              <Figure name={t.overview.forecast} {...forecast(credit, costs.days, t)} />
              <Figure
                name={t.overview.requests(DAYS)}
                value={formatCount(used.requests, t)}
                note={t.overview.counted}
              />
            </dl>
            {newest.length > 0 && <Health newest={newest} t={t} />}
            {used.requests === 0 ? (
              <Empty title={t.overview.unused}>
                <p>
                  {t.overview.begin} <ViewLink to="keys">{t.views.keys}</ViewLink>
                </p>
              </Empty>
            ) : (
              <>
                <Chart
                  name={t.overview.burn}
                  moments={costs.days.map((_, index) => addDays(range.from, index))}
                  series={[{ name: t.common.credits, values: costs.days.map(approximate) }]}
                  format={(value) => formatCredits(String(value), t)}
                />
                <div class="two">
                  <Top
                    title={t.overview.topModels}
                    results={models}
                    name={({ model }) => model ?? ""}
                    t={t}
                  />
                  <Top
                    title={t.overview.topKeys}
                    results={keyUsage}
                    name={(result) => keyName(result.api_key_id ?? "")}
                    t={t}
                  />
                </div>
              </>
            )}
            <Failures newest={newest} t={t} />
          </>
        );
      }}
    </Section>
  );
}

/** Errors and first bytes of the newest requests. */
function Health({ newest, t }: { newest: readonly Request[]; t: Texts }) {
  const failures = newest.map(failureOf).filter((failure) => failure !== null);
  const by = (whom: "service" | "caller") =>
    formatCount(failures.filter((failure) => failure === whom).length, t);
  const sorted = firstBytes(newest);
  const count = formatCount(newest.length, t);
  return (
    <dl class="stats">
      <Figure
        name={t.overview.errors}
        value={formatCount(failures.length, t)}
        note={
          failures.length === 0
            ? t.overview.ofNewest(count)
            : `${t.overview.ofNewest(count)}; ${t.overview.faults(by("service"), by("caller"))}`
        }
      />
      <Figure
        name={t.overview.firstByte(50)}
        value={milliseconds(percentile(sorted, 50), t)}
        note={t.overview.ofNewest(count)}
      />
      <Figure
        name={t.overview.firstByte(95)}
        value={milliseconds(percentile(sorted, 95), t)}
        note={t.overview.ofNewest(count)}
      />
    </dl>
  );
}

function Failures({ newest, t }: { newest: readonly Request[]; t: Texts }) {
  const failures = newest.filter((request) => failureOf(request) !== null).slice(0, TOP);
  if (failures.length === 0) return null;
  return (
    <section class="section">
      <h2>{t.overview.failures}</h2>
      <Table
        name={t.overview.failures}
        rows={failures}
        id={({ id }) => id}
        columns={[
          {
            title: t.requests.request,
            heads: true,
            cell: ({ id }) => (
              <ViewLink to="requests" query={{ request: id }}>
                {id}
              </ViewLink>
            ),
          },
          { title: t.requests.at, cell: (request) => <Moment at={request.created_at} /> },
          { title: t.reports.groups.model, long: true, cell: ({ model }) => model ?? "–" },
          {
            title: t.common.status,
            cell: (request) => <Outcome request={request} />,
          },
        ]}
      />
      <p class="hint">
        <ViewLink to="requests">{t.overview.allRequests}</ViewLink>
      </p>
    </section>
  );
}

function Balance({ credit, t }: { credit: Credits; t: Texts }) {
  const balance = subtract(credit.granted, credit.used);
  return (
    <Figure
      name={t.overview.balance}
      value={formatCredits(balance, t)}
      unit={t.common.credits}
      note={t.overview.held(formatCredits(credit.held, t))}
    />
  );
}

/** Estimates how long the balance lasts at the pace of the last whole days. */
function forecast(credit: Credits, days: readonly string[], t: Texts) {
  const pace = divide(sum(days.slice(-PACE_DAYS - 1, -1)), PACE_DAYS, 6);
  const balance = subtract(credit.granted, credit.used);
  if (!isPositive(balance)) return { value: t.overview.nothingLeft };
  if (!isPositive(pace)) return { value: t.overview.noForecast, note: t.overview.noPace(PACE_DAYS) };
  const left = Math.floor(approximate(balance) / approximate(pace));
  return {
    value: t.overview.lasts(formatCount(left, t)),
    note: t.overview.pace(formatCredits(pace, t), PACE_DAYS),
  };
}

interface TopProps {
  readonly title: string;
  readonly results: readonly UsageResult[];
  readonly name: (result: UsageResult) => string;
  readonly t: Texts;
}

function Top({ title, results, name, t }: TopProps) {
  return (
    <section class="section">
      <h2>{title}</h2>
      <Table
        name={title}
        rows={results.toSorted((one, other) => compare(other.credits, one.credits)).slice(0, TOP)}
        id={name}
        columns={[
          { title: t.overview.name, heads: true, cell: name },
          {
            title: t.usage.requests,
            numeric: true,
            cell: ({ num_model_requests: requests }) => formatCount(requests, t),
          },
          {
            title: t.usage.tokens,
            numeric: true,
            cell: (result) => formatCount(result.input_tokens + result.output_tokens, t),
          },
          { title: t.costs.credits, numeric: true, cell: ({ credits }) => formatCredits(credits, t) },
        ]}
      />
    </section>
  );
}
