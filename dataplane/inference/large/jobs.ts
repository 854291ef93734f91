/**
 * Jobs on a large body, or a large answer, that another thread does (docs/decisions/large-bodies.md). Each is a function of plain
 * data: the body and what the request's route says. Nothing is kept from one job to the next. Results are small, or
 * bytes: receiving a large structure would hold the event loop as long as making it held the worker.
 */
import type { Route, Upstream } from "../../config/schema.ts";
import type { Sealer } from "../../dialects/codecs.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { allTools } from "../../dialects/instructions.ts";
import type { MessagesUsage } from "../../dialects/messages/types.ts";
import type { UsageContext } from "../../dialects/usage.ts";
import { bodyLimits } from "../../lib/body-limits.ts";
import { readJsonFields, type FieldsRead } from "../../lib/json-fields.ts";
import { packedBuffers, type Packed } from "../../lib/packed-map.ts";
import type { PackedContext } from "../../tools/web-fetch/prior-context.ts";
import type { NextCall } from "../../loop/next-request.ts";
import { sampledTexts, type SampledTexts } from "../../tokens/sample.ts";
import { packItems, type PackedItems } from "../answer/held-items.ts";
import { convertedWhole, relayedWhole, type PassedOn, type RelayFacts } from "../answer/passed-on.ts";
import { leanData, type FramePlaces, type LeanReading } from "../answer/lean-event.ts";
import type { LeanData } from "../answer/lean-frame.ts";
import { AnswerSeal } from "../answer/seal-answer.ts";
import { outcomeOf, usageOfBegun, usageOfNoStream, type Outcome } from "../answer/whole-answer.ts";
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
import { wholeEvents, type WholeEvents } from "../with-tools/whole-events.ts";
import { judgedFields } from "../request/refuse.ts";
import { bodyWithoutReasoning } from "../upstream-refusals/rejected-reasoning.ts";
import {
  carryOf,
  contextFrom,
  leanCarry,
  remoteCarry,
  type RemoteCarry,
  type RemoteContext,
} from "./remote-reading.ts";
import { toldError, type ToldError } from "./told-error.ts";

/** The fields of a route that the edits of a relayed body need. */
export type RelayRoute = Pick<Route, "model" | "capabilities" | "limits">;

/** Every job's input beside the body (`told`), and its result (`answer`). */
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
  forCount: { told: { route: RelayRoute; upstream: Upstream }; answer: { body: Buffer } };
  texts: { told: null; answer: SampledTexts };
  fields: { told: { names: readonly string[] }; answer: FieldsRead };
  relayAnswer: { told: Asked & { facts: RelayFacts; seals: boolean }; answer: ToldOutcome };
  convertAnswer: {
    told: Asked & { dialect: Dialect; carry: RemoteCarry; context: RemoteContext };
    answer: ToldOutcome;
  };
  loopAnswer: { told: { dialect: Dialect; context: RemoteContext }; answer: Told<Outcome<WholeEvents>> };
  leanEvent: { told: { places: FramePlaces; reading: LeanReading }; answer: LeanData };
  noStream: {
    told: { dialect: Dialect; context: UsageContext; received: number };
    answer: { usage: MessagesUsage | null };
  };
  begunAnswer: { told: { dialect: Dialect; context: UsageContext; received: number }; answer: MessagesUsage };
}

/** Input of an answer job that is known only at its turn. */
export interface Asked {
  /** Whether the client still waits for the answer; otherwise only its usage is wanted. */
  readonly isWanted: boolean;
}

/** The outcome of a job on a whole answer. */
export interface ToldOutcome {
  readonly outcome: Told<Outcome<{ readonly usage: MessagesUsage }>>;
  /** Bytes that the client gets; null: the answer as it came, or nothing. */
  readonly body: Buffer | null;
  readonly items: PackedItems | null;
}

/** A result whose error is plain data. */
export type Told<Result> = Result extends { readonly error: unknown }
  ? Omit<Result, "error"> & { readonly error: ToldError }
  : Result;

export type JobName = keyof Jobs;
export type JobInput<Name extends JobName> = Jobs[Name]["told"];
export type Answer<Name extends JobName> = Jobs[Name]["answer"];

/** Input of a job beside `told`. */
interface JobContext {
  readonly body: Buffer;
  /** Seals for the organization whose request it is. */
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
    return { carry: leanCarry(remoteCarry(carry), allTools(request)), systemTurns };
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
      carry: leanCarry(remoteCarry(carry), tools),
      sources: sources.pack(),
      prior: prior.pack(),
    };
  },
  askLoop: ({ upstream, next, wishes, ...facts }, context) =>
    openLoop(facts, context).write(upstream, next, wishes),
  files: ({ dialect, files }, { body }) => ({ body: putFiles(inspectBody(dialect, body), files) }),
  forCount: ({ route, upstream }, { body, sealer }) => ({
    body: forCountUpstream(inspectBody("messages", body), route, upstream, sealer),
  }),
  texts: (_, { body }) => sampledTexts(parsedBody({ body, dialect: "messages" })),
  fields: ({ names }, { body }) => readJsonFields(body, names),
  relayAnswer: ({ isWanted, facts, seals }, { body, sealer }) => {
    const { dialect, usage } = facts;
    const seal = seals && dialect !== "chat" ? new AnswerSeal(sealer, dialect) : null;
    return toldOutcome(
      outcomeOf(dialect, body, usage, () => relayedWhole(body, facts, seal, isWanted)),
      body,
    );
  },
  convertAnswer: ({ isWanted, dialect, carry: told, context: toldContext }, { body, sealer }) => {
    const [carry, context] = [carryOf(told), contextFrom(toldContext, sealer)];
    return toldOutcome(
      outcomeOf(dialect, body, context, () => convertedWhole(dialect, body, carry, context, isWanted)),
      body,
    );
  },
  loopAnswer: ({ dialect, context: toldContext }, { body, sealer }) => {
    const context = contextFrom(toldContext, sealer);
    return told(outcomeOf(dialect, body, context, () => wholeEvents(dialect, body, context)));
  },
  leanEvent: ({ places, reading }, { body }) => leanData(body, places, reading),
  noStream: ({ dialect, context, received }, { body }) => ({
    usage: usageOfNoStream(dialect, context, received, body),
  }),
  begunAnswer: ({ dialect, context, received }, { body }) => usageOfBegun(dialect, context, received, body),
};

function toldOutcome(outcome: Outcome<PassedOn>, came: Buffer): ToldOutcome {
  if (outcome.kind !== "answer") return { outcome: told<never>(outcome), body: null, items: null };
  const { body, usage, items } = outcome.read;
  return {
    outcome: { kind: "answer", read: { usage } },
    body: body === came ? null : body,
    items: items.length === 0 ? null : packItems(items),
  };
}

const told = <Read>(outcome: Outcome<Read>): Told<Outcome<Read>> =>
  "error" in outcome ? { ...outcome, error: toldError(outcome.error) } : outcome;

function read(facts: ConversionFacts, { body, sealer }: JobContext): Conversion {
  const context = contextOf(facts, sealer, undefined);
  return plainConversion(facts, context, { body, dialect: facts.dialect }, sealer);
}

const openLoop = (facts: LoopFacts, { body, sealer }: JobContext): OpenLoop =>
  new OpenLoop(facts, sealer, exactBody({ body, dialect: facts.dialect }));

/** Steps after which the path to a field is cut. */
const MAX_STEPS = 12;

/** Largest body that the thread which receives its inspection edits itself: copying it takes about a millisecond. */
const EDITED_BY_RECEIVER_BYTES = 4 * 1024 * 1024;
/** Most places of edits that are sent back, and most bytes of `include`, which is parsed. */
const MAX_PLACES = 256;
const MAX_INCLUDE_BYTES = 16 * 1024;

/** Returns the places of edits, as of most bodies; null: there are many, or reasoning has to be opened or cut out. */
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

/** Prepares an inspection to be sent back: without the body, and with the places of edits only where they are few. */
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

/** Lists the buffers of an answer that are transferred instead of copied. */
export function transferred(answer: Answer<JobName>): ArrayBuffer[] {
  const own = (bytes: Buffer | null | undefined) =>
    bytes instanceof Uint8Array && bytes.buffer instanceof ArrayBuffer ? [bytes.buffer] : [];
  return [
    ...("body" in answer ? own(answer.body) : []),
    ...("line" in answer ? own(answer.line) : []),
    ...("pieces" in answer ? own(answer.pieces?.bytes) : []),
    ...("items" in answer ? own(answer.items?.json) : []),
    ...("sources" in answer ? packedBuffers(answer.sources) : []),
    ...("prior" in answer ? packedBuffers(answer.prior.urls) : []),
  ];
}
