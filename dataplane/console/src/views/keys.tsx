/** Keys, people and projects: who may call. */
import { useState } from "preact/hooks";
import type { ApiKey, Project, User } from "../api/schema.ts";
import { momentOf } from "../lib/days.ts";
import { useFilters } from "../lib/filters.ts";
import { useLoad } from "../lib/load.ts";
import { forgetNames, namesOf, readKeys, readPeople, readProjects } from "../lib/organization.ts";
import { useStore } from "../lib/store.ts";
import { Badge, Button, CopyButton, Empty, Field, Moment, Section } from "../parts/basics.tsx";
import { Choice, IdChoice } from "../parts/choice.tsx";
import { LimitsShown } from "../parts/limits.tsx";
import { Table, type Column } from "../parts/table.tsx";
import { place } from "../router.ts";
import { session } from "../session.ts";
import { formatCount, useTexts } from "../texts/texts.ts";
import type { Texts } from "../texts/en.ts";
import { KeyDialog, type Asked } from "./key-dialogs.tsx";

interface Loaded {
  readonly keys: readonly ApiKey[];
  readonly people: readonly User[];
  readonly projects: readonly Project[];
}

/** Whether the signed-in person or key may change keys and limits. */
const useChanges = () => useStore(session)?.readsOnly === false;

export default function Keys() {
  const t = useTexts();
  const mayChange = useChanges();
  const { query } = useStore(place);
  const filtered = useFilters();
  const [asked, setAsked] = useState<Asked | null>(null);
  const loaded = useLoad<Loaded>(async (signal, show) => {
    forgetNames();
    const projects = await readProjects(signal);
    const [keys, people] = await Promise.all([
      readKeys(signal, (some) => show({ keys: some, people: [], projects })),
      readPeople(signal),
    ]);
    return { keys, people, projects };
  }, []);
  return (
    <>
      <div class="row between">
        <p class="muted">
          {t.keys.intro} {!mayChange && t.keys.readsOnly}
        </p>
        {mayChange && (
          <Button kind="primary" onClick={() => setAsked({ kind: "create" })}>
            {t.keys.create}
          </Button>
        )}
      </div>
      <Section loaded={loaded}>
        {({ keys, people, projects }) => (
          <>
            <div class="filters">
              <Field label={t.common.search} type="search" {...filtered("search")} />
              <Choice
                label={t.common.status}
                {...filtered("status")}
                choices={[
                  ["", t.common.all],
                  ["active", t.keys.statuses.active],
                  ["inactive", t.keys.statuses.inactive],
                  ["expired", t.keys.statuses.expired],
                  ["archived", t.keys.statuses.archived],
                ]}
              />
              <IdChoice label={t.keys.project} things={projects} {...filtered("project")} />
            </div>
            <KeyTable
              keys={keys.filter((key) => matches(key, query, projects))}
              isFiltered={["search", "status", "project"].some((name) => query.has(name))}
              projects={projects}
              onAsk={setAsked}
            />
            {people.length > 0 && (
              <>
                <h2>{t.people.list}</h2>
                <p class="muted">{t.people.intro}</p>
                <PeopleTable
                  people={people.filter(
                    ({ id, name, project_id: project }) =>
                      isOf(project, query) && isFound([id, name ?? ""], query),
                  )}
                  projects={projects}
                />
              </>
            )}
            <h2>{t.keys.projects}</h2>
            <ProjectTable
              projects={projects.filter(({ id, name }) => isOf(id, query) && isFound([id, name], query))}
              keys={keys}
              onAsk={setAsked}
            />
          </>
        )}
      </Section>
      {asked !== null && (
        <KeyDialog
          asked={asked}
          projects={(loaded.value?.projects ?? []).filter(({ status }) => status === "active")}
          onClose={() => setAsked(null)}
          onChanged={loaded.again}
        />
      )}
    </>
  );
}

/** Returns the state that decides whether calls with a key are refused: more than its own status may do so. */
function stateOf(key: ApiKey, projects: readonly Project[]): keyof Texts["keys"]["statuses"] {
  const { status, expires_at: expiry, workspace_id: project } = key;
  if (status === "inactive") return status;
  if (expiry !== null && momentOf(expiry) <= Date.now()) return "expired";
  return projects.some((one) => one.id === project && one.status === "archived") ? "archived" : status;
}

/** Whether the filter for a project leaves what belongs to this one. */
const isOf = (project: string | null, query: URLSearchParams): boolean =>
  (query.get("project") ?? project) === project;

/** Whether one of the texts holds what is searched for. */
function isFound(texts: readonly string[], query: URLSearchParams): boolean {
  const search = (query.get("search") ?? "").trim().toLowerCase();
  return texts.some((text) => text.toLowerCase().includes(search));
}

function matches(key: ApiKey, query: URLSearchParams, projects: readonly Project[]): boolean {
  const state = stateOf(key, projects);
  return (
    (query.get("status") ?? state) === state &&
    isOf(key.workspace_id, query) &&
    isFound([key.name, key.id, key.partial_key_hint], query)
  );
}

interface KeyTableProps {
  readonly keys: readonly ApiKey[];
  readonly isFiltered: boolean;
  readonly projects: readonly Project[];
  readonly onAsk: (asked: Asked) => void;
}

function KeyTable({ keys, isFiltered, projects, onAsk }: KeyTableProps) {
  const t = useTexts();
  if (keys.length === 0) return <Empty title={isFiltered ? t.keys.noMatch : t.keys.noKeys} />;
  const projectName = namesOf(projects);
  const columns: Column<ApiKey>[] = [
    {
      title: t.keys.name,
      heads: true,
      cell: (key) => (
        <>
          {key.name}
          <span class="second">
            <code>{key.partial_key_hint}</code>
          </span>
          <span class="second">{key.id}</span>
        </>
      ),
    },
    { title: t.keys.project, long: true, cell: (key) => projectName(key.workspace_id) },
    { title: t.common.status, cell: (key) => <KeyState state={stateOf(key, projects)} t={t} /> },
    {
      title: t.limits.name,
      cell: ({ limits, standing }) => <LimitsShown limits={limits} standing={standing} of="key" />,
    },
    {
      title: t.keys.lastUsed,
      cell: (key) => (
        <>
          {key.last_used_at === null ? t.common.never : <Moment at={key.last_used_at} />}
          <span class="second">
            {t.keys.created} <Moment at={key.created_at} />
          </span>
          {key.expires_at !== null && (
            <span class="second">
              {t.keys.expires} <Moment at={key.expires_at} />
            </span>
          )}
        </>
      ),
    },
    { title: t.common.actions, cell: (key) => <KeyActions apiKey={key} onAsk={onAsk} /> },
  ];
  return <Table name={t.keys.list} columns={columns} rows={keys} id={({ id }) => id} />;
}

function KeyState({ state, t }: { state: ReturnType<typeof stateOf>; t: Texts }) {
  return <Badge kind={state === "active" ? "good" : "calm"}>{t.keys.statuses[state]}</Badge>;
}

function KeyActions({ apiKey, onAsk }: { apiKey: ApiKey; onAsk: (asked: Asked) => void }) {
  const t = useTexts();
  const mayChange = useChanges();
  // A declared key changes only by its resource; one that was removed there can still be deleted here.
  if (apiKey.declared_in !== null && apiKey.status === "active")
    return <span class="second">{t.keys.declared(apiKey.declared_in)}</span>;
  if (!mayChange) return <>–</>;
  const ask = (kind: Exclude<Asked["kind"], "create" | "limits">) => () => onAsk({ kind, apiKey });
  return (
    <span class="actions">
      {apiKey.declared_in === null && (
        <>
          <Button kind="quiet" onClick={ask("rename")}>
            {t.keys.rename}
          </Button>
          <Button kind="quiet" onClick={() => onAsk({ kind: "limits", of: apiKey })}>
            {t.limits.name}
          </Button>
          {apiKey.status === "active" ? (
            <Button kind="quiet" onClick={ask("deactivate")}>
              {t.keys.deactivate}
            </Button>
          ) : (
            <Button kind="quiet" onClick={ask("activate")}>
              {t.keys.activate}
            </Button>
          )}
        </>
      )}
      <Button kind="quiet" onClick={ask("delete")}>
        {t.common.delete}
      </Button>
    </span>
  );
}

/** Names of roles in resources and in the rules for tokens. */
const roles = { member: "Member", viewer: "Viewer", admin: "Admin" } as const;

function PeopleTable({ people, projects }: { people: readonly User[]; projects: readonly Project[] }) {
  const t = useTexts();
  if (people.length === 0) return <Empty title={t.people.noMatch} />;
  const projectName = namesOf(projects);
  const columns: Column<User>[] = [
    {
      title: t.keys.name,
      heads: true,
      cell: ({ id, name }) => (
        <>
          {name ?? t.people.nameless}
          <span class="second">{id}</span>
        </>
      ),
    },
    { title: t.people.role, cell: ({ role }) => roles[role] },
    {
      title: t.keys.project,
      long: true,
      cell: ({ project_id: id }) => (id === null ? "–" : projectName(id)),
    },
    {
      title: t.limits.name,
      cell: ({ limits, standing }) => <LimitsShown limits={limits} standing={standing} of="key" />,
    },
    {
      title: t.keys.lastUsed,
      cell: ({ last_used_at: at, added_at: added }) => (
        <>
          {at === null ? t.common.never : <Moment at={at} />}
          <span class="second">
            {t.people.added} <Moment at={added} />
          </span>
        </>
      ),
    },
  ];
  return <Table name={t.people.list} columns={columns} rows={people} id={({ id }) => id} />;
}

interface ProjectTableProps {
  readonly projects: readonly Project[];
  readonly keys: readonly ApiKey[];
  readonly onAsk: (asked: Asked) => void;
}

function ProjectTable({ projects, keys, onAsk }: ProjectTableProps) {
  const t = useTexts();
  const mayChange = useChanges();
  if (projects.length === 0) return <Empty title={t.keys.noProject} />;
  const counts = new Map<string, number>();
  for (const { workspace_id: id } of keys) counts.set(id, (counts.get(id) ?? 0) + 1);
  const columns: Column<Project>[] = [
    { title: t.keys.name, heads: true, cell: ({ name }) => name },
    {
      title: t.keys.id,
      cell: ({ id }) => (
        <>
          <code>{id}</code> <CopyButton text={id} />
        </>
      ),
    },
    {
      title: t.common.status,
      cell: ({ status }) => (
        <Badge kind={status === "active" ? "good" : "calm"}>{t.keys.projectStatuses[status]}</Badge>
      ),
    },
    { title: t.keys.list, numeric: true, cell: ({ id }) => formatCount(counts.get(id) ?? 0, t) },
    {
      title: t.limits.name,
      cell: ({ limits, standing }) => <LimitsShown limits={limits} standing={standing} of="project" />,
    },
    { title: t.keys.created, cell: (project) => <Moment at={project.created_at} /> },
    {
      title: t.common.actions,
      cell: (project) =>
        project.limits_declared_in !== null ? (
          <span class="second">{t.keys.limitsDeclared(project.limits_declared_in)}</span>
        ) : mayChange ? (
          <span class="actions">
            <Button kind="quiet" onClick={() => onAsk({ kind: "limits", of: project })}>
              {t.limits.name}
            </Button>
          </span>
        ) : (
          "–"
        ),
    },
  ];
  return <Table name={t.keys.projects} columns={columns} rows={projects} id={({ id }) => id} />;
}
