/** Names that several views need: the organization's keys, people and projects, by id. */
import { useMemo } from "preact/hooks";
import { everyPage } from "../api/client.ts";
import type { ApiKey, Project, User } from "../api/schema.ts";
import { admin, session, type Session } from "../session.ts";
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
}
interface Known {
  readonly of: Session | null;
  readonly at: number;
  readonly members: Promise<Members>;
}
let known: Known | null = null;

/** Lets the next view that needs names read them again. */
export function forgetNames(): void {
  known = null;
}

function members(): Promise<Members> {
  const isFresh = known !== null && known.of === session.value && Date.now() - known.at < NAMES_MS;
  if (known !== null && isFresh) return known.members;
  const read = Promise.all([readKeys(null), readPeople(null), readProjects(null)]).then(
    ([keys, people, projects]) => ({
      callers: [...keys, ...people.map(({ id, name }) => ({ id, name: name ?? id }))],
      projects,
    }),
  );
  // After a failure the next view reads them again.
  read.catch(forgetNames);
  known = { of: session.value, at: Date.now(), members: read };
  return read;
}

const nobody: Members = { callers: [], projects: [] };

export type Names = ReturnType<typeof useNames>;
/** Returns keys, people and projects for filters and names. While they are being read, an id is its own name. */
export function useNames() {
  const { value, busy } = useLoad(members, []);
  const { callers: all, projects } = value ?? nobody;
  const keyName = useMemo(() => namesOf(all), [all]);
  // A filter shows the same distinct names as every other place.
  const callers = useMemo(() => all.map(({ id }) => ({ id, name: keyName(id) })), [all, keyName]);
  const projectName = useMemo(() => namesOf(projects), [projects]);
  return { callers, projects, keyName, projectName, busy };
}

/** Returns names by id, no two alike: equal ones get their ids added. An id that does not exist any more is its own name. */
export const namesOf = (things: readonly Named[]) => {
  const times = new Map<string, number>();
  for (const { name } of things) times.set(name, (times.get(name) ?? 0) + 1);
  const names = new Map(things.map(({ id, name }) => [id, times.get(name) === 1 ? name : `${name} (${id})`]));
  return (id: string): string => names.get(id) ?? id;
};
