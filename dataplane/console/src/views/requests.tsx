/** Every request that is still remembered: what became of it, and how to do it again. */
import { useState } from "preact/hooks";
import type { Request } from "../api/schema.ts";
import { addDays, isDay, minute, momentOf, startOfDay } from "../lib/days.ts";
import { useLoad } from "../lib/load.ts";
import { namesOf, readKeys } from "../lib/organization.ts";
import { useStore } from "../lib/store.ts";
import { Badge, Button, Check, CopyButton, Empty, Field, Section } from "../parts/basics.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Table } from "../parts/table.tsx";
import { place, refine } from "../router.ts";
import { admin } from "../session.ts";
import { formatCount, formatCredits, useTexts } from "../texts/texts.ts";

/** The newest so many; older ones are found by their day. */
const MOST = 500;
const LIVE_MS = 3_000;

export default function Requests() {
  const t = useTexts();
  const { query } = useStore(place);
  const [live, setLive] = useState(false);
  const [shown, setShown] = useState<Request | null>(null);
  const asked = questionOf(query);
  const keys = useLoad(readKeys, []);
  const loaded = useLoad(
    (signal) => admin("GET /v1/organization/requests", { query: { limit: MOST, ...asked }, signal }),
    [JSON.stringify(asked)],
    live ? LIVE_MS : 0,
  );
  const keyName = namesOf(keys.value ?? []);
  return (
    <>
      <div class="filters">
        <Field
          label={t.reports.from}
          type="date"
          value={query.get("from") ?? ""}
          onInput={(from) => refine({ from })}
        />
        <Field
          label={t.reports.to}
          type="date"
          value={query.get("to") ?? ""}
          onInput={(to) => refine({ to })}
        />
        <Field
          label={t.reports.groups.model}
          value={query.get("model") ?? ""}
          onInput={(model) => refine({ model })}
        />
        <Field
          label={t.common.status}
          inputMode="numeric"
          value={query.get("status") ?? ""}
          onInput={(status) => refine({ status })}
        />
        <Field label={t.requests.code} value={query.get("code") ?? ""} onInput={(code) => refine({ code })} />
        <Check label={t.requests.live} checked={live} onInput={setLive} />
      </div>
      <Section loaded={loaded}>
        {({ data }) =>
          data.length === 0 ? (
            <Empty title={t.requests.empty}>
              <p>{t.requests.emptyHint}</p>
            </Empty>
          ) : (
            <Table
              name={t.views.requests}
              rows={data}
              id={({ id }) => id}
              columns={[
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
                { title: t.reports.groups.model, cell: ({ model }) => model ?? "–" },
                {
                  title: t.reports.groups.api_key_id,
                  cell: (request) => (request.api_key_id === null ? "–" : keyName(request.api_key_id)),
                },
                { title: t.common.status, cell: (request) => <Outcome request={request} /> },
                {
                  title: t.requests.firstByte,
                  numeric: true,
                  cell: (request) => milliseconds(request.first_byte_ms),
                },
                {
                  title: t.requests.duration,
                  numeric: true,
                  cell: (request) => milliseconds(request.duration_ms),
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
                    <Button kind="quiet" onClick={() => setShown(request)}>
                      {t.models.details}
                    </Button>
                  ),
                },
              ]}
            />
          )
        }
      </Section>
      <p class="hint">
        {t.requests.newest(formatCount(MOST, t))} {t.common.utc}
      </p>
      {shown !== null && <OneRequest request={shown} keyName={keyName} onClose={() => setShown(null)} />}
    </>
  );
}

const milliseconds = (value: number | null): string => (value === null ? "–" : `${value} ms`);
const secondOf = ({ created_at: at }: Request): string =>
  `${minute(momentOf(at))}:${new Date(at * 1000).toISOString().slice(17, 19)}`;

function questionOf(query: URLSearchParams) {
  const [from, to, status] = [query.get("from"), query.get("to"), query.get("status")];
  const text = (name: "model" | "code") => {
    const value = query.get(name) ?? "";
    return value === "" ? {} : { [name]: value };
  };
  return {
    ...(isDay(from) ? { from: startOfDay(from) / 1000 } : {}),
    // The last second of the day, as both days are included.
    ...(isDay(to) ? { to: startOfDay(addDays(to, 1)) / 1000 } : {}),
    ...(status !== null && /^\d{3}$/.test(status) ? { status: Number(status) } : {}),
    ...text("model"),
    ...text("code"),
  };
}

function Outcome({ request: { status, error_code: code } }: { request: Request }) {
  return (
    <>
      <Badge kind={status < 400 ? "good" : "bad"}>{String(status)}</Badge>
      {code !== null && <span class="second">{code}</span>}
    </>
  );
}

interface OneRequestProps {
  readonly request: Request;
  readonly keyName: (id: string) => string;
  readonly onClose: () => void;
}

function OneRequest({ request, keyName, onClose }: OneRequestProps) {
  const t = useTexts();
  const facts: [string, string][] = [
    [t.requests.at, `${secondOf(request)} UTC`],
    [t.reports.groups.model, request.model ?? "–"],
    [t.reports.groups.api_key_id, request.api_key_id === null ? "–" : keyName(request.api_key_id)],
    [t.requests.dialect, request.dialect ?? "–"],
    [t.requests.path, request.path ?? "–"],
    [t.common.status, `${request.status}${request.error_code === null ? "" : ` · ${request.error_code}`}`],
    [t.requests.firstByte, milliseconds(request.first_byte_ms)],
    [t.requests.duration, milliseconds(request.duration_ms)],
    [t.usage.input, formatCount(request.input_tokens, t)],
    [t.usage.output, formatCount(request.output_tokens, t)],
    [t.costs.credits, formatCredits(request.credits, t)],
    [t.requests.toolCalls, formatCount(request.tool_calls, t)],
    ...(request.batch_id === null ? [] : [[t.reports.batch, request.batch_id] as [string, string]]),
    ...Object.entries(request.tags).map(([name, value]): [string, string] => [name, String(value)]),
  ];
  return (
    <Dialog title={request.id} onClose={onClose}>
      <div class="stack">
        <dl class="facts">
          {facts.map(([name, value]) => [<dt key={name}>{name}</dt>, <dd key={`${name}:`}>{value}</dd>])}
        </dl>
        <h3>{t.requests.tries}</h3>
        {request.tries.length === 0 ? (
          <p class="muted">{t.requests.noTries}</p>
        ) : (
          <ol>
            {request.tries.map(({ status, reason, ms }, index) => (
              <li key={index}>{[status, reason, `${ms} ms`].filter((part) => part !== null).join(" · ")}</li>
            ))}
          </ol>
        )}
        <p class="hint">{t.requests.again}</p>
        <div class="row end">
          <CopyButton text={request.id} />
          <Button kind="primary" onClick={onClose}>
            {t.common.close}
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
