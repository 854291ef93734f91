/** `GET /v1/models` and `/v1/models/{id}`. Source: service.md "Model", dialects.md §A4, §A6. */
import type { FastifyRequest } from "fastify";
import { allowedRoutes, findRoute } from "../../config/find-route.ts";
import type { Route } from "../../config/schema.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import { ApiError } from "../../lib/api-error.ts";
import { toolCapabilities } from "../../tools/capabilities.ts";
import { listFamily } from "../error-style.ts";
import { listEnvelope, pageOf, readListQuery, type Query } from "../list-query.ts";
import { callerOf, type Routes } from "../route.ts";

/** The OpenAI SDK never asks for a second page of models, so that without a limit it gets all of them. */
const DEFAULT_LIMIT = { messages: 20, openai: Infinity } as const;

export const modelRoutes: Routes = (app, services) => {
  app.get("/v1/models", { config: { access: "inference" } }, async (request) => {
    const snapshot = services.snapshot();
    const family = familyOf(request);
    const routes = allowedRoutes(snapshot, callerOf(request).organizationId);
    const query = readListQuery(request.query as Query);
    const ids = routes.map((route) => ({ id: route.model, route }));
    const { data, hasMore } = pageOf(ids, query, DEFAULT_LIMIT[family]);
    return listEnvelope(
      data.map(({ route }) => entry(family, route, snapshot)),
      hasMore,
    );
  });

  // A wildcard, because ids of models may hold slashes.
  app.get<{ Params: { "*": string } }>(
    "/v1/models/*",
    { config: { access: "inference" } },
    async (request) => {
      const snapshot = services.snapshot();
      const model = request.params["*"];
      const route = findRoute(snapshot, callerOf(request).organizationId, model);
      if (route === undefined) throw modelNotFound(model);
      return entry(familyOf(request), route, snapshot);
    },
  );
};

/** The words that Claude Code knows. */
export const modelNotFound = (model: string): ApiError =>
  new ApiError("model_not_found", `model: ${model.slice(0, 200)}`, { param: "model" });

function familyOf(request: FastifyRequest): "messages" | "openai" {
  const version = request.headers["anthropic-version"];
  return listFamily(typeof version === "string" ? version : undefined);
}

function entry(
  family: "messages" | "openai",
  route: Route,
  snapshot: Snapshot,
): Record<string, unknown> & { id: string } {
  const capabilities = capabilitiesOf(route, snapshot);
  const limits = { max_input_tokens: route.limits.contextTokens, max_tokens: route.limits.maxOutputTokens };
  if (family === "openai") {
    return {
      id: route.model,
      object: "model",
      created: route.createdAt,
      owned_by: route.ownedBy,
      shutdown_date: null,
      display_name: route.displayName,
      ...limits,
      capabilities,
    };
  }
  return {
    type: "model",
    id: route.model,
    display_name: route.displayName,
    created_at: `${new Date(route.createdAt * 1000).toISOString().slice(0, 19)}Z`,
    lifecycle: "active",
    line: null,
    deprecated_at: null,
    retires_at: null,
    ...limits,
    capabilities,
  };
}

const supported = (value: boolean) => ({ supported: value });

/** The flags of service.md "Model", and the official ones that the route can answer for. */
function capabilitiesOf(route: Route, snapshot: Snapshot): Record<string, unknown> {
  const { toolCalling, imageInput, pdfInput, thinking, documentCitations } = route.capabilities;
  const tools = toolCapabilities(route, snapshot.policy(route));
  return {
    ...Object.fromEntries(Object.entries(tools).map(([name, may]) => [name, supported(may)])),
    code_execution: false,
    skills: false,
    batch: supported(true),
    citations: supported(documentCitations),
    image_input: supported(imageInput),
    pdf_input: supported(pdfInput),
    thinking: supported(thinking),
    tool_calling: supported(toolCalling),
  };
}
