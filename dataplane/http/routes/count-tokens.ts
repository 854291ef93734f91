/** `POST /v1/messages/count_tokens`: free, with or without credit (spec; rules 1.17, 2.18). */
import type { FastifyReply, FastifyRequest } from "fastify";
import { findRoute } from "../../config/find-route.ts";
import type { Route } from "../../config/schema.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import { ApiError } from "../../lib/api-error.ts";
import { readJsonObject, type JsonObjectRead } from "../../lib/json-read.ts";
import { JsonReader } from "../../lib/json-reader.ts";
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
      const body = readJsonObject(bytes);
      const model = modelOf(body);
      requireMessages(body);
      const snapshot = services.snapshot();
      const route = findRoute(snapshot, callerOf(request).organizationId, model);
      if (route === undefined) throw modelNotFound(model);
      request.record.model = route.model;
      const counted = mayLeave(body) ? await askUpstream(ask, route, snapshot, bytes, request, reply) : null;
      return { input_tokens: counted ?? (await countTokens(body)) };
    });
  };

async function askUpstream(
  ask: CountUpstream,
  route: Route,
  snapshot: Snapshot,
  bytes: Buffer,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<number | null> {
  if (!route.capabilities.countTokens) return null;
  const [upstream] = route.upstreams
    .filter(({ countTokensUrl, weight }) => countTokensUrl !== null && weight > 0)
    .sort((one, other) => one.priority - other.priority);
  if (upstream === undefined) return null;
  const gone = new AbortController();
  reply.raw.once("close", () => gone.abort());
  const { "anthropic-version": version, "anthropic-beta": beta } = request.headers;
  return ask({
    upstream,
    credential: upstream.credential === null ? undefined : snapshot.credential(upstream.credential.id),
    body: forUpstream(bytes, upstream.model),
    headers: {
      "anthropic-version": typeof version === "string" ? version : DEFAULT_VERSION,
      ...(typeof beta === "string" ? { "anthropic-beta": beta } : {}),
    },
    signal: gone.signal,
  });
}

/** The client's bytes with the upstream's name of the model, and never a thinking budget (spec, `POST /v1/messages`). */
function forUpstream(bytes: Buffer, model: string): Buffer {
  const edits: Edit[] = [];
  JsonReader.whole(bytes, (reader) => {
    const { members } = reader.members();
    for (const member of members) {
      if (member.key === "model") edits.push(replaceValue(member, JSON.stringify(model)));
      if (member.key !== "thinking" || member.kind !== "object") continue;
      const thinking = JSON.parse(bytes.toString("utf8", member.start, member.end)) as { type?: unknown };
      if (thinking.type === "enabled") edits.push(replaceValue(member, '{"type":"adaptive"}'));
    }
  });
  return splice(bytes, edits);
}

function modelOf(body: JsonObjectRead): string {
  const model = body["model"] ?? undefined;
  if (model === undefined || model === "") {
    throw new ApiError("missing_parameter", "model: Field required", { param: "model" });
  }
  if (typeof model !== "string") {
    throw new ApiError("invalid_type", "model: Input should be a valid string", { param: "model" });
  }
  return model;
}

function requireMessages(body: JsonObjectRead): void {
  const messages = body["messages"] ?? undefined;
  const param = "messages";
  if (messages === undefined) throw new ApiError("missing_parameter", "messages: Field required", { param });
  if (!Array.isArray(messages)) {
    throw new ApiError("invalid_type", "messages: Input should be a valid array", { param });
  }
  if (messages.length === 0) {
    throw new ApiError("invalid_value", "messages: at least one message is required", { param });
  }
}

const ownFields = ["container", "mcp_servers", "thread", "file_id", "encrypted_content", "encrypted_index"];

/**
 * False for a request with anything that no upstream may see: ids of our own files, sealed results of our tools,
 * stateful fields, server tools (rules 2.10, 3.3, 3.4). Such a one is counted here.
 */
function mayLeave(value: unknown): boolean {
  if (Array.isArray(value)) return value.every(mayLeave);
  if (typeof value !== "object" || value === null) return true;
  return Object.entries(value).every(([key, inner]) => {
    if (ownFields.includes(key)) return inner === null;
    if (key === "tools" && Array.isArray(inner)) return inner.every(isClientTool);
    // The input of a tool is the client's own affair, whatever its fields are called.
    return key === "input" || key === "input_schema" || mayLeave(inner);
  });
}

const isClientTool = (tool: unknown): boolean => {
  const type: unknown = typeof tool === "object" && tool !== null ? Reflect.get(tool, "type") : undefined;
  return type === undefined || type === null || type === "custom";
};
