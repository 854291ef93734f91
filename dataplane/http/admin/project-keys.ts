/**
 * `/v1/organization/projects/{project}/api_keys`: an organization's keys in the OpenAI family's form.
 * Source: service.md "Project API key", rules 5.1–5.8, dialects.md §A4, §A9, §G.
 */
import type { ApiKey } from "../../identity/keys.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import { ApiError } from "../../lib/api-error.ts";
import { unixSeconds } from "../../lib/unix-time.ts";
import { declaredIn, keyNotFound, requireDone } from "../key-outcomes.ts";
import { listEnvelope, MAX_LIMIT, readFilteredList, type Query } from "../list-query.ts";
import { longPage } from "../long-page.ts";
import { callerOf, type Routes } from "../route.ts";
import { actorOf } from "./actor.ts";
import { readKeyChange, readNewKey } from "./key-bodies.ts";
import { limitsObject, showKeys } from "./limits.ts";
import type { AdminNeeds } from "./organization-keys.ts";
import { pageByIds, pathId, readChoice } from "./parameters.ts";
import { type OfProject, projectOf } from "./projects.ts";

interface OfKey {
  Params: { project: string; id: string };
}

export const projectKeyRoutes =
  ({ pool, reads, turns, keys, holds }: AdminNeeds): Routes =>
  (app, services) => {
    const access = { config: { access: "admin" } } as const;
    const path = "/v1/organization/projects/:project/api_keys";
    const { shown, shownOne } = showKeys({ pool, holds }, (key, organizationId) =>
      projectKeyObject(key, organizationId, services.snapshot()),
    );

    const listKeys = turns.json<OfProject>(async (request, there) => {
      const asked = request.query as Query;
      const query = readFilteredList(asked, MAX_LIMIT, ["owner_project_access"]);
      const owners = readChoice(asked, "owner_project_access", ["active", "inactive", "any"]);
      const { organizationId } = callerOf(request);
      const from = await reads.of(organizationId);
      const project = await projectOf(from, organizationId, request.params.project);
      const filter = {
        organizationId,
        projectId: project.id,
        status: null,
        workspaceId: null,
        createdBy: null,
      };
      const page = await pageByIds(query, (page) =>
        longPage(
          page,
          (part) => keys.list({ ...filter, ...part }, from),
          (some) => shown(organizationId, some, from),
          there,
        ),
      );
      // Every owner has access (`projectKeyObject`).
      return owners === "inactive" ? listEnvelope([], false) : page;
    });
    app.get<OfProject>(path, access, listKeys);

    app.post<OfProject>(path, access, async (request) => {
      const asked = await readNewKey(request, services.clock.now());
      const actor = actorOf(request);
      const project = await projectOf(pool, actor.organizationId, request.params.project);
      if (project.archivedAt !== null) {
        throw new ApiError("invalid_request", "This project is archived: no key can be made for it.");
      }
      const { key, secret } = await keys.create(actor, project.id, asked);
      return { ...(await shownOne(actor.organizationId, key)), value: secret };
    });

    app.get<OfKey>(`${path}/:id`, access, async (request) => {
      const { organizationId } = callerOf(request);
      const from = await reads.of(organizationId);
      const project = await projectOf(from, organizationId, request.params.project);
      const id = pathId(request.params.id);
      const key = id === null ? null : await keys.get({ organizationId, projectId: project.id }, id, from);
      if (key === null) throw keyNotFound();
      return shownOne(organizationId, key, from);
    });

    app.post<OfKey>(`${path}/:id`, access, async (request) => {
      const change = await readKeyChange(request, services.clock.now());
      const actor = actorOf(request);
      const { organizationId } = actor;
      const project = await projectOf(pool, organizationId, request.params.project);
      const id = pathId(request.params.id);
      if (id === null) throw keyNotFound();
      const outcome = await keys.update(actor, { organizationId, projectId: project.id }, id, change);
      return shownOne(organizationId, requireDone(outcome, organizationId, services.snapshot()));
    });

    app.delete<OfKey>(`${path}/:id`, access, async (request) => {
      const actor = actorOf(request);
      const { organizationId } = actor;
      const project = await projectOf(pool, organizationId, request.params.project);
      const id = pathId(request.params.id);
      if (id === null) throw keyNotFound();
      const outcome = await keys.delete(actor, { organizationId, projectId: project.id }, id);
      requireDone(outcome, organizationId, services.snapshot());
      return { object: "organization.project.api_key.deleted", id, deleted: true };
    });
  };

function projectKeyObject(key: ApiKey, organizationId: string, snapshot: Snapshot) {
  return {
    object: "organization.project.api_key",
    id: key.id,
    name: key.name,
    redacted_value: key.hint,
    created_at: unixSeconds(key.createdAt),
    last_used_at: key.lastUsedAt === null ? null : unixSeconds(key.lastUsedAt),
    declared_in: declaredIn(key, organizationId, snapshot),
    expires_at: key.expiresAt === null ? null : unixSeconds(key.expiresAt),
    limits: limitsObject(key.limits),
    owner: { type: "user" },
    owner_project_access: "active",
  };
}
