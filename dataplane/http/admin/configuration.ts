/**
 * `GET /v1/organization/configuration` (rule 11.7): which objects an organization lives under, in which generation they are
 * served, and whether it is the newest. Upstreams and credentials belong to the platform: their names are not shown.
 */
import { allowedRoutes } from "../../config/find-route.ts";
import type { ConfigStatus, Source } from "../../config/schema.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import { AnswerTurns, withoutReading } from "../answer-turns.ts";
import { listEnvelope, MAX_LIMIT, pageOf, readFilteredList, type Query } from "../list-query.ts";
import { callerOf, type Routes } from "../route.ts";

/** What the data plane serves of each object, as `/config/status` reports it to the operator. */
type Acknowledged = (objects: readonly Source[]) => ConfigStatus["objects"];

export const configurationRoutes =
  (acknowledged: Acknowledged): Routes =>
  (app, services) => {
    const turns = new AnswerTurns(withoutReading());
    const list = turns.json((request) => {
      const query = readFilteredList(request.query as Query, MAX_LIMIT, []);
      const snapshot = services.snapshot();
      const objects = configurationOf(snapshot, callerOf(request).organizationId, acknowledged);
      // All of it unless a limit is asked for: the console shows it whole.
      const { data, hasMore } = pageOf(objects, query, Infinity);
      return listEnvelope(data, hasMore);
    });
    app.get("/v1/organization/configuration", { config: { access: "admin" } }, list);
  };

/** The organization itself first, then its models, tools and prices, each by name. */
export function configurationOf(snapshot: Snapshot, organizationId: string, acknowledged: Acknowledged) {
  const routes = allowedRoutes(snapshot, { organizationId, limits: [] });
  const policies = routes.flatMap((route) => snapshot.policy(route)?.source ?? []);
  // Only the price tables of these routes: others of a shared namespace may name other organizations.
  const tables = routes.map(({ prices }) => prices.source);
  const own = snapshot.organization(organizationId)?.source;
  // A table may serve routes in several generations; the newest is shown.
  const served = [...routes.map(({ source }) => source), ...policies, ...tables].toSorted((one, other) =>
    idOf(one) === idOf(other) ? other.generation - one.generation : idOf(one) < idOf(other) ? -1 : 1,
  );
  const newest = new Map(acknowledged(snapshot.routing.objects).map((object) => [object.uid, object]));
  const seen = new Set<string>();
  return [...(own === undefined ? [] : [own]), ...served].flatMap((source) => {
    if (seen.has(source.uid)) return [];
    seen.add(source.uid);
    const { kind, namespace, name, generation } = source;
    return [
      {
        id: idOf(source),
        object: "organization.configuration",
        kind,
        namespace,
        name,
        generation,
        conditions: [conditionOf(newest.get(source.uid))],
      },
    ];
  });
}

const idOf = ({ kind, namespace, name }: Source): string => `${kind}/${namespace}/${name}`;

/** The condition of the resource that is about this data plane. */
function conditionOf(object: ConfigStatus["objects"][number] | undefined) {
  const type = "Programmed";
  if (object === undefined) {
    return {
      type,
      status: "False",
      reason: "Pending",
      message: "A newer generation is not served yet, or was refused; the object's own status says which.",
    };
  }
  const notes = object.notes.map(({ path, reason }) => `${path}: ${reason}`);
  return {
    type,
    status: "True",
    reason: "Programmed",
    message:
      notes.length === 0 ? "This generation is served." : `This generation is served. ${notes.join("; ")}`,
  };
}
