/** `/v1/organization/users`: the people behind `usr_…` in reports, limits and the audit log (rule 13.2). */
import { findPerson, listPeople, type KnownPerson } from "../../identity/list-people.ts";
import { ApiError } from "../../lib/api-error.ts";
import { listEnvelope, readListQuery, unknownCursor, type Query } from "../list-query.ts";
import { callerOf, type Routes } from "../route.ts";
import { limitsObject, standingsOfKeys, type StandingNeeds } from "./limits.ts";
import { pathId, unixSeconds } from "./requests.ts";

const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 1000;

export const userRoutes =
  (needs: StandingNeeds): Routes =>
  (app) => {
    const access = { config: { access: "admin" } } as const;
    const { pool } = needs;
    const shown = async (organizationId: string, people: readonly KnownPerson[]) => {
      const ids = people.map(({ id }) => id);
      const standings = await standingsOfKeys(needs, organizationId, ids);
      return people.map((person) => ({ ...userObject(person), standing: standings(person.id) }));
    };

    app.get("/v1/organization/users", access, async (request) => {
      const { organizationId } = callerOf(request);
      const { limit, order, cursor } = readListQuery(request.query as Query, MAX_LIMIT);
      if (cursor !== null && pathId(cursor.id) === null) throw unknownCursor(cursor.parameter);
      const page = await listPeople(pool, organizationId, { limit: limit ?? DEFAULT_LIMIT, order, cursor });
      if (page === null) throw unknownCursor(cursor?.parameter ?? "after");
      return listEnvelope(await shown(organizationId, page.items), page.hasMore);
    });

    app.get<{ Params: { id: string } }>("/v1/organization/users/:id", access, async (request) => {
      const { organizationId } = callerOf(request);
      const id = pathId(request.params.id);
      const person = id === null ? null : await findPerson(pool, organizationId, id);
      if (person === null) throw new ApiError("not_found", "There is no such user.");
      const [user] = await shown(organizationId, [person]);
      return user;
    });
  };

const roles = { inference: "member", viewer: "viewer", admin: "admin" } as const;

const userObject = ({ id, kind, name, projectId, createdAt, lastUsedAt, limits }: KnownPerson) => ({
  object: "organization.user",
  id,
  name: name === "" ? null : name,
  role: roles[kind],
  project_id: projectId,
  added_at: unixSeconds(createdAt),
  last_used_at: lastUsedAt === null ? null : unixSeconds(lastUsedAt),
  limits: limitsObject(limits),
});
