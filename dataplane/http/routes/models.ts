/** `GET /v1/models` and `/v1/models/{id}`. Source: service.md "Model", dialects.md §A4, §A6. */
import type { FastifyRequest } from "fastify";
import { isPersonId } from "../../billing/scopes.ts";
import { findRoute, isLimitedToModels, modelNotFound } from "../../config/find-route.ts";
import type { Route } from "../../config/schema.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import { messagesEfforts } from "../../dialects/effort.ts";
import { toolCapabilities } from "../../tools/capabilities.ts";
import { isoSeconds } from "../../lib/unix-time.ts";
import type { ErrorFamily } from "../../dialects/errors.ts";
import { AnswerTurns, listWaiting, withoutReading } from "../answer-turns.ts";
import { familyOf } from "../error-style.ts";
import { readListQuery, type Query, USUAL_LIMIT } from "../list-query.ts";
import { callerOf, type Routes } from "../route.ts";
import { ModelLists } from "./model-lists.ts";
import { pricingOf } from "./pricing.ts";

/** The OpenAI SDK never asks for a second page of models, so that without a limit it gets all of them. */
const DEFAULT_LIMIT = { messages: USUAL_LIMIT, openai: Infinity } as const;

export const modelRoutes: Routes = (app, services) => {
  const lists = new ModelLists(entry);
  const turns = new AnswerTurns(withoutReading(), listWaiting(services.preflight));
  const list = turns.json((request) => {
    const family = familyOf(request);
    const query = readListQuery(request.query as Query);
    const at = { snapshot: services.snapshot(), now: services.clock.now() };
    return lists.page(family, callerOf(request), at, query, DEFAULT_LIMIT[family]);
  });
  /**
   * Looks a person up again, before the turn, whose limits may hide models: what is remembered of people may be half a minute
   * old, and that of keys is not (rule 9.3).
   */
  const preHandler = async (request: FastifyRequest): Promise<void> => {
    const caller = callerOf(request);
    if (isPersonId(caller.keyId) && isLimitedToModels(caller))
      request.caller = (await services.directory.findAgain(caller)) ?? caller;
  };
  app.get("/v1/models", { config: { access: "inference" }, preHandler }, list);

  // A wildcard, because ids of models may hold slashes.
  app.get<{ Params: { "*": string } }>(
    "/v1/models/*",
    { config: { access: "inference" }, preHandler },
    async (request) => {
      const snapshot = services.snapshot();
      const model = request.params["*"];
      const route = findRoute(snapshot, callerOf(request), model);
      if (route === undefined) throw modelNotFound(model);
      return entry(familyOf(request), route, snapshot, services.clock.now());
    },
  );
};

function entry(
  family: ErrorFamily,
  route: Route,
  snapshot: Snapshot,
  now: number,
): Record<string, unknown> & { id: string } {
  const capabilities = capabilitiesOf(route, snapshot);
  const pricing = pricingOf(route.prices, now);
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
      pricing,
    };
  }
  return {
    type: "model",
    id: route.model,
    display_name: route.displayName,
    created_at: isoSeconds(route.createdAt * 1000),
    lifecycle: "active",
    line: null,
    deprecated_at: null,
    retires_at: null,
    ...limits,
    capabilities,
    pricing,
  };
}

const supported = (value: boolean) => ({ supported: value });

const everyOne = (names: readonly string[], value: boolean) =>
  Object.fromEntries(names.map((name) => [name, supported(value)]));

/** The flags of service.md "Model", and all that the official type names, as far as the route decides them. */
function capabilitiesOf(route: Route, snapshot: Snapshot): Record<string, unknown> {
  const { toolCalling, imageInput, pdfInput, thinking, documentCitations } = route.capabilities;
  const tools = toolCapabilities(route, snapshot.policy(route));
  // What only Messages can hold reaches the model only where each upstream speaks Messages.
  const staysMessages = route.upstreams.every(({ dialect }) => dialect === "messages");
  return {
    ...Object.fromEntries(Object.entries(tools).map(([name, may]) => [name, supported(may)])),
    code_execution: false,
    skills: false,
    batch: supported(true),
    citations: supported(documentCitations),
    context_management: {
      ...supported(staysMessages),
      ...everyOne(["clear_thinking_20251015", "clear_tool_uses_20250919", "compact_20260112"], staysMessages),
    },
    effort: { ...supported(thinking), ...everyOne(messagesEfforts, thinking) },
    image_input: supported(imageInput),
    pdf_input: supported(pdfInput),
    server_tools: {
      ...supported(Object.values(tools).includes(true)),
      web_search: supported(tools.web_search),
      code_execution: supported(false),
    },
    structured_outputs: supported(true),
    thinking: {
      ...supported(thinking),
      types: {
        ...everyOne(["adaptive", "disabled", "enabled"], thinking),
        between_tools: supported(thinking && staysMessages),
      },
    },
    tool_calling: supported(toolCalling),
  };
}
