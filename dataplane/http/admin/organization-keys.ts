/**
 * `/v1/organizations/me` and `/v1/organizations/api_keys`: an organization and its keys in the Messages family's form.
 * Source: service.md "Organization", "API key", rules 5.1–5.8, dialects.md §A4, §A9, §G.
 */
import type { DatabasePool } from "slonik";
import { keyStatuses, type ApiKey, type Keys } from "../../identity/keys.ts";
import { findProject, projectIdOf, readOrganizationName } from "../../identity/projects.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import type { Reads } from "../../store/reads.ts";
import { declaredIn, keyNotFound, projectNotFound, requireDone } from "../key-outcomes.ts";
import { listEnvelope, MAX_SHORT_LIMIT, readFilteredList, withoutNulls, type Query } from "../list-query.ts";
import { longPage } from "../long-page.ts";
import { callerOf, type Routes } from "../route.ts";
import { actorOf } from "./actor.ts";
import type { AnswerTurns } from "../answer-turns.ts";
import { readKeyChange, readNewKey } from "./key-bodies.ts";
import { limitsObject, showKeys, type StandingNeeds } from "./limits.ts";
import { pageByIds, pathId, readChoice } from "./parameters.ts";
import { readGiven } from "../../lib/query.ts";
import { isoExact, isoSeconds } from "../../lib/unix-time.ts";

export interface AdminNeeds {
  readonly pool: DatabasePool;
  readonly keys: Keys;
  readonly holds: StandingNeeds["holds"];
  readonly reads: Reads;
  readonly turns: AnswerTurns;
}

/** All may be null in the types of official SDKs. */
const KEY_FILTERS = ["status", "workspace_id", "created_by_user_id"];

export const organizationKeyRoutes =
  ({ pool, keys, holds, reads, turns }: AdminNeeds): Routes =>
  (app, services) => {
    const access = { config: { access: "admin" } } as const;
    const { shown, shownOne } = showKeys({ pool, holds }, (key, organizationId) =>
      keyObject(key, organizationId, services.snapshot()),
    );

    app.get("/v1/organizations/me", access, async (request) => {
      const { organizationId } = callerOf(request);
      return {
        id: organizationId,
        type: "organization",
        name: await readOrganizationName(await reads.of(organizationId), organizationId),
      };
    });

    const list = turns.json(async (request, there) => {
      const asked = withoutNulls(request.query as Query, KEY_FILTERS);
      const query = readFilteredList(asked, MAX_SHORT_LIMIT, KEY_FILTERS);
      const workspaceId = readGiven(asked, "workspace_id");
      const createdBy = readGiven(asked, "created_by_user_id");
      const status = readChoice(asked, "status", keyStatuses);
      const { organizationId } = callerOf(request);
      const from = await reads.of(organizationId);
      return await pageByIds(query, async (page) => {
        // A value that cannot be an id matches nothing, and never reaches the database.
        if ([workspaceId, createdBy].some((id) => id !== null && pathId(id) === null))
          return listEnvelope([], false);
        const inWorkspace =
          workspaceId === null ? null : await projectIdOf(from, organizationId, workspaceId);
        const filter = { organizationId, projectId: null, status, workspaceId: inWorkspace, createdBy };
        return await longPage(
          page,
          (part) => keys.list({ ...filter, ...part }, from),
          (some) => shown(organizationId, some, from),
          there,
        );
      });
    });
    app.get("/v1/organizations/api_keys", access, list);

    app.post("/v1/organizations/api_keys", access, async (request) => {
      const asked = await readNewKey(request, services.clock.now());
      const actor = actorOf(request);
      const project = await findProject(pool, actor.organizationId, "default");
      if (project === null) throw projectNotFound();
      const { key, secret } = await keys.create(actor, project.id, asked);
      return { ...(await shownOne(actor.organizationId, key)), key: secret };
    });

    app.get<{ Params: { id: string } }>("/v1/organizations/api_keys/:id", access, async (request) => {
      const id = pathId(request.params.id);
      const { organizationId } = callerOf(request);
      const from = await reads.of(organizationId);
      const key = id === null ? null : await keys.get({ organizationId, projectId: null }, id, from);
      if (key === null) throw keyNotFound();
      return shownOne(organizationId, key, from);
    });

    app.post<{ Params: { id: string } }>("/v1/organizations/api_keys/:id", access, async (request) => {
      const change = await readKeyChange(request, services.clock.now());
      const id = pathId(request.params.id);
      if (id === null) throw keyNotFound();
      const actor = actorOf(request);
      const scope = { organizationId: actor.organizationId, projectId: null };
      const outcome = await keys.update(actor, scope, id, change);
      const key = requireDone(outcome, actor.organizationId, services.snapshot());
      return shownOne(actor.organizationId, key);
    });
  };

/** Both the older and the newest form of the object: `workspace_id` and `scope`. */
function keyObject(key: ApiKey, organizationId: string, snapshot: Snapshot) {
  return {
    id: key.id,
    type: "api_key",
    name: key.name,
    workspace_id: key.projectId,
    scope: { type: "workspace", workspace_id: key.projectId },
    created_at: isoSeconds(key.createdAt),
    created_by: { id: key.createdBy, type: "user" },
    partial_key_hint: key.hint,
    status: key.status,
    last_used_at: key.lastUsedAt === null ? null : isoSeconds(key.lastUsedAt),
    declared_in: declaredIn(key, organizationId, snapshot),
    expires_at: key.expiresAt === null ? null : isoExact(key.expiresAt),
    limits: limitsObject(key.limits),
    principal: null,
  };
}
