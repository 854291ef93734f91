/** `POST /v1/messages/count_tokens`: free, with or without credit (spec; rules 1.17, 2.18). */
import type { FastifyRequest } from "fastify";
import { findRoute } from "../../config/find-route.ts";
import type { Route } from "../../config/schema.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import { mayLeave } from "../../inference/choose-path.ts";
import { parsedBody } from "../../inference/conversion.ts";
import { look, type Look } from "../../inference/look.ts";
import { replaceValue, splice, type Edit } from "../../lib/json-splice.ts";
import { countTokens } from "../../tokens/count.ts";
import type { CountUpstream } from "../../upstream/count-tokens.ts";
import { limits } from "../limits.ts";
import { readBody, requireJsonType } from "../request-body.ts";
import { callerOf, type Routes } from "../route.ts";
import { modelNotFound } from "./models.ts";

const DEFAULT_VERSION = "2023-06-01";

export const countTokensRoutes =
  (ask: CountUpstream): Routes =>
  (app, services) => {
    const config = { access: "inference", countsText: true } as const;
    app.post("/v1/messages/count_tokens", { config }, async (request, reply) => {
      requireJsonType(request.raw);
      const bytes = await readBody(request, limits.inferenceBodyBytes);
      await services.preflight?.text(callerOf(request), bytes.length);
      const seen = look("messages", bytes);
      const snapshot = services.snapshot();
      const route = findRoute(snapshot, callerOf(request).organizationId, seen.model);
      if (route === undefined) throw modelNotFound(seen.model);
      request.record.model = route.model;
      const gone = new AbortController();
      reply.raw.once("close", () => gone.abort());
      const { signal } = gone;
      // What no upstream may see is counted here (rules 2.10, 3.3, 3.4).
      const counted = mayLeave(seen)
        ? await askUpstream(ask, route, snapshot, seen, request.headers, signal)
        : null;
      const { organizationId } = callerOf(request);
      return { input_tokens: counted ?? (await countTokens(parsedBody(seen), organizationId, signal)) };
    });
  };

async function askUpstream(
  ask: CountUpstream,
  route: Route,
  snapshot: Snapshot,
  seen: Look,
  headers: FastifyRequest["headers"],
  signal: AbortSignal,
): Promise<number | null> {
  if (!route.capabilities.countTokens) return null;
  const [upstream] = route.upstreams
    .filter(({ countTokensUrl, weight }) => countTokensUrl !== null && weight > 0)
    .sort((one, other) => one.priority - other.priority);
  if (upstream === undefined) return null;
  const { "anthropic-version": version, "anthropic-beta": beta } = headers;
  return ask({
    upstream,
    credential: upstream.credential === null ? undefined : snapshot.credential(upstream.credential.id),
    body: forUpstream(seen, upstream.model),
    headers: {
      "anthropic-version": typeof version === "string" ? version : DEFAULT_VERSION,
      ...(typeof beta === "string" ? { "anthropic-beta": beta } : {}),
    },
    signal,
  });
}

/** The client's bytes with the upstream's name of the model, and never a thinking budget (spec, `POST /v1/messages`). */
function forUpstream({ body, fields, objects }: Look, model: string): Buffer {
  const named = fields.get("model");
  const edits: Edit[] = named === undefined ? [] : [replaceValue(named, JSON.stringify(model))];
  const thinking = objects.get("thinking");
  const type = thinking?.members.find(({ key }) => key === "type");
  const isEnabled =
    type !== undefined && JSON.parse(body.toString("utf8", type.start, type.end)) === "enabled";
  if (thinking !== undefined && isEnabled) edits.push(replaceValue(thinking, '{"type":"adaptive"}'));
  return splice(body, edits);
}
