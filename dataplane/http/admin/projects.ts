/**
 * `/v1/organization/projects` and their keys, and `/v1/organization/credits`: the second dialect's face of an
 * organization. Source: service.md "Project", "Project API key", rules 5.1–5.8, 5.18, dialects.md §A4, §A9, §G.
 */
import type { DatabasePool } from "slonik";
import { creditsText } from "../../billing/credits.ts";
import { readGrants } from "../../billing/grants.ts";
import type { Holds } from "../../billing/holds.ts";
import type { ApiKey, Keys } from "../../identity/keys.ts";
import { findProject, readProjects, type Project } from "../../identity/projects.ts";
import { storageOf, type StorageLimits } from "../../files/storage.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import { ApiError } from "../../lib/api-error.ts";
import { listEnvelope, pageOf, readListQuery, unknownCursor, type Query } from "../list-query.ts";
import { callerOf, type Routes } from "../route.ts";
import {
  actorOf,
  declaredIn,
  isoSeconds,
  keyNotFound,
  pathId,
  projectNotFound,
  readChoice,
  readKeyChange,
  readNewKey,
  requireDone,
  unixSeconds,
} from "./requests.ts";

const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 10_000;

export interface ProjectNeeds {
  readonly pool: DatabasePool;
  readonly keys: Keys;
  readonly holds: Pick<Holds, "credit">;
  /** How much an organization may keep. */
  readonly limitsOf: (organizationId: string) => StorageLimits;
}

interface OfProject {
  Params: { project: string };
}
interface OfKey {
  Params: { project: string; id: string };
}

export const projectRoutes =
  ({ pool, keys, holds, limitsOf }: ProjectNeeds): Routes =>
  (app, services) => {
    const access = { config: { access: "admin" } } as const;
    const projectKeys = "/v1/organization/projects/:project/api_keys";

    /** @throws ApiError 404, the same for a foreign and an unknown project. */
    const projectOf = async (organizationId: string, text: string): Promise<Project> => {
      const id = pathId(text);
      const project = id === null ? null : await findProject(pool, organizationId, id);
      if (project === null) throw projectNotFound();
      return project;
    };

    app.get("/v1/organization/credits", access, async (request) => {
      const { organizationId } = callerOf(request);
      const { granted, used, held, available } = await holds.credit(organizationId);
      const stored = await storageOf(pool, organizationId);
      const { maxBytes, maxFiles } = limitsOf(organizationId);
      const grants = await readGrants(pool, organizationId);
      return {
        object: "organization.credits",
        granted: creditsText(granted),
        used: creditsText(used),
        held: creditsText(held),
        available: creditsText(available),
        storage: { bytes: stored.bytes, max_bytes: maxBytes, files: stored.files, max_files: maxFiles },
        grants: grants.map(({ name, amount, source, appliedAt }) => ({
          name,
          amount: creditsText(amount),
          granted_at: isoSeconds(appliedAt),
          source,
        })),
      };
    });

    app.get("/v1/organization/projects", access, async (request) => {
      const asked = request.query as Query;
      const query = readListQuery(asked, MAX_LIMIT);
      const archivedToo = readChoice(asked, "include_archived", ["true", "false"]) === "true";
      const projects = await readProjects(pool, callerOf(request).organizationId);
      const listed = projects.filter(({ archivedAt }) => archivedToo || archivedAt === null);
      // All of them unless a limit is asked for: the contract's list has no pages.
      const { data, hasMore } = pageOf(listed, query, MAX_LIMIT);
      return listEnvelope(data.map(projectObject), hasMore);
    });

    app.get<OfProject>(projectKeys, access, async (request) => {
      const query = readListQuery(request.query as Query, MAX_LIMIT);
      const { organizationId } = callerOf(request);
      const project = await projectOf(organizationId, request.params.project);
      const { cursor } = query;
      if (cursor !== null && pathId(cursor.id) === null) throw unknownCursor(cursor.parameter);
      const page = await keys.list({
        organizationId,
        projectId: project.id,
        status: null,
        workspaceId: null,
        createdBy: null,
        limit: query.limit ?? DEFAULT_LIMIT,
        order: query.order,
        cursor,
      });
      if (page === null) throw unknownCursor(cursor?.parameter ?? "after");
      const snapshot = services.snapshot();
      return listEnvelope(
        page.keys.map((key) => projectKeyObject(key, organizationId, snapshot)),
        page.hasMore,
      );
    });

    app.post<OfProject>(projectKeys, access, async (request) => {
      const asked = await readNewKey(request, services.clock.now());
      const actor = actorOf(request);
      const project = await projectOf(actor.organizationId, request.params.project);
      if (project.archivedAt !== null) {
        throw new ApiError("invalid_request", "This project is archived: no key can be made for it.");
      }
      const { key, secret } = await keys.create(actor, project.id, asked);
      return { ...projectKeyObject(key, actor.organizationId, services.snapshot()), value: secret };
    });

    app.get<OfKey>(`${projectKeys}/:id`, access, async (request) => {
      const { organizationId } = callerOf(request);
      const project = await projectOf(organizationId, request.params.project);
      const id = pathId(request.params.id);
      const key = id === null ? null : await keys.get({ organizationId, projectId: project.id }, id);
      if (key === null) throw keyNotFound();
      return projectKeyObject(key, organizationId, services.snapshot());
    });

    app.post<OfKey>(`${projectKeys}/:id`, access, async (request) => {
      const change = await readKeyChange(request, services.clock.now());
      const actor = actorOf(request);
      const { organizationId } = actor;
      const project = await projectOf(organizationId, request.params.project);
      const id = pathId(request.params.id);
      if (id === null) throw keyNotFound();
      const outcome = await keys.update(actor, { organizationId, projectId: project.id }, id, change);
      const snapshot = services.snapshot();
      return projectKeyObject(requireDone(outcome, organizationId, snapshot), organizationId, snapshot);
    });

    app.delete<OfKey>(`${projectKeys}/:id`, access, async (request) => {
      const actor = actorOf(request);
      const { organizationId } = actor;
      const project = await projectOf(organizationId, request.params.project);
      const id = pathId(request.params.id);
      if (id === null) throw keyNotFound();
      const outcome = await keys.delete(actor, { organizationId, projectId: project.id }, id);
      requireDone(outcome, organizationId, services.snapshot());
      return { object: "organization.project.api_key.deleted", id, deleted: true };
    });
  };

function projectObject(project: Project) {
  return {
    id: project.id,
    object: "organization.project",
    name: project.name,
    created_at: unixSeconds(project.createdAt),
    archived_at: project.archivedAt === null ? null : unixSeconds(project.archivedAt),
    status: project.archivedAt !== null ? "archived" : "active",
  };
}

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
    owner: { type: "user" },
    owner_project_access: "active",
  };
}
