/**
 * `POST /v1/messages/count_tokens`: free, with or without credit; it refuses what an inference would refuse (service.md
 * "Inference"; rules 1.17, 2.10, 2.11, 2.18).
 */
import type { FastifyRequest } from "fastify";
import { findRoute, modelNotFound } from "../../config/find-route.ts";
import type { Route } from "../../config/schema.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import type { Sealer } from "../../dialects/codecs.ts";
import { noTiers } from "../../dialects/tiers.ts";
import type { FileReader } from "../../files/file-store.ts";
import { choosePath, pathNeeds } from "../../inference/request/choose-path.ts";
import { conversionFacts } from "../../inference/request/conversion.ts";
import { conversationOf } from "../../inference/request/conversation-key.ts";
import { inlineFiles } from "../../inference/request/file-references.ts";
import { refuse } from "../../inference/request/refuse.ts";
import { openBody, type RequestBody } from "../../inference/request/request-body.ts";
import { Cancellation } from "../../lib/cancellation.ts";
import type { WorkerPool } from "../../lib/worker-pool.ts";
import type { CountUpstream } from "../../upstream/count-tokens.ts";
import type { Upstreams } from "../../upstream/upstreams.ts";
import { toldVersion } from "../../inference/request/outgoing-request.ts";
import { rememberRefused } from "../../inference/refused-call.ts";
import { limits } from "../limits.ts";
import { clientGone } from "../body-errors.ts";
import { readBody, requireJsonType } from "../request-body.ts";
import { callerOf, type HttpServices, type Routes } from "../route.ts";

export interface CountTokensNeeds {
  readonly ask: CountUpstream;
  /** Chooses the upstream that is asked. */
  readonly upstreams: Pick<Upstreams, "counting">;
  /** The threads that work on large bodies; null: the main thread does. */
  readonly pool: WorkerPool | null;
  readonly sealerOf: (organizationId: string) => Sealer;
  readonly files: FileReader;
}

export const countTokensRoutes =
  (needs: CountTokensNeeds): Routes =>
  (app, services) => {
    const config = { access: "inference", countsText: true } as const;
    app.post("/v1/messages/count_tokens", { config }, async (request, reply) => {
      requireJsonType(request.raw);
      const closed = new Cancellation();
      reply.raw.once("close", () => closed.abort());
      const bytes = await readBody(request, limits.inferenceBodyBytes);
      await services.preflight?.text(callerOf(request), bytes.length);
      try {
        return { input_tokens: await count(needs, services, request, bytes, closed) };
      } catch (error) {
        rememberRefused({ body: bytes, headers: {}, summary: request.summary });
        throw closed.aborted ? clientGone() : error;
      }
    });
  };

async function count(
  needs: CountTokensNeeds,
  services: HttpServices,
  request: FastifyRequest,
  bytes: Buffer,
  closed: Cancellation,
): Promise<number> {
  const { pool, sealerOf, files } = needs;
  const { organizationId } = callerOf(request);
  const opened = await openBody("messages", bytes, { pool, organizationId, closed });
  request.summary.askedModel = opened.inspected.model;
  const work = await withOwnFiles(opened, files, services, request);
  const { inspected } = work;
  refuse(inspected);
  const snapshot = services.snapshot();
  const route = findRoute(snapshot, callerOf(request), inspected.model);
  if (route === undefined) throw modelNotFound(inspected.model);
  request.summary.model = route.model;
  // Counted by an upstream only if it may see all of it (rules 3.3, 3.4).
  const sealer = sealerOf(organizationId);
  const found = pathNeeds(inspected);
  const counted =
    choosePath(found, "messages") === "relay"
      ? await askUpstream(needs, request, { work, sealer, route, snapshot, closed })
      : null;
  if (counted !== null) return counted;
  // Read as the request itself would be, so that what is refused there is refused here.
  if (route.upstreams.every(({ dialect }) => choosePath(found, dialect) !== "relay")) {
    const call = { dialect: "messages", id: request.id, acceptedAt: 0, headers: {} } as const;
    const facts = conversionFacts(call, inspected, route, noTiers);
    if (found.serverTools) await work.openLoop({ ...facts, mayOpen: false }, sealer, undefined);
    else await work.read(facts, sealer, undefined);
  }
  return work.countTokens();
}

/**
 * Puts the organization's files into the body; their bytes are budgeted as the body's own (rules 7.2, 7.7).
 * @throws ApiError 429, 503.
 */
function withOwnFiles(
  opened: RequestBody,
  files: FileReader,
  { preflight }: HttpServices,
  request: FastifyRequest,
): Promise<RequestBody> {
  const caller = callerOf(request);
  return inlineFiles(opened, caller.organizationId, files, async (bytes) => {
    request.bodyLease.take(bytes);
    await preflight?.text(caller, bytes);
  });
}

/** What an upstream is asked to count, and by whose configuration. */
interface Counting {
  readonly work: RequestBody;
  readonly sealer: Sealer;
  readonly route: Route;
  readonly snapshot: Snapshot;
  readonly closed: Cancellation;
}

/** Returns an upstream's count; null: none of the route's counts this request. */
async function askUpstream(
  { ask, upstreams }: CountTokensNeeds,
  request: FastifyRequest,
  { work, sealer, route, snapshot, closed }: Counting,
): Promise<number | null> {
  if (!route.capabilities.countTokens) return null;
  const { "anthropic-version": version, "anthropic-beta": beta, "x-session-id": session } = request.headers;
  const upstream = upstreams.counting(
    route,
    conversationOf(
      route,
      work.inspected,
      callerOf(request).organizationId,
      typeof session === "string" ? session : undefined,
    ),
  );
  if (upstream === undefined) return null;
  return ask({
    upstream,
    credential: upstream.credential === null ? undefined : snapshot.credential(upstream.credential.id),
    body: await work.forCount(route, upstream, sealer),
    headers: {
      "anthropic-version": toldVersion(version),
      ...(typeof beta === "string" && beta.trim() !== "" ? { "anthropic-beta": beta } : {}),
    },
    signal: closed.signal,
  });
}
