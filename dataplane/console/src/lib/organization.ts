/** What several views need of the organization: its keys and projects, by id. */
import { everyPage } from "../api/client.ts";
import type { ApiKey, Project } from "../api/schema.ts";
import { admin } from "../session.ts";

/** As many as an organization may have. */
const MOST_KEYS = 10_000;
const PAGE_KEYS = 1000;

export const readKeys = (signal: AbortSignal): Promise<ApiKey[]> =>
  everyPage(MOST_KEYS, (after) =>
    admin("GET /v1/organizations/api_keys", {
      query: { limit: PAGE_KEYS, ...(after === undefined ? {} : { after }) },
      signal,
    }),
  );

export const readProjects = async (signal: AbortSignal): Promise<readonly Project[]> =>
  (await admin("GET /v1/organization/projects", { query: { include_archived: true }, signal })).data;

/** Names by id, no two alike: those that share one have their ids beside it. An id that is not there any more stands for itself. */
export const namesOf = (things: readonly { readonly id: string; readonly name: string }[]) => {
  const times = new Map<string, number>();
  for (const { name } of things) times.set(name, (times.get(name) ?? 0) + 1);
  const names = new Map(things.map(({ id, name }) => [id, times.get(name) === 1 ? name : `${name} (${id})`]));
  return (id: string): string => names.get(id) ?? id;
};
