/**
 * Token usage in the three dialects (dialects.md §D4). The hub counts as Messages does: `input_tokens` excludes
 * what was read from or written to a cache; OpenAI's prompt total includes both.
 */
import type { Dialect } from "./dialect.ts";
import { arrayOf, countOf, objectOf } from "./fields.ts";
import type { MessagesUsage } from "./messages/types.ts";
import type { CountedOutput } from "./output-estimate.ts";
import { type ExpectedTiers, servedTiers } from "./tiers.ts";

/** Media of a request, which have prices of their own (rule 10.5). */
export interface ExpectedMedia {
  /** Tokens of audio in the prompt, as estimated here. */
  readonly audioInput: number;
  /** What the answer may hold beside text. */
  readonly outputs: readonly ("audioOutput" | "imageOutput")[];
}

type Media = NonNullable<MessagesUsage["media"]>;

/** What one upstream call can use at the most (rule 7.9). */
export interface PossibleUsage {
  /** Tokens of the model's context window: all classes of input together. */
  readonly input: number;
  /** The call's output limit in tokens, of all its choices together. */
  readonly output: number;
  /** Absent: tiers are not looked at. */
  readonly tiers?: ExpectedTiers;
}

/** Bounds and estimates for an answer's usage, where its upstream reports none or the impossible (`countedUsage`). */
export interface UsageContext {
  /**
   * Input tokens as counted locally, for an answer that has to name a number before its upstream reports one
   * (`message_start`; LangChain never reads a later one), or whose upstream never reports any.
   */
  readonly estimatedInputTokens?: number;
  /** Absent: nothing but text is expected. */
  readonly media?: ExpectedMedia;
  /** Bounds within which an upstream's report is believed; absent: no bounds. */
  readonly possible?: PossibleUsage;
}

/**
 * Most compactions of one answer that are calls of their own; what a report has beyond them is one call together, so that
 * an upstream cannot report calls without end.
 */
const MOST_COMPACTIONS = 8;

/**
 * Cuts a report to the possible: within the context window, and within the output limit plus the output that was seen;
 * its compactions likewise, all of them together. The report is marked then; of the classes of input the dearest
 * is cut first.
 * @param seenOutput tokens of output as counted here; called only where the limit is exceeded.
 */
export function plausibleUsage(
  reported: MessagesUsage,
  possible: PossibleUsage,
  seenOutput: () => number,
): MessagesUsage {
  const believed = plausibleCall(reported, possible, seenOutput);
  if (reported.compactions === undefined) return believed;
  const compactions = plausibleTogether(reported.compactions, possible, seenOutput);
  if (compactions.every((one, index) => one === reported.compactions?.[index])) return believed;
  return { ...believed, compactions, implausible: true };
}

/** Cuts calls to what one call can be, the last ones first. */
function plausibleTogether(
  calls: readonly MessagesUsage[],
  { input, output }: PossibleUsage,
  seenOutput: () => number,
): MessagesUsage[] {
  // What is left of the output is below zero where some was believed because it was seen.
  const left = { input, output };
  let seen: number | undefined;
  const seenOnce = () => (seen ??= seenOutput());
  return calls.map((call) => {
    const believed = plausibleCall(call, left, seenOnce);
    left.input -= promptTokens(believed);
    left.output -= believed.output_tokens;
    return believed;
  });
}

function plausibleCall(
  reported: MessagesUsage,
  possible: PossibleUsage,
  seenOutput: () => number,
): MessagesUsage {
  const { fiveMinutes, oneHour } = cacheWrites(reported);
  const read = cacheRead(reported);
  const isInputPossible = promptTokens(reported) <= possible.input;
  if (isInputPossible && reported.output_tokens <= possible.output) return reported;
  const output = Math.min(reported.output_tokens, possible.output + seenOutput());
  if (isInputPossible && output === reported.output_tokens) return reported;
  let room = possible.input;
  const within = (tokens: number) => {
    const believed = Math.min(tokens, room);
    room -= believed;
    return believed;
  };
  const input_tokens = within(reported.input_tokens);
  const cache_read_input_tokens = within(read);
  const cache_creation = {
    ephemeral_5m_input_tokens: within(fiveMinutes),
    ephemeral_1h_input_tokens: within(oneHour),
  };
  return {
    ...reported,
    input_tokens,
    cache_read_input_tokens,
    cache_creation_input_tokens:
      cache_creation.ephemeral_5m_input_tokens + cache_creation.ephemeral_1h_input_tokens,
    cache_creation,
    output_tokens: output,
    ...(reasoningTokens(reported) > output && { output_tokens_details: { thinking_tokens: output } }),
    implausible: true,
  };
}

/** Tokens written to caches. A write without the 5m/1h split counts as 5m (rule 5.10). */
export function cacheWrites(usage: MessagesUsage): {
  readonly fiveMinutes: number;
  readonly oneHour: number;
} {
  const oneHour = usage.cache_creation?.ephemeral_1h_input_tokens ?? 0;
  const fiveMinutes = usage.cache_creation?.ephemeral_5m_input_tokens ?? 0;
  const written = usage.cache_creation_input_tokens ?? 0;
  return { fiveMinutes: Math.max(fiveMinutes, written - oneHour), oneHour };
}

/** Tokens of all classes of input together, as OpenAI's prompt total counts them. */
export const promptTokens = (usage: MessagesUsage): number =>
  usage.input_tokens + cacheRead(usage) + cacheWritten(usage);

const hasPrompt = (usage: MessagesUsage): boolean => promptTokens(usage) > 0;
const hasOutput = ({ output_tokens }: MessagesUsage): boolean => output_tokens > 0;

/**
 * Counts what an answer used (rule 10.6), on every path: as its upstream reports it, and counted here for a half (input
 * or output) whose report is absent or zero. No prompt is empty, nor is an answer that holds something.
 * @param written tokens of output as counted here (output-estimate.ts).
 * @param final the report is of the whole answer; else it is a running total, and at least the output seen is counted.
 * @param tier the tier that stands beside the report (Chat, Responses); Messages has it in its report.
 */
export function countedUsage(
  reported: MessagesUsage | null,
  { estimatedInputTokens = 0, media: expected, possible }: UsageContext,
  written: () => CountedOutput,
  final = true,
  tier?: string | null,
): MessagesUsage {
  const served = tierUsage(reported, possible?.tiers, tier);
  if (reported === null) {
    const { tokens, media } = written();
    const counted = { input_tokens: estimatedInputTokens, output_tokens: tokens, estimated: true };
    const audioInput = expected?.audioInput ?? 0;
    return {
      ...counted,
      ...served,
      ...(audioInput + (media ? 1 : 0) > 0 && { media: { audioInput, ...media } }),
    };
  }
  const believed =
    possible === undefined ? reported : plausibleUsage(reported, possible, () => written().tokens);
  const { input_tokens, output_tokens, compactions } = believed;
  // An answer may be a compaction and nothing else.
  const isInputKnown = hasPrompt(believed) || compactions?.some(hasPrompt) === true;
  const isOutputKnown = final && (hasOutput(believed) || compactions?.some(hasOutput) === true);
  const output = isOutputKnown ? output_tokens : Math.max(output_tokens, written().tokens);
  const media = expected && countedMedia(believed.media, expected, written, isInputKnown, isOutputKnown);
  if (final && isInputKnown && output === output_tokens && media === undefined)
    return served === null ? believed : { ...believed, ...served };
  return {
    ...believed,
    ...served,
    input_tokens: isInputKnown ? input_tokens : estimatedInputTokens,
    output_tokens: output,
    ...(media !== undefined && { media }),
    estimated: true,
  };
}

/** Counts the audio and images that a report leaves out, of a request with media; undefined: the report stands. */
function countedMedia(
  reported: Media = {},
  { audioInput, outputs }: ExpectedMedia,
  written: () => CountedOutput,
  isInputKnown: boolean,
  isOutputKnown: boolean,
): Media | undefined {
  const counted: Media = {};
  if (audioInput > 0 && (!isInputKnown || reported.audioInput === undefined)) counted.audioInput = audioInput;
  const open = outputs.filter((name) => !isOutputKnown || reported[name] === undefined);
  const seen = open.length === 0 ? undefined : written().media;
  for (const name of open) {
    const tokens = seen?.[name] ?? 0;
    if (tokens > (reported[name] ?? 0)) counted[name] = tokens;
  }
  return Object.keys(counted).length === 0 ? undefined : { ...reported, ...counted };
}

/**
 * Returns the tier that a call's report names and the tiers that it is charged at (rule 10.2); null: nothing but the
 * standard.
 */
function tierUsage(
  reported: MessagesUsage | null,
  expected: ExpectedTiers | undefined,
  tier: string | null | undefined,
): Pick<MessagesUsage, "service_tier" | "tiers" | "implausible"> | null {
  const service_tier = tier ?? reported?.service_tier;
  // The standard tier is not noted.
  const said = typeof tier === "string" && tier !== "default" ? { service_tier: tier } : null;
  if (expected === undefined) return said;
  const { inference_geo, speed } = reported ?? {};
  const fields = {
    ...(typeof service_tier === "string" && { service_tier }),
    ...(typeof inference_geo === "string" && { inference_geo }),
    ...(typeof speed === "string" && { speed }),
  };
  const { tiers, isPriced } = servedTiers(expected, fields);
  if (tiers === null && isPriced) return said;
  return { ...said, ...(tiers !== null && { tiers }), ...(!isPriced && { implausible: true }) };
}

/**
 * Reads a Messages `usage` over what was reported before: counters are totals of the whole message so far. Null or
 * absent never overwrites a number, nor do zeros alone a prompt or a cache's split: some servers end so. Returns
 * `before` when `raw` is no object.
 */
export function readMessagesUsage(raw: unknown, before: MessagesUsage | null): MessagesUsage | null {
  const usage = objectOf(raw);
  if (usage === null) return before;
  const counter = (name: string, known: number | null | undefined) =>
    typeof usage[name] === "number" ? countOf(usage[name]) : (known ?? null);
  const read: MessagesUsage = {
    input_tokens: counter("input_tokens", before?.input_tokens) ?? 0,
    output_tokens: counter("output_tokens", before?.output_tokens) ?? 0,
    cache_creation_input_tokens: counter("cache_creation_input_tokens", before?.cache_creation_input_tokens),
    cache_read_input_tokens: counter("cache_read_input_tokens", before?.cache_read_input_tokens),
  };
  const split = cacheSplit(usage["cache_creation"]);
  const isSplit = split !== null && split.ephemeral_5m_input_tokens + split.ephemeral_1h_input_tokens > 0;
  const writes = isSplit ? split : (before?.cache_creation ?? split);
  if (writes !== null)
    read.cache_creation = isSplit || usage["cache_creation_input_tokens"] !== 0 ? writes : NO_WRITES;
  if (before !== null && !hasPrompt(read) && hasPrompt(before)) Object.assign(read, inputOf(before));
  const details = objectOf(usage["output_tokens_details"]);
  if (details !== null) read.output_tokens_details = { thinking_tokens: countOf(details["thinking_tokens"]) };
  else if (before?.output_tokens_details) read.output_tokens_details = before.output_tokens_details;
  const tier = usage["service_tier"] ?? before?.service_tier;
  if (typeof tier === "string") read.service_tier = tier;
  const geo = usage["inference_geo"] ?? before?.inference_geo;
  if (typeof geo === "string") read.inference_geo = geo;
  const speed = usage["speed"] ?? before?.speed;
  if (typeof speed === "string") read.speed = speed;
  const compactions = compactionsOf(usage["iterations"]) ?? before?.compactions;
  if (compactions !== undefined) read.compactions = compactions;
  return read;
}

/** Reads the compactions among the parts of a report: the totals beside them leave them out (rule 10.7). */
function compactionsOf(iterations: unknown): readonly MessagesUsage[] | undefined {
  const reports = (arrayOf(iterations) ?? []).flatMap((part) => {
    const { type, iterations: _within, ...report } = objectOf(part) ?? {};
    return type === "compaction" ? (readMessagesUsage(report, null) ?? []) : [];
  });
  if (reports.length === 0) return undefined;
  if (reports.length <= MOST_COMPACTIONS) return reports;
  return [...reports.slice(0, MOST_COMPACTIONS - 1), asOneCall(reports.slice(MOST_COMPACTIONS - 1))];
}

function asOneCall(reports: readonly MessagesUsage[]): MessagesUsage {
  // Endless numbers have no difference, which `cacheWrites` needs.
  const sum = (tokens: (report: MessagesUsage) => number) =>
    reports.reduce((total, report) => Math.min(total + tokens(report), Number.MAX_SAFE_INTEGER), 0);
  return {
    input_tokens: sum((report) => report.input_tokens),
    output_tokens: sum((report) => report.output_tokens),
    cache_read_input_tokens: sum(cacheRead),
    cache_creation_input_tokens: sum(cacheWritten),
    cache_creation: {
      ephemeral_5m_input_tokens: sum((report) => cacheWrites(report).fiveMinutes),
      ephemeral_1h_input_tokens: sum((report) => cacheWrites(report).oneHour),
    },
    output_tokens_details: { thinking_tokens: sum(reasoningTokens) },
  };
}

const NO_WRITES = { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0 };

function cacheSplit(raw: unknown): NonNullable<MessagesUsage["cache_creation"]> | null {
  const writes = objectOf(raw);
  return (
    writes && {
      ephemeral_5m_input_tokens: countOf(writes["ephemeral_5m_input_tokens"]),
      ephemeral_1h_input_tokens: countOf(writes["ephemeral_1h_input_tokens"]),
    }
  );
}

const inputOf = ({
  input_tokens,
  cache_creation_input_tokens = null,
  cache_read_input_tokens = null,
  cache_creation,
}: MessagesUsage): Partial<MessagesUsage> => ({
  input_tokens,
  cache_creation_input_tokens,
  cache_read_input_tokens,
  ...(cache_creation && { cache_creation }),
});

/** A Chat `usage`; null when nothing is reported. Caches are named differently by DeepSeek and Moonshot. */
export function readChatUsage(raw: unknown): MessagesUsage | null {
  const usage = objectOf(raw);
  if (usage === null) return null;
  const input = objectOf(usage["prompt_tokens_details"]);
  const cached = input?.["cached_tokens"] ?? usage["prompt_cache_hit_tokens"] ?? usage["cached_tokens"];
  const output = objectOf(usage["completion_tokens_details"]);
  const read = fromOpenai({
    input: countOf(usage["prompt_tokens"]),
    cached: countOf(cached),
    written: countOf(input?.["cache_write_tokens"]),
    output: countOf(usage["completion_tokens"]),
    reasoning: output?.["reasoning_tokens"],
    total: countOf(usage["total_tokens"]),
  });
  if (read === null) return null;
  const media = {
    ...reported("audioInput", input?.["audio_tokens"]),
    ...reported("audioOutput", output?.["audio_tokens"]),
    ...reported("imageOutput", output?.["image_tokens"]),
  };
  return Object.keys(media).length === 0 ? read : { ...read, media };
}

const reported = (name: keyof Media, value: unknown): Media =>
  typeof value === "number" ? { [name]: countOf(value) } : {};

/** A Responses `usage`; null when nothing is reported. */
export function readResponsesUsage(raw: unknown): MessagesUsage | null {
  const usage = objectOf(raw);
  if (usage === null) return null;
  const input = objectOf(usage["input_tokens_details"]);
  return fromOpenai({
    input: countOf(usage["input_tokens"]),
    cached: countOf(input?.["cached_tokens"]),
    written: countOf(input?.["cache_write_tokens"]),
    output: countOf(usage["output_tokens"]),
    reasoning: objectOf(usage["output_tokens_details"])?.["reasoning_tokens"],
    total: countOf(usage["total_tokens"]),
  });
}

/** Reads the `usage` of a whole answer; null when nothing is reported. */
export function readWholeUsage(dialect: Dialect, raw: unknown): MessagesUsage | null {
  switch (dialect) {
    case "messages":
      return readMessagesUsage(raw, null);
    case "chat":
      return readChatUsage(raw);
    case "responses":
      return readResponsesUsage(raw);
  }
}

/** Zeros alone are no report: some servers send them until they know, and others always. */
function fromOpenai(counts: {
  input: number;
  cached: number;
  written: number;
  output: number;
  reasoning: unknown;
  total: number;
}): MessagesUsage | null {
  const reasoning = countOf(counts.reasoning);
  if (counts.input + counts.output + reasoning === 0) return null;
  // Both are parts of the prompt: together no more than it (rule 1.15).
  const cached = Math.min(counts.cached, counts.input);
  const written = Math.min(counts.written, counts.input - cached);
  // xAI leaves the reasoning out of the output, but not out of the total.
  const isApart = reasoning > 0 && counts.total === counts.input + counts.output + reasoning;
  return {
    input_tokens: counts.input - cached - written,
    output_tokens: isApart ? counts.output + reasoning : counts.output,
    cache_creation_input_tokens: written,
    cache_read_input_tokens: cached,
    ...(typeof counts.reasoning === "number"
      ? { output_tokens_details: { thinking_tokens: reasoning } }
      : {}),
  };
}

/** Input that was read from a cache. */
export const cacheRead = (usage: MessagesUsage) => usage.cache_read_input_tokens ?? 0;
/** Input that was written to a cache, of both lifetimes. */
export const cacheWritten = (usage: MessagesUsage) => {
  const { fiveMinutes, oneHour } = cacheWrites(usage);
  return fiveMinutes + oneHour;
};
/** Output that was reasoning. */
export const reasoningTokens = (usage: MessagesUsage) => usage.output_tokens_details?.thinking_tokens ?? 0;
