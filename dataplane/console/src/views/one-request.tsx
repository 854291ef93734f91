/** One request at an address of its own: what happened, what it cost, how to repeat it. */
import type { Request } from "../api/schema.ts";
import { minute, momentOf } from "../lib/days.ts";
import { useLoad } from "../lib/load.ts";
import { useNames, type Names } from "../lib/organization.ts";
import { asCurl, dialects } from "../lib/playground.ts";
import { CopyButton, Section, ViewLink } from "../parts/basics.tsx";
import { milliseconds, Outcome } from "../parts/outcome.tsx";
import { Code } from "../parts/snippets.tsx";
import { place } from "../router.ts";
import { admin } from "../session.ts";
import { formatCount, formatCredits, useTexts } from "../texts/texts.ts";
import type { Texts } from "../texts/en.ts";

export const secondOf = ({ created_at: at }: Request): string =>
  `${minute(momentOf(at))}:${new Date(at * 1000).toISOString().slice(17, 19)}`;

export function OneRequest({ id }: { id: string }) {
  const t = useTexts();
  const { request: _, ...list } = Object.fromEntries(place.value.query);
  const names = useNames();
  const loaded = useLoad(
    (signal) => admin("GET /v1/organization/requests/{id}", { path: { id }, signal }),
    [id],
  );
  return (
    <>
      <p class="back">
        <ViewLink to="requests" query={list}>
          {t.overview.allRequests}
        </ViewLink>
      </p>
      <h2 class="row">
        <span>{id}</span> <CopyButton text={id} />
      </h2>
      <Section loaded={loaded} busy={names.busy}>
        {(request) => <What request={request} names={names} />}
      </Section>
    </>
  );
}

interface WhatProps {
  readonly request: Request;
  readonly names: Names;
}

function What({ request, names: { keyName, projectName } }: WhatProps) {
  const t = useTexts();
  const { api_key_id: key, project_id: project } = request;
  const facts: [string, string][] = [
    [t.requests.at, `${secondOf(request)} UTC`],
    [t.reports.groups.model, request.model ?? "–"],
    [t.reports.groups.api_key_id, key === null ? "–" : keyName(key)],
    [t.reports.groups.project_id, project === null ? "–" : projectName(project)],
    [t.requests.dialect, request.dialect ?? "–"],
    [t.requests.path, request.path === null ? "–" : t.requests.paths[request.path]],
    [t.requests.streamed, request.streamed ? t.common.yes : t.common.no],
    [t.requests.firstByte, milliseconds(request.first_byte_ms, t)],
    [t.requests.duration, milliseconds(request.duration_ms, t)],
    [t.usage.input, formatCount(request.input_tokens, t)],
    [t.usage.output, formatCount(request.output_tokens, t)],
    [t.costs.credits, formatCredits(request.credits, t)],
    [t.requests.toolCalls, formatCount(request.tool_calls, t)],
    ...(request.batch_id === null ? [] : [[t.reports.batch, request.batch_id] as [string, string]]),
    ...Object.entries(request.tags).map(([name, value]): [string, string] => [name, String(value)]),
  ];
  return (
    <>
      <div class="two">
        <div class="card">
          <dl class="facts">
            <dt>{t.common.status}</dt>
            <dd>
              <Outcome request={request} />
            </dd>
            {facts.map(([name, value]) => [<dt key={name}>{name}</dt>, <dd key={`${name}:`}>{value}</dd>])}
          </dl>
        </div>
        <div class="card stack">
          <h3>{t.requests.tries}</h3>
          {request.tries.length === 0 ? (
            <p class="muted">{t.requests.noTries}</p>
          ) : (
            <ol>
              {request.tries.map(({ status, reason, ms }, index) => (
                <li key={index}>
                  {[status, reason, milliseconds(ms, t)].filter((part) => part !== null).join(" · ")}
                  {reason !== null && <span class="second">{inWords(reason, t)}</span>}
                </li>
              ))}
            </ol>
          )}
        </div>
      </div>
      <Again request={request} />
    </>
  );
}

/** Explains the reason of a try; undefined for a reason of a newer service. */
const inWords = (reason: string, t: Texts): string | undefined =>
  (t.requests.reasons as Readonly<Record<string, string>>)[reason];

function Again({ request: { dialect, model } }: { request: Request }) {
  const t = useTexts();
  const known = dialects.find((one) => one === dialect);
  if (known === undefined || model === null) return null;
  const plain = {
    system: "",
    earlier: [],
    text: "…",
    images: [],
    webSearch: false,
    openPages: false,
    posts: false,
  };
  return (
    <>
      <h3>{t.requests.againTitle}</h3>
      <p class="hint">{t.requests.again}</p>
      <Code text={asCurl({ dialect: known, model, ...plain }, location.origin)} />
    </>
  );
}
