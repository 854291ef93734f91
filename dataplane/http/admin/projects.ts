/**
 * `/v1/organization/projects`: an organization's projects and their limits.
 * Source: service.md "Project", rules 5.1, 5.6, 5.7, dialects.md §A4, §A9, §G.
 */
import type { CommonQueryMethods, DatabasePool } from "slonik";
import type { Holds } from "../../billing/holds/holds.ts";
import { findProject, readProjectIds, readProjects, type Project } from "../../identity/projects.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import type { Reads } from "../../store/reads.ts";
import { ApiError } from "../../lib/api-error.ts";
import { unixSeconds } from "../../lib/unix-time.ts";
import { projectNotFound, resourceOf } from "../key-outcomes.ts";
import { MAX_LIMIT, pageIn, readFilteredList, readListPage, type Query } from "../list-query.ts";
import { longPage } from "../long-page.ts";
import { callerOf, type Routes } from "../route.ts";
import { changeProjectLimits, type ProjectLimitsNeeds } from "../../identity/project-limits.ts";
import { actorOf } from "./actor.ts";
import type { AnswerTurns } from "../answer-turns.ts";
import { readFields } from "./bodies.ts";
import { limitsObject, readLimits, standingsOfProjects } from "./limits.ts";
import { pathId, readChoice } from "./parameters.ts";

export interface ProjectNeeds {
  readonly pool: DatabasePool;
  readonly reads: Reads;
  readonly turns: AnswerTurns;
  readonly holds: Pick<Holds, "standing" | "refresh">;
  readonly directory: ProjectLimitsNeeds["directory"];
}

export interface OfProject {
  Params: { project: string };
}

/** @throws ApiError 404, the same for a foreign and an unknown project. */
export async function projectOf(
  from: CommonQueryMethods,
  organizationId: string,
  text: string,
): Promise<Project> {
  const id = pathId(text);
  const project = id === null ? null : await findProject(from, organizationId, id);
  if (project === null) throw projectNotFound();
  return project;
}

export const projectRoutes =
  ({ pool, reads, turns, holds, directory }: ProjectNeeds): Routes =>
  (app, services) => {
    const access = { config: { access: "admin" } } as const;
    const shown = async (organizationId: string, projects: readonly Project[]) => {
      const standings = await standingsOfProjects(holds, organizationId, projects);
      const snapshot = services.snapshot();
      return (project: Project) => ({
        ...projectObject(project, organizationId, snapshot),
        standing: standings(project.id),
      });
    };

    const listProjects = turns.json(async (request, there) => {
      const asked = request.query as Query;
      const query = readFilteredList(asked, MAX_LIMIT, ["include_archived"]);
      const archivedToo = readChoice(asked, "include_archived", ["true", "false"]) === "true";
      const { organizationId } = callerOf(request);
      const from = await reads.of(organizationId);
      const ids = await readProjectIds(from, organizationId, archivedToo);
      // Up to `MAX_LIMIT` unless a limit is asked for: the contract's list has no pages.
      return await readListPage({ ...query, limit: query.limit ?? MAX_LIMIT }, (page) =>
        longPage(
          page,
          async (part) => {
            const some = pageIn(ids, part);
            if (some === null) return null;
            const read = await readProjects(
              from,
              some.data.map(({ id }) => id),
              part,
            );
            return { ...read, hasMore: read.hasMore || some.hasMore };
          },
          (some) => shown(organizationId, some),
          there,
        ),
      );
    });
    app.get("/v1/organization/projects", access, listProjects);

    app.post<OfProject>("/v1/organization/projects/:project", access, async (request) => {
      const change = readLimits((await readFields(request, ["limits"])).limits);
      const actor = actorOf(request);
      const { organizationId } = actor;
      const project = await projectOf(pool, organizationId, request.params.project);
      if (project.archivedAt !== null)
        throw new ApiError("invalid_request", "This project is archived: it cannot be changed.");
      if (change !== undefined) await reads.changing(organizationId);
      const changed =
        change === undefined
          ? project
          : await changeProjectLimits(pool, { directory, holds }, actor, project.id, change);
      if (changed === null) throw projectNotFound();
      if (changed === "declared")
        throw new ApiError(
          "invalid_request",
          `The limits of this project are declared in the Organization resource ${resourceOf(organizationId, services.snapshot())}; they can be changed only there.`,
        );
      return (await shown(organizationId, [changed]))(changed);
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
