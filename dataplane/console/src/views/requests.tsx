/** Every request that still has a record: how it ended, and how to repeat it. */
import { useState } from "preact/hooks";
import type { Request } from "../api/schema.ts";
import { addDays, isDay, startOfDay } from "../lib/days.ts";
import { useFilters } from "../lib/filters.ts";
import { useLoad } from "../lib/load.ts";
import { useNames, type Names } from "../lib/organization.ts";
import { useStore } from "../lib/store.ts";
import { Button, Check, Empty, Field, Section, ViewLink } from "../parts/basics.tsx";
import { IdChoice } from "../parts/choice.tsx";
import { milliseconds, Outcome } from "../parts/outcome.tsx";
import { PageLinks } from "../parts/page-links.tsx";
import { Table, type Column } from "../parts/table.tsx";
import { addressOf, go, place } from "../router.ts";
import { admin } from "../session.ts";
import { formatCount, formatCredits, useTexts } from "../texts/texts.ts";
import { OneRequest, secondOf } from "./one-request.tsx";

/** Requests on a page; a link leads to older ones. */
const MOST = 500;
const LIVE_MS = 3_000;

export default function Requests() {
  const { query } = useStore(place);
  const id = query.get("request");
  return id === null ? <RequestList /> : <OneRequest key={id} id={id} />;
}

function RequestList() {
  const t = useTexts();
  const { query } = useStore(place);
  const [live, setLive] = useState(false);
  const asked = questionOf(query);
  const filtered = useFilters();
  const status = filtered("status");
  const isOlder = query.has("after");
  const isFiltered = Object.keys(asked).length > 0;
  const { callers, projects, keyName, busy } = useNames();
  const loaded = useLoad(
    (signal) => admin("GET /v1/organization/requests", { query: { limit: MOST, ...asked }, signal }),
    [JSON.stringify(asked)],
    live && !isOlder ? LIVE_MS : 0,
  );
  return (
    <>
      <div class="filters">
        <Field label={t.reports.from} type="date" {...filtered("from")} />
        <Field label={t.reports.to} type="date" {...filtered("to")} />
        <Field label={t.reports.groups.model} {...filtered("model")} />
        <IdChoice label={t.reports.groups.api_key_id} things={callers} {...filtered("key")} />
        <IdChoice label={t.reports.groups.project_id} things={projects} {...filtered("project")} />
        <Field
          label={t.common.status}
          inputMode="numeric"
          {...status}
          // Text that is no status filters nothing, and must not look as if it did.
          {...(status.value === "" || isStatus(status.value) ? {} : { hint: t.requests.statusHint })}
        />
        <Field label={t.requests.code} {...filtered("code")} />
        <Check label={t.requests.live} checked={live} onInput={setLive} disabled={isOlder} />
      </div>
      <FindRequest />
      <Section loaded={loaded} busy={busy}>
        {({ data }) =>
          data.length === 0 ? (
            <Empty title={isFiltered ? t.requests.empty : t.requests.none}>
              <p>{t.requests.emptyHint}</p>
            </Empty>
          ) : (
            <RequestTable requests={data} keyName={keyName} />
          )
        }
      </Section>
      <PageLinks
        view="requests"
        last={loaded.value?.has_more === true ? loaded.value.last_id : null}
        texts={t.requests}
      />
      <p class="hint">{t.requests.newest(formatCount(MOST, t))}</p>
    </>
  );
}

interface RequestTableProps {
  readonly requests: readonly Request[];
  readonly keyName: Names["keyName"];
}

function RequestTable({ requests, keyName }: RequestTableProps) {
  const t = useTexts();
  const columns: Column<Request>[] = [
    {
      title: t.requests.request,
      heads: true,
      cell: (request) => (
        <>
          <span class="moment-text">{secondOf(request)}</span>
          <span class="second">{request.id}</span>
        </>
      ),
    },
    { title: t.reports.groups.model, long: true, cell: ({ model }) => model ?? "–" },
    {
      title: t.reports.groups.api_key_id,
      long: true,
      cell: (request) => (request.api_key_id === null ? "–" : keyName(request.api_key_id)),
    },
    { title: t.common.status, cell: (request) => <Outcome request={request} /> },
    {
      title: t.requests.firstByte,
      numeric: true,
      cell: (request) => milliseconds(request.first_byte_ms, t),
    },
    {
      title: t.requests.duration,
      numeric: true,
      cell: (request) => milliseconds(request.duration_ms, t),
    },
    {
      title: t.usage.tokens,
      numeric: true,
      cell: (request) => formatCount(request.input_tokens + request.output_tokens, t),
    },
    { title: t.costs.credits, numeric: true, cell: ({ credits }) => formatCredits(credits, t) },
    {
      title: t.common.actions,
      cell: (request) => (
        <ViewLink to="requests" query={{ ...Object.fromEntries(place.value.query), request: request.id }}>
          {t.models.details}
        </ViewLink>
      ),
    },
  ];
  return <Table name={t.views.requests} columns={columns} rows={requests} id={({ id }) => id} />;
}

/** Finds a request by an id from an answer, a log or a client; also one that is not listed, as it called no model. */
function FindRequest() {
  const t = useTexts();
  const [id, setId] = useState("");
  return (
    <form
      class="row find"
      method="post"
      onSubmit={(event) => {
        event.preventDefault();
        go(addressOf("requests", { ...Object.fromEntries(place.value.query), request: id.trim() }));
      }}
    >
      <Field label={t.requests.id} value={id} onInput={setId} required pattern=".*\S.*" />
      <Button submits>{t.requests.open}</Button>
    </form>
  );
}

const isStatus = (text: string): boolean => /^\d{3}$/.test(text);

function questionOf(query: URLSearchParams) {
  const [from, to, status] = [query.get("from"), query.get("to"), query.get("status")];
  const text = (parameter: string, name: string) => {
    const value = query.get(parameter) ?? "";
    return value === "" ? {} : { [name]: value };
  };
  return {
    ...(isDay(from) ? { from: startOfDay(from) / 1000 } : {}),
    // The API's end is exclusive, the last day is included.
    ...(isDay(to) ? { to: startOfDay(addDays(to, 1)) / 1000 } : {}),
    ...(status !== null && isStatus(status) ? { status: Number(status) } : {}),
    ...text("model", "model"),
    ...text("code", "code"),
    ...text("key", "api_key_id"),
    ...text("project", "project_id"),
    ...text("after", "after"),
  };
}
