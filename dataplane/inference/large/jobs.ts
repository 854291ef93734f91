/**
 * What is done with a large body in another thread (docs/decisions/large-bodies.md). Each job is a function of plain
 * data: the body and what the request's route says; nothing is kept from one to the next. What comes back is small, or
 * bytes: receiving a large structure would hold the event loop as long as making it held the worker.
 */
import type { Route, Upstream } from "../../config/schema.ts";
import type { Carry, Sealer } from "../../dialects/codecs.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { allTools } from "../../dialects/instructions.ts";
import type { JsonObject } from "../../dialects/messages/types.ts";
import { ApiError } from "../../lib/api-error.ts";
import { bodyLimits } from "../../lib/body-limits.ts";
import { readJsonFields, type FieldsRead } from "../../lib/json-fields.ts";
import { packedBuffers, type Packed } from "../../lib/packed-map.ts";
import type { PackedContext } from "../../tools/web-fetch/prior-context.ts";
import type { NextCall } from "../../loop/next-request.ts";
import { sampledTexts, type SampledTexts } from "../../tokens/sample.ts";
import {
  type Conversion,
  contextOf,
  exactBody,
  parsedBody,
  plainConversion,
  type ConversionFacts,
  type Written,
} from "../request/conversion.ts";
import { beginning } from "../request/conversation-key.ts";
import { forCountUpstream } from "../request/count-body.ts";
import { relayBody, type RelayBody, type RelayWishes } from "../request/edits.ts";
import { putFiles, type InlineFile } from "../request/put-files.ts";
import { inspectBody, type EditPlaces, type RemoteInspection, type Inspection } from "../inspect/body.ts";
import {
  OpenLoop,
  type LoopBeginning,
  type LoopFacts,
  type LoopWishes,
  type LoopWritten,
} from "../with-tools/open-loop.ts";
import { judgedFields } from "../request/refuse.ts";
import { bodyWithoutReasoning } from "../upstream-refusals/rejected-reasoning.ts";

/** What of a route the edits of a relayed body need. */
export type RelayRoute = Pick<Route, "model" | "capabilities" | "limits">;

/** The part of a `Carry` that an answer is written with. */
export interface RemoteCarry extends Pick<Carry, "dialect" | "serverTools" | "stops" | "compacts"> {
  readonly aliases: ReadonlyMap<string, string>;
  readonly namespaces: Carry["namespaces"];
  /** JSON of the fields that answers repeat or are shaped by. */
  readonly echo: string;
}

/** Every job: what it is told beside the body, and what it answers. */
export interface Jobs {
  inspect: { told: { dialect: Dialect }; answer: RemoteInspection };
  relay: {
    told: { dialect: Dialect; route: RelayRoute; upstream: Upstream; wishes: RelayWishes };
    answer: RelayBody;
  };
  read: { told: ConversionFacts; answer: { carry: RemoteCarry; systemTurns: boolean } };
  convert: {
    told: ConversionFacts & { upstream: Upstream; encryptedReasoning: boolean; hoisted: boolean };
    answer: Written;
  };
  forget: { told: { dialect: Dialect }; answer: { body: Buffer | null } };
  openLoop: {
    told: LoopFacts;
    answer: { beginning: LoopBeginning; carry: RemoteCarry; sources: Packed; prior: PackedContext };
  };
  askLoop: {
    told: LoopFacts & { upstream: Upstream; next: NextCall; wishes: LoopWishes };
    answer: LoopWritten;
  };
  files: { told: { dialect: Dialect; files: readonly InlineFile[] }; answer: { body: Buffer } };
  forCount: { told: { upstream: Upstream }; answer: { body: Buffer } };
  texts: { told: null; answer: SampledTexts };
  fields: { told: { names: readonly string[] }; answer: FieldsRead };
}

export type JobName = keyof Jobs;
export type JobInput<Name extends JobName> = Jobs[Name]["told"];
export type Answer<Name extends JobName> = Jobs[Name]["answer"];

/** What a job runs with beside what it is told. */
interface JobContext {
  readonly body: Buffer;
  /** Of the organization whose request it is. */
  readonly sealer: Sealer;
}

type Run = { [Name in JobName]: (told: JobInput<Name>, context: JobContext) => Answer<Name> };

export const jobs: Run = {
  inspect: ({ dialect }, { body }) => farLook(inspectBody(dialect, body)),
  relay: ({ dialect, route, upstream, wishes }, { body, sealer }) =>
    relayBody(inspectBody(dialect, body), route, upstream, wishes, sealer),
  read: (facts, context) => {
    const { carry, request } = read(facts, context);
    const systemTurns = request.messages.some(({ role }) => role === "system");
    return { carry: remoteCarry(carry, allTools(request)), systemTurns };
  },
  convert: ({ upstream, encryptedReasoning, hoisted, ...facts }, context) => {
    const conversion = read(facts, context);
    if (hoisted) conversion.hoistSystemTurns();
    return conversion.write(upstream, encryptedReasoning);
  },
  forget: ({ dialect }, { body }) => ({ body: bodyWithoutReasoning(dialect, body) }),
  openLoop: (facts, context) => {
    const { beginning: begun, carry, sources, prior, tools } = openLoop(facts, context);
    return {
      beginning: begun,
      carry: remoteCarry(carry, tools),
      sources: sources.pack(),
      prior: prior.pack(),
    };
  },
  askLoop: ({ upstream, next, wishes, ...facts }, context) =>
    openLoop(facts, context).write(upstream, next, wishes),
  files: ({ dialect, files }, { body }) => ({ body: putFiles(inspectBody(dialect, body), files) }),
  forCount: ({ upstream }, { body, sealer }) => ({
    body: forCountUpstream(inspectBody("messages", body), upstream, sealer),
  }),
  texts: (_, { body }) => sampledTexts(parsedBody({ body, dialect: "messages" })),
  fields: ({ names }, { body }) => readJsonFields(body, names),
};

function read(facts: ConversionFacts, { body, sealer }: JobContext): Conversion {
  const context = contextOf(facts, sealer, undefined);
  return plainConversion(facts, context, { body, dialect: facts.dialect }, sealer);
}

const openLoop = (facts: LoopFacts, { body, sealer }: JobContext): OpenLoop =>
  new OpenLoop(facts, sealer, exactBody({ body, dialect: facts.dialect }));

/** Paths to fields are cut after so many steps. */
const MAX_STEPS = 12;

/** Up to this size a body is edited by whoever got its look: copying it takes about a millisecond. */
const EDITED_BY_RECEIVER_BYTES = 4 * 1024 * 1024;
/** So many places are told, and so much of `include`, which is parsed. */
const MAX_PLACES = 256;
const MAX_INCLUDE_BYTES = 16 * 1024;

/** Of most bodies: few fields, and no reasoning that has to be opened or cut out. */
function editPlaces({ body, top, objects, fields, tools, content }: Inspection): EditPlaces | null {
  const include = fields.get("include");
  const isLittle =
    body.length <= EDITED_BY_RECEIVER_BYTES &&
    content.reasoningBlobs.length + content.bareReasoning.length === 0 &&
    (include === undefined || include.end - include.start <= MAX_INCLUDE_BYTES) &&
    [top, ...objects.values()].reduce((sum, { members }) => sum + members.length, content.tools) <=
      MAX_PLACES;
  return isLittle ? { top, objects, fields, tools } : null;
}

/** A look as it is sent back: without the body, and with the places of edits only where they are few. */
function farLook(inspected: Inspection): RemoteInspection {
  const {
    body: _body,
    top: _top,
    objects: _objects,
    remote: _remote,
    fields,
    tools,
    content,
    ...rest
  } = inspected;
  const places = editPlaces(inspected);
  if (content.bareReasoning.length > bodyLimits.references) content.bareReasoning.length = 0;
  return {
    ...rest,
    body: null,
    fields: new Map([...fields].filter(([name]) => judgedFields.has(name))),
    tools: tools.map((tool) => ({ ...tool, path: tool.path.slice(0, MAX_STEPS), siblings: [] })),
    content: {
      ...content,
      additionalTools: [],
      inputItems: [],
      reasoningBlobs: [],
      references: content.references.map((one) => ({ ...one, path: one.path.slice(0, MAX_STEPS) })),
    },
    remote: { beginning: beginning(inspected), places },
  };
}

/** An answer repeats no more of its request than this, in characters of JSON; larger fields are left out. */
const MAX_ECHO = 256 * 1024;
/** Fields of a request that a Responses answer repeats, and those that shape a Chat or Responses answer. */
const echoed = [
  "include",
  "logprobs",
  "stream_options",
  "max_output_tokens",
  "max_tool_calls",
  "parallel_tool_calls",
  "prompt_cache_key",
  "reasoning",
  "safety_identifier",
  "temperature",
  "text",
  "tool_choice",
  "top_logprobs",
  "top_p",
  "truncation",
  "user",
  "metadata",
  "instructions",
  "tools",
  "functions",
];

function remoteCarry(
  { dialect, request, serverTools, stops, compacts, aliases, namespaces }: Carry,
  tools: unknown,
): RemoteCarry {
  const names = toolNames(tools);
  const echo: JsonObject = {};
  let room = MAX_ECHO;
  for (const field of dialect === "messages" ? [] : echoed) {
    const value = request[field];
    if (value === undefined) continue;
    // For Chat only the presence of these fields matters.
    const shown = dialect === "chat" && Array.isArray(value) ? [] : value;
    const length = JSON.stringify(shown).length;
    if (length <= room) echo[field] = shown;
    if (length <= room) room -= length;
  }
  return {
    dialect,
    serverTools,
    stops,
    compacts,
    // Only aliases of tool names are needed for answers; those of earlier calls' ids may be very many.
    aliases: new Map([...aliases].filter(([alias]) => names.has(alias))),
    namespaces,
    echo: JSON.stringify(echo),
  };
}

const toolNames = (tools: unknown): ReadonlySet<string> =>
  new Set(
    Array.isArray(tools)
      ? tools.map((tool: unknown) =>
          typeof tool === "object" && tool !== null && "name" in tool ? String(tool.name) : "",
        )
      : [],
  );

/** What of an answer is handed over instead of being copied. */
export function transferred(answer: Answer<JobName>): ArrayBuffer[] {
  const own = (bytes: Buffer | null | undefined) =>
    bytes instanceof Uint8Array && bytes.buffer instanceof ArrayBuffer ? [bytes.buffer] : [];
  return [
    ...("body" in answer ? own(answer.body) : []),
    ...("sources" in answer ? packedBuffers(answer.sources) : []),
    ...("prior" in answer ? packedBuffers(answer.prior.urls) : []),
  ];
}

/** An ApiError on its way between threads; anything else is a fault of ours. */
export interface ToldError {
  readonly code: ApiError["code"] | null;
  readonly message: string;
  readonly param: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly details: ApiError["details"];
}

export function toldError(error: unknown): ToldError {
  if (!(error instanceof ApiError))
    return {
      code: null,
      message: error instanceof Error ? (error.stack ?? error.message) : String(error),
      param: undefined,
      retryAfterSeconds: undefined,
      details: undefined,
    };
  const { code, message, param, retryAfterSeconds, details } = error;
  return { code, message, param, retryAfterSeconds, details };
}

export function errorOf({ code, message, param, retryAfterSeconds, details }: ToldError): Error {
  if (code === null) return new Error(message);
  return new ApiError(code, message, {
    ...(param !== undefined && { param }),
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
    ...(details !== undefined && { details }),
  });
}
