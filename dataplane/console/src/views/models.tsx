/** The models that may be called: their abilities and prices, and how to call them. */
import type { Model } from "../api/schema.ts";
import { useFilter } from "../lib/filters.ts";
import { healthOf, healthWord } from "../lib/health.ts";
import { useLoad } from "../lib/load.ts";
import { isFound, readModels } from "../lib/models.ts";
import { useStore } from "../lib/store.ts";
import { Badge, CopyButton, Empty, Field, Section, ViewLink } from "../parts/basics.tsx";
import { InferenceGate } from "../parts/inference-gate.tsx";
import { milliseconds } from "../parts/outcome.tsx";
import { PriceTable } from "../parts/prices.tsx";
import { Snippets } from "../parts/snippets.tsx";
import { Table } from "../parts/table.tsx";
import { place } from "../router.ts";
import { admin } from "../session.ts";
import { formatCount, formatCredits, useTexts } from "../texts/texts.ts";

/** The requests that health is judged by: their age and number at most. */
const HEALTH_SECONDS = 3600;
const MOST_REQUESTS = 1000;
const HEALTH_EVERY_MS = 30_000;

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
  const loaded = useLoad(readModels, []);
  const chosen = query.get("model");
  const search = useFilter("search");
  return (
    <Section loaded={loaded}>
      {(models) => {
        const model = models.find(({ id }) => id === chosen);
        if (model !== undefined) return <OneModel model={model} />;
        const found = models.filter((one) => isFound(one, search.value));
        return (
          <>
            <div class="filters">
              <Field label={t.common.search} type="search" {...search} />
            </div>
            {found.length === 0 ? (
              <Empty title={search.value === "" ? t.models.none : t.models.empty} />
            ) : (
              <ModelTable models={found} />
            )}
            <p class="hint">
              {t.models.per} {t.models.healthHint(formatCount(MOST_REQUESTS, t))}
            </p>
          </>
        );
      }}
    </Section>
  );
}

function ModelTable({ models }: { models: readonly Model[] }) {
  const t = useTexts();
  const health = useHealth();
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
        { title: t.models.health, cell: ({ id }) => <HealthShown loaded={health} model={id} /> },
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
  const health = useHealth(model.id);
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
        <dt>{t.models.health}</dt>
        <dd>
          <HealthShown loaded={health} model={model.id} />{" "}
          <ViewLink to="requests" query={{ model: model.id }}>
            {t.models.itsRequests}
          </ViewLink>
        </dd>
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
      <PriceTable models={[model]} />
      <ToolPrices model={model} />
      <h2>{t.models.call}</h2>
      <Snippets model={model.id} />
    </>
  );
}

function ToolPrices({ model: { pricing } }: { model: Model }) {
  const t = useTexts();
  const { tools } = pricing;
  return (
    <>
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

/** Loads health from the newest requests of the last hour, of all models or of one. */
function useHealth(model?: string) {
  return useLoad(
    async (signal) => {
      const from = Math.floor(Date.now() / 1000) - HEALTH_SECONDS;
      const query = { limit: MOST_REQUESTS, from, ...(model === undefined ? {} : { model }) };
      return healthOf((await admin("GET /v1/organization/requests", { query, signal })).data);
    },
    [model],
    HEALTH_EVERY_MS,
  );
}

const badges = { unknown: "calm", good: "good", shaky: "warn", failing: "bad" } as const;

function HealthShown({ loaded, model }: { loaded: ReturnType<typeof useHealth>; model: string }) {
  const t = useTexts();
  // Records may be unavailable or not kept: health is unknown then.
  if (loaded.value === null) return <>{loaded.busy ? "…" : "–"}</>;
  const health = loaded.value.get(model);
  const word = healthWord(health);
  return (
    <>
      <Badge kind={badges[word]}>{t.models.healths[word]}</Badge>
      {health !== undefined && (
        <span class="second">
          {t.models.failed(formatCount(health.failed, t), formatCount(health.requests, t))}
          {health.firstByteP95 !== null && ` · p95 ${milliseconds(health.firstByteP95, t)}`}
        </span>
      )}
    </>
  );
}
