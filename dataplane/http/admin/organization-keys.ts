/**
 * `/v1/organizations/me` and `/v1/organizations/api_keys`: the first dialect's face of an organization and its keys.
 * Source: service.md "Organization", "API key", rules 5.1–5.8, dialects.md §A4, §A9, §G.
 */
import type { DatabasePool } from "slonik";
import type { ApiKey, KeyChange, Keys } from "../../identity/keys.ts";
import { findProject, readOrganizationName } from "../../identity/projects.ts";
import { ApiError } from "../../lib/api-error.ts";
import { listEnvelope, readListQuery, unknownCursor, type Query } from "../list-query.ts";
import { callerOf, type Routes } from "../route.ts";
import {
  actorOf,
  isoSeconds,
  keyNotFound,
  pathId,
  projectNotFound,
  readChoice,
  readFields,
  readName,
  readOne,
  requireDone,
} from "./requests.ts";

const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 1000;
const statuses = ["active", "inactive"] as const;

export interface AdminNeeds {
  readonly pool: DatabasePool;
  readonly keys: Keys;
}

export const organizationKeyRoutes =
  ({ pool, keys }: AdminNeeds): Routes =>
  (app, services) => {
    const access = { config: { access: "admin" } } as const;

    app.get("/v1/organizations/me", access, async (request) => {
      const { organizationId } = callerOf(request);
      return {
        id: organizationId,
        type: "organization",
        name: await readOrganizationName(pool, organizationId),
      };
    });

    app.get("/v1/organizations/api_keys", access, async (request) => {
      const asked = request.query as Query;
      const query = readListQuery(asked, MAX_LIMIT);
      const { cursor } = query;
      const workspaceId = readOne(asked, "workspace_id");
      const createdBy = readOne(asked, "created_by_user_id");
      if (cursor !== null && pathId(cursor.id) === null) throw unknownCursor(cursor.parameter);
      // What cannot be an id filters everything out, and never reaches the database.
      if ([workspaceId, createdBy].some((id) => id !== null && pathId(id) === null))
        return listEnvelope([], false);
      const status = readChoice(asked, "status", statuses);
      const page = await keys.list({
        organizationId: callerOf(request).organizationId,
        projectId: null,
        status,
        workspaceId,
        createdBy,
        limit: query.limit ?? DEFAULT_LIMIT,
        order: query.order,
        cursor,
      });
      if (page === null) throw unknownCursor(cursor?.parameter ?? "after");
      return listEnvelope(page.keys.map(keyObject), page.hasMore);
    });

    app.post("/v1/organizations/api_keys", access, async (request) => {
      const name = readName((await readFields(request))["name"]);
      const actor = actorOf(request);
      const project = await findProject(pool, actor.organizationId, "default");
      if (project === null) throw projectNotFound();
      const { key, secret } = await keys.create(actor, project.id, name);
      return { ...keyObject(key), key: secret };
    });

    app.get<{ Params: { id: string } }>("/v1/organizations/api_keys/:id", access, async (request) => {
      const id = pathId(request.params.id);
      const scope = { organizationId: callerOf(request).organizationId, projectId: null };
      const key = id === null ? null : await keys.get(scope, id);
      if (key === null) throw keyNotFound();
      return keyObject(key);
    });

    app.post<{ Params: { id: string } }>("/v1/organizations/api_keys/:id", access, async (request) => {
      const change = readChange(await readFields(request));
      const id = pathId(request.params.id);
      if (id === null) throw keyNotFound();
      const actor = actorOf(request);
      const outcome = await keys.update(actor, id, change);
      return keyObject(requireDone(outcome, actor.organizationId, services.snapshot()));
    });
  };

/** `{}` and nulls change nothing; one invalid field refuses all of it (rule 5.5). */
function readChange(fields: Readonly<Record<string, unknown>>): KeyChange {
  const { name, status } = fields;
  const known = statuses.find((one) => one === status);
  if (status !== undefined && status !== null && known === undefined) {
    throw new ApiError("invalid_value", "status must be active or inactive.", { param: "status" });
  }
  return {
    ...(name === undefined || name === null ? {} : { name: readName(name) }),
    ...(known === undefined ? {} : { status: known }),
  };
}

/** Both the older and the newest form of the object: `workspace_id` and `scope`. */
function keyObject(key: ApiKey) {
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
    expires_at: null,
    principal: null,
  };
}
