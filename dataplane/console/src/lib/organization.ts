/** Names that several views need: the organization's keys, people and projects, by id. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { everyPage } from "../api/client.ts";
import type { ApiKey, Project, User } from "../api/schema.ts";
import { admin, session, type Session } from "../session.ts";
import { useTexts } from "../texts/texts.ts";
import { useLoad } from "./load.ts";

/** The most keys, people or projects that an organization may have. */
const MOST = 10_000;
/** How long names are reused: they seldom change, and ten thousand keys are not to be read again for each view. */
const NAMES_MS = 30_000;

/** @param show called with the keys so far while the others are still being read. */
export const readKeys = (
  signal: AbortSignal | null,
  show?: (some: readonly ApiKey[]) => void,
): Promise<readonly ApiKey[]> =>
  everyPage(MOST, (query) => admin("GET /v1/organizations/api_keys", { query, signal }), show);

/** Reads the people, who signed in with tokens. */
export const readPeople = (signal: AbortSignal | null): Promise<readonly User[]> =>
  everyPage(MOST, (query) => admin("GET /v1/organization/users", { query, signal }));

export const readProjects = (signal: AbortSignal | null): Promise<readonly Project[]> =>
  everyPage(MOST, (query) =>
    admin("GET /v1/organization/projects", { query: { ...query, include_archived: true }, signal }),
  );

interface Named {
  readonly id: string;
  readonly name: string;
}
interface Members {
  /** Keys, then people. */
  readonly callers: readonly Named[];
  readonly projects: readonly Project[];
  /** Ids that were met before these were read. */
  readonly met: ReadonlySet<string>;
}
interface Known {
  readonly of: Session | null;
  readonly at: number;
  readonly met: ReadonlySet<string>;
  readonly members: Promise<Members>;
}
let known: Known | null = null;

/** Lets the next view that needs names read them again. */
export function forgetNames(): void {
  known = null;
}

/** Reads them, or returns what was read shortly before, if nothing was met since then. */
function members(unnamed: ReadonlySet<string>): Promise<Members> {
  const isFresh = known !== null && known.of === session.value && Date.now() - known.at < NAMES_MS;
  if (known !== null && isFresh && isWithin(unnamed, known.met)) return known.members;
  const met = new Set(unnamed);
  const read = Promise.all([readKeys(null), readPeople(null), readProjects(null)]).then(
    ([keys, people, projects]) => ({
      callers: [...keys, ...people.map(({ id, name }) => ({ id, name: name ?? id }))],
      projects,
      met,
    }),
  );
  // After a failure the next view reads them again.
  read.catch(forgetNames);
  known = { of: session.value, at: Date.now(), met, members: read };
  return read;
}

const isWithin = (some: ReadonlySet<string>, all: ReadonlySet<string>): boolean =>
  Array.from(some).every((one) => all.has(one));

const nobody: Members = { callers: [], projects: [], met: new Set() };
const isKey = (id: string): boolean => id.startsWith("apikey_");

export type Names = ReturnType<typeof useNames>;
/**
 * Returns keys, people and projects for filters and names. While they are being read, an id is its own name. For a key that has
 * none they are read once more, as it may have been made since; if it still has none, it was deleted.
 */
export function useNames() {
  const t = useTexts();
  /** Keys without a name; those that names are being read for, or were. */
  const unnamed = useRef(new Set<string>());
  const sought = useRef(new Set<string>());
  const [, setMet] = useState(0);
  const { value, busy, again } = useLoad(() => members(unnamed.current), []);
  useEffect(() => {
    if (busy || isWithin(unnamed.current, sought.current)) return;
    sought.current = new Set(unnamed.current);
    again();
  });
  const { callers: all, projects, met } = value ?? nobody;
  const names = useMemo(() => namesById(all), [all]);
  const keyName = (id: string): string => {
    const name = names.get(id);
    if (name !== undefined || !isKey(id)) return name ?? id;
    if (!unnamed.current.has(id)) {
      unnamed.current.add(id);
      // A table may come to it on a page of its own, without this view being drawn anew.
      queueMicrotask(() => setMet((before) => before + 1));
    }
    return met.has(id) ? t.keys.deleted(id) : id;
  };
  // A filter shows the same distinct names as every other place.
  const callers = useMemo(() => all.map(({ id }) => ({ id, name: names.get(id) ?? id })), [all, names]);
  const projectName = useMemo(() => namesOf(projects), [projects]);
  return { callers, projects, keyName, projectName, busy };
}

/** Returns names by id, no two alike: equal ones get their ids added. An id that does not exist any more is its own name. */
export const namesOf = (things: readonly Named[]) => {
  const names = namesById(things);
  return (id: string): string => names.get(id) ?? id;
};

function namesById(things: readonly Named[]): ReadonlyMap<string, string> {
  const times = new Map<string, number>();
  for (const { name } of things) times.set(name, (times.get(name) ?? 0) + 1);
  return new Map(things.map(({ id, name }) => [id, times.get(name) === 1 ? name : `${name} (${id})`]));
}
