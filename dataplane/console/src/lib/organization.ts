/** What several views need of the organization: its keys and projects, by id. */
import { useMemo } from "preact/hooks";
import { everyPage } from "../api/client.ts";
import type { ApiKey, Project } from "../api/schema.ts";
import { admin, session, type Session } from "../session.ts";
import { useLoad } from "./load.ts";

/** As many as an organization may have. */
const MOST_KEYS = 10_000;
const PAGE_KEYS = 1000;
/** Names seldom change; ten thousand keys are not read again for each view. */
const NAMES_MS = 30_000;

/** @param show is told of the first keys while the others are on their way. */
export const readKeys = (
  signal: AbortSignal | null,
  show?: (some: readonly ApiKey[]) => void,
): Promise<readonly ApiKey[]> =>
  everyPage(
    MOST_KEYS,
    (after) =>
      admin("GET /v1/organizations/api_keys", {
        query: { limit: PAGE_KEYS, ...(after === undefined ? {} : { after }) },
        ...(signal === null ? {} : { signal }),
      }),
    show,
  );

export const readProjects = async (signal: AbortSignal | null): Promise<readonly Project[]> => {
  const query = { include_archived: true };
  const options = signal === null ? { query } : { query, signal };
  return (await admin("GET /v1/organization/projects", options)).data;
};

interface Members {
  readonly keys: readonly ApiKey[];
  readonly projects: readonly Project[];
}
interface Known {
  readonly of: Session | null;
  readonly at: number;
  readonly members: Promise<Members>;
}
let known: Known | null = null;

/** Keys and projects are read again for the next view that names them. */
export function forgetNames(): void {
  known = null;
}

function members(): Promise<Members> {
  const isFresh = known !== null && known.of === session.value && Date.now() - known.at < NAMES_MS;
  if (known !== null && isFresh) return known.members;
  const read = Promise.all([readKeys(null), readProjects(null)]).then(([keys, projects]) => ({
    keys,
    projects,
  }));
  // What failed is asked for again.
  read.catch(forgetNames);
  known = { of: session.value, at: Date.now(), members: read };
  return read;
}

const nobody: Members = { keys: [], projects: [] };

export type Names = ReturnType<typeof useNames>;
/** Keys and projects for filters and names. While they are on their way, an id stands for itself. */
export function useNames() {
  const { value, busy } = useLoad(members, []);
  const { keys, projects } = value ?? nobody;
  const keyName = useMemo(() => namesOf(keys), [keys]);
  const projectName = useMemo(() => namesOf(projects), [projects]);
  return { keys, projects, keyName, projectName, busy };
}

/** Names by id, no two alike: those that share one have their ids beside it. An id that is not there any more stands for itself. */
export const namesOf = (things: readonly { readonly id: string; readonly name: string }[]) => {
  const times = new Map<string, number>();
  for (const { name } of things) times.set(name, (times.get(name) ?? 0) + 1);
  const names = new Map(things.map(({ id, name }) => [id, times.get(name) === 1 ? name : `${name} (${id})`]));
  return (id: string): string => names.get(id) ?? id;
};
