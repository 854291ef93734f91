/** Which models may be called, what they can and cost, and how to call them from here. */
import type { Model } from "../api/schema.ts";
import { useLoad } from "../lib/load.ts";
import { useStore } from "../lib/store.ts";
import { Badge, CopyButton, Empty, Field, Moment, Section, ViewLink } from "../parts/basics.tsx";
import { InferenceGate } from "../parts/inference-gate.tsx";
import { Snippets } from "../parts/snippets.tsx";
import { Table } from "../parts/table.tsx";
import { place, refine } from "../router.ts";
import { inference } from "../session.ts";
import { formatCount, formatCredits, useTexts, type Texts } from "../texts/texts.ts";

const MOST_MODELS = 10_000;

export default function Models() {
  return (
    <InferenceGate>
      <ModelList />
    </InferenceGate>
  );
}

function ModelList() {
  const t = useTexts();
  const { query } = useStore(place);
  const loaded = useLoad(
    (signal) => inference("GET /v1/models", { query: { limit: MOST_MODELS }, signal }),
    [],
  );
  const chosen = query.get("model");
  const search = (query.get("search") ?? "").toLowerCase();
  return (
    <Section loaded={loaded}>
      {({ data }) => {
        const model = data.find(({ id }) => id === chosen);
        if (model !== undefined) return <OneModel model={model} />;
        const found = data.filter(({ id, display_name: name }) =>
          [id, name].some((text) => text.toLowerCase().includes(search)),
        );
        return (
          <>
            <div class="filters">
              <Field
                label={t.common.search}
                type="search"
                value={query.get("search") ?? ""}
                onInput={(text) => refine({ search: text })}
              />
            </div>
            {found.length === 0 ? <Empty title={t.models.empty} /> : <ModelTable models={found} />}
            <p class="hint">{t.models.per}</p>
          </>
        );
      }}
    </Section>
  );
}

function ModelTable({ models }: { models: readonly Model[] }) {
  const t = useTexts();
  return (
    <Table
      name={t.views.models}
      rows={models}
      id={({ id }) => id}
      columns={[
        {
          title: t.models.id,
          heads: true,
          cell: ({ id, display_name: name }) => (
            <>
              {id} <CopyButton text={id} />
              {name !== id && <span class="second">{name}</span>}
            </>
          ),
        },
        {
          title: t.models.context,
          numeric: true,
          cell: (model) => formatCount(model.max_input_tokens, t),
        },
        { title: t.models.maxOutput, numeric: true, cell: (model) => formatCount(model.max_tokens, t) },
        { title: t.models.input, numeric: true, cell: ({ pricing }) => formatCredits(pricing.input, t) },
        { title: t.models.output, numeric: true, cell: ({ pricing }) => formatCredits(pricing.output, t) },
        {
          title: t.common.actions,
          cell: ({ id }) => (
            <ViewLink to="models" query={{ ...Object.fromEntries(place.value.query), model: id }}>
              {t.models.details}
            </ViewLink>
          ),
        },
      ]}
    />
  );
}

function OneModel({ model }: { model: Model }) {
  const t = useTexts();
  const { model: _, ...list } = Object.fromEntries(place.value.query);
  const abilities = Object.entries(model.capabilities).flatMap(([name, value]) =>
    typeof value === "object" && (value as { supported?: boolean }).supported === true ? [name] : [],
  );
  return (
    <>
      <p class="back">
        <ViewLink to="models" query={list}>
          {t.models.back}
        </ViewLink>
      </p>
      <h2>
        <code>{model.id}</code> <CopyButton text={model.id} />
      </h2>
      <dl class="facts card">
        <dt>{t.models.name}</dt>
        <dd>{model.display_name}</dd>
        <dt>{t.models.context}</dt>
        <dd>{formatCount(model.max_input_tokens, t)}</dd>
        <dt>{t.models.maxOutput}</dt>
        <dd>{formatCount(model.max_tokens, t)}</dd>
        <dt>{t.models.abilities}</dt>
        <dd class="row">
          {abilities.map((name) => (
            <Badge key={name} kind="calm">
              {name.replaceAll("_", " ")}
            </Badge>
          ))}
        </dd>
      </dl>
      <h2>{t.models.prices}</h2>
      <Prices model={model} t={t} />
      <h2>{t.models.call}</h2>
      <Snippets model={model.id} />
    </>
  );
}

type Rates = Pick<Model["pricing"], "input" | "output" | "cache_read" | "cache_write_5m" | "cache_write_1h">;
interface PriceRow {
  readonly when: string;
  readonly rates: Rates;
}

function Prices({ model: { pricing }, t }: { model: Model; t: Texts }) {
  const tiersOf = (tiers: Model["pricing"]["tiers"], prefix: string): PriceRow[] =>
    tiers.map((tier) => ({
      when: `${prefix}${t.models.over(formatCount(tier.input_over, t))}`,
      rates: tier,
    }));
  const rows: PriceRow[] = [
    { when: t.models.now, rates: pricing },
    ...tiersOf(pricing.tiers, ""),
    ...pricing.service_tiers.flatMap((tier) =>
      "input" in tier
        ? [
            { when: t.models.tier(tier.name), rates: tier },
            ...tiersOf(tier.tiers, `${t.models.tier(tier.name)}, `),
          ]
        : [],
    ),
    ...pricing.changes.flatMap((change) => [
      { when: t.models.from(change.from), rates: change },
      ...tiersOf(change.tiers, `${t.models.from(change.from)}, `),
    ]),
  ];
  const price = (title: string, of: (rates: Rates) => string) => ({
    title,
    numeric: true,
    cell: ({ rates }: PriceRow) => formatCredits(of(rates), t),
  });
  const multipliers = pricing.service_tiers.filter((tier) => !("input" in tier));
  const { tools } = pricing;
  return (
    <>
      <Table
        name={t.models.prices}
        rows={rows}
        id={({ when }) => when}
        columns={[
          { title: t.models.when, heads: true, cell: ({ when }) => when },
          price(t.models.input, (rates) => rates.input),
          price(t.models.output, (rates) => rates.output),
          price(t.models.cacheRead, (rates) => rates.cache_read),
          price(t.models.cacheWrite5m, (rates) => rates.cache_write_5m),
          price(t.models.cacheWrite1h, (rates) => rates.cache_write_1h),
        ]}
      />
      <p class="hint">
        {t.models.per}
        {multipliers.map(({ name, multiplier }) => ` ${t.models.multiplied(name, multiplier ?? "1")}`)}
        {pricing.changes.length > 0 && (
          <>
            {" "}
            {t.models.nextChange} <Moment at={pricing.changes[0]?.from ?? ""} />.
          </>
        )}
      </p>
      <dl class="facts card">
        <dt>{t.models.webSearch}</dt>
        <dd>{formatCredits(tools.web_search, t)}</dd>
        <dt>{t.models.webFetch}</dt>
        <dd>{formatCredits(tools.web_fetch, t)}</dd>
        <dt>{t.models.xPost}</dt>
        <dd>{formatCredits(tools.x_search_post, t)}</dd>
        <dt>{t.models.xProfile}</dt>
        <dd>{formatCredits(tools.x_search_profile, t)}</dd>
      </dl>
      <p class="hint">{t.models.perThousand}</p>
    </>
  );
}
