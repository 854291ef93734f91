/** `/v1/organization/users`: the people behind `usr_…` in reports, limits and the audit log (rule 13.2). */
import { findPerson, listPeople, type KnownPerson } from "../../identity/list-people.ts";
import type { Principal } from "../../identity/principal.ts";
import type { CommonQueryMethods } from "slonik";
import type { Reads } from "../../store/reads.ts";
import { ApiError } from "../../lib/api-error.ts";
import { unixSeconds } from "../../lib/unix-time.ts";
import { MAX_SHORT_LIMIT, readFilteredList, type Query } from "../list-query.ts";
import { longPage } from "../long-page.ts";
import { callerOf, type Routes } from "../route.ts";
import type { AnswerTurns } from "../answer-turns.ts";
import { limitsObject, standingsOfKeys, type StandingNeeds } from "./limits.ts";
import { pageByIds, pathId } from "./parameters.ts";

/** Stands for the caller's own id. */
const ME = "me";

export interface UserNeeds {
  readonly pool: CommonQueryMethods;
  readonly reads: Reads;
  readonly turns: AnswerTurns;
  readonly holds: StandingNeeds["holds"];
}

export const userRoutes =
  ({ pool: primary, reads, turns, holds }: UserNeeds): Routes =>
  (app) => {
    const access = { config: { access: "admin" } } as const;
    const shown = async (
      pool: CommonQueryMethods,
      organizationId: string,
      people: readonly KnownPerson[],
    ) => {
      const ids = people.map(({ id }) => id);
      const standings = await standingsOfKeys({ pool, holds }, organizationId, ids);
      return (person: KnownPerson) => ({ ...userObject(person), standing: standings(person.id) });
    };

    const list = turns.json(async (request, there) => {
      const { organizationId } = callerOf(request);
      const query = readFilteredList(request.query as Query, MAX_SHORT_LIMIT, []);
      const pool = await reads.of(organizationId);
      return await pageByIds(query, (page) =>
        longPage(
          page,
          (part) => listPeople(pool, organizationId, part),
          (some) => shown(pool, organizationId, some),
          there,
        ),
      );
    });
    app.get("/v1/organization/users", access, list);

    app.get<{ Params: { id: string } }>("/v1/organization/users/:id", access, async (request) => {
      const caller = callerOf(request);
      const { organizationId } = caller;
      const isMe = request.params.id === ME;
      const id = isMe ? caller.keyId : pathId(request.params.id);
      // A replica may not yet know a person who came just now.
      const pool = isMe ? primary : await reads.of(organizationId);
      const person = id === null ? null : await findPerson(pool, organizationId, id);
      if (person === null)
        throw new ApiError(
          "not_found",
          isMe ? "An admin key is nobody's; users came with a token." : "There is no such user.",
        );
      if (isMe) return { ...userObject(person), ...asTheyCame(caller) };
      return (await shown(pool, organizationId, [person]))(person);
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

/**
 * Role and project by the caller's token, not by one that came since. Admins and viewers infer nothing, so nothing limits them.
 */
const asTheyCame = ({ kind, projectId }: Principal) => ({
  role: roles[kind],
  project_id: projectId,
  limits: null,
  standing: [],
});
