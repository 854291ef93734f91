/**
 * `/v1/organization/projects` and their keys, and `/v1/organization/credits`: the second dialect's face of an
 * organization. Source: service.md "Project", "Project API key", rules 5.1–5.8, 5.18, dialects.md §A4, §A9, §G.
 */
import type { CommonQueryMethods, DatabasePool } from "slonik";
import { creditsText } from "../../billing/credits.ts";
import { readGrants } from "../../billing/grants.ts";
import type { Holds } from "../../billing/holds.ts";
import type { ApiKey, Keys } from "../../identity/keys.ts";
import { findProject, readProjects, type Project } from "../../identity/projects.ts";
import { storageOf, type StorageLimits } from "../../files/storage.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import type { Reads } from "../../store/reads.ts";
import { ApiError } from "../../lib/api-error.ts";
import { isoSeconds, unixSeconds } from "../../lib/unix-time.ts";
import { declaredIn, keyNotFound, projectNotFound, resourceOf, requireDone } from "../key-outcomes.ts";
import {
  listEnvelope,
  MAX_LIMIT,
  pageOf,
  readFilteredList,
  unknownCursor,
  type Query,
  USUAL_LIMIT,
} from "../list-query.ts";
import { callerOf, type Routes } from "../route.ts";
import { changeProjectLimits } from "../../identity/project-limits.ts";
import { actorOf } from "./actor.ts";
import type { AnswerTurns } from "./answer-turns.ts";
import { readFields } from "./bodies.ts";
import { readKeyChange, readNewKey } from "./key-bodies.ts";
import { limitsObject, readLimits, showKeys, standingsOfProjects } from "./limits.ts";
import { pathId, readChoice } from "./parameters.ts";

export interface ProjectNeeds {
  readonly pool: DatabasePool;
  readonly reads: Reads;
  readonly turns: AnswerTurns;
  readonly keys: Keys;
  readonly holds: Pick<Holds, "standing" | "refresh">;
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
  ({ pool, reads, turns, keys, holds, limitsOf }: ProjectNeeds): Routes =>
  (app, services) => {
    const access = { config: { access: "admin" } } as const;
    const { shown, shownOne } = showKeys({ pool, holds }, (key, organizationId) =>
      projectKeyObject(key, organizationId, services.snapshot()),
    );
    const projectKeys = "/v1/organization/projects/:project/api_keys";

    /** @throws ApiError 404, the same for a foreign and an unknown project. */
    const projectOf = async (
      organizationId: string,
      text: string,
      from: CommonQueryMethods = pool,
    ): Promise<Project> => {
      const id = pathId(text);
      const project = id === null ? null : await findProject(from, organizationId, id);
      if (project === null) throw projectNotFound();
      return project;
    };

    app.get("/v1/organization/credits", access, async (request) => {
      const { organizationId } = callerOf(request);
      const { granted, used, held, available } = await holds.standing.credit(organizationId);
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

    const listProjects = turns.json(async (request) => {
      const asked = request.query as Query;
      const query = readFilteredList(asked, MAX_LIMIT, ["include_archived"]);
      const archivedToo = readChoice(asked, "include_archived", ["true", "false"]) === "true";
      const { organizationId } = callerOf(request);
      const projects = await readProjects(await reads.of(organizationId), organizationId);
      const listed = projects.filter(({ archivedAt }) => archivedToo || archivedAt === null);
      // All of them unless a limit is asked for: the contract's list has no pages.
      const { data, hasMore } = pageOf(listed, query, MAX_LIMIT);
      const standings = await standingsOfProjects(holds, organizationId, data);
      const objects = data.map((project, index) => ({
        ...projectObject(project, organizationId, services.snapshot()),
        standing: standings[index] ?? [],
      }));
      return listEnvelope(objects, hasMore);
    });
    app.get("/v1/organization/projects", access, listProjects);

    app.post<OfProject>("/v1/organization/projects/:project", access, async (request) => {
      const change = readLimits((await readFields(request, ["limits"])).limits);
      const actor = actorOf(request);
      const { organizationId } = actor;
      const project = await projectOf(organizationId, request.params.project);
      if (project.archivedAt !== null)
        throw new ApiError("invalid_request", "This project is archived: it cannot be changed.");
      if (change !== undefined) await reads.changing(organizationId);
      const changed =
        change === undefined ? project : await changeProjectLimits(pool, holds, actor, project.id, change);
      if (changed === null) throw projectNotFound();
      if (changed === "declared")
        throw new ApiError(
          "invalid_request",
          `The limits of this project are declared in the Organization resource ${resourceOf(organizationId, services.snapshot())}; they can be changed only there.`,
        );
      const [standing = []] = await standingsOfProjects(holds, organizationId, [changed]);
      return { ...projectObject(changed, organizationId, services.snapshot()), standing };
    });

    const listKeys = turns.json<OfProject>(async (request) => {
      const asked = request.query as Query;
      const query = readFilteredList(asked, MAX_LIMIT, ["owner_project_access"]);
      const owners = readChoice(asked, "owner_project_access", ["active", "inactive", "any"]);
      const { organizationId } = callerOf(request);
      const from = await reads.of(organizationId);
      const project = await projectOf(organizationId, request.params.project, from);
      const { cursor } = query;
      if (cursor !== null && pathId(cursor.id) === null) throw unknownCursor(cursor.parameter);
      const page = await keys.list(
        {
          organizationId,
          projectId: project.id,
          status: null,
          workspaceId: null,
          createdBy: null,
          limit: query.limit ?? USUAL_LIMIT,
          order: query.order,
          cursor,
        },
        from,
      );
      if (page === null) throw unknownCursor(cursor?.parameter ?? "after");
      // Every owner has access (`projectKeyObject`).
      if (owners === "inactive") return listEnvelope([], false);
      return listEnvelope(await shown(organizationId, page.keys, from), page.hasMore);
    });
    app.get<OfProject>(projectKeys, access, listKeys);

    app.post<OfProject>(projectKeys, access, async (request) => {
      const asked = await readNewKey(request, services.clock.now());
      const actor = actorOf(request);
      const project = await projectOf(actor.organizationId, request.params.project);
      if (project.archivedAt !== null) {
        throw new ApiError("invalid_request", "This project is archived: no key can be made for it.");
      }
      const { key, secret } = await keys.create(actor, project.id, asked);
      return { ...(await shownOne(actor.organizationId, key)), value: secret };
    });

    app.get<OfKey>(`${projectKeys}/:id`, access, async (request) => {
      const { organizationId } = callerOf(request);
      const from = await reads.of(organizationId);
      const project = await projectOf(organizationId, request.params.project, from);
      const id = pathId(request.params.id);
      const key = id === null ? null : await keys.get({ organizationId, projectId: project.id }, id, from);
      if (key === null) throw keyNotFound();
      return shownOne(organizationId, key, from);
    });

    app.post<OfKey>(`${projectKeys}/:id`, access, async (request) => {
      const change = await readKeyChange(request, services.clock.now());
      const actor = actorOf(request);
      const { organizationId } = actor;
      const project = await projectOf(organizationId, request.params.project);
      const id = pathId(request.params.id);
      if (id === null) throw keyNotFound();
      const outcome = await keys.update(actor, { organizationId, projectId: project.id }, id, change);
      return shownOne(organizationId, requireDone(outcome, organizationId, services.snapshot()));
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

function projectObject(project: Project, organizationId: string, snapshot: Snapshot) {
  return {
    id: project.id,
    object: "organization.project",
    name: project.name,
    created_at: unixSeconds(project.createdAt),
    archived_at: project.archivedAt === null ? null : unixSeconds(project.archivedAt),
    status: project.archivedAt !== null ? "archived" : "active",
    limits: limitsObject(project.limits),
    limits_declared_in: project.limitsDeclared
      ? `Organization ${resourceOf(organizationId, snapshot)}`
      : null,
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
    limits: limitsObject(key.limits),
    owner: { type: "user" },
    owner_project_access: "active",
  };
}
