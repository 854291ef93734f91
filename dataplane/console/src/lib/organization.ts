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

/** Names by id; an id that is not there any more stands for itself. */
export const namesOf = (things: readonly { readonly id: string; readonly name: string }[]) => {
  const names = new Map(things.map(({ id, name }) => [id, name]));
  return (id: string): string => names.get(id) ?? id;
};
