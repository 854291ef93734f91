/**
 * The few edits that a relayed body needs, each by position (design.md §4.2): whatever is not named here goes
 * upstream byte for byte.
 */
import type { Route, Upstream } from "../../config/schema.ts";
import { refuseDrops } from "../../dialects/losses.ts";
import { objectOf } from "../../dialects/fields.ts";
import { unreadCompaction } from "../../dialects/reasoning.ts";
import { OUTPUT_TOKENS_MIN } from "../../dialects/responses/write-request.ts";
import type { Sealer } from "../../dialects/codecs.ts";
import type { OwnField } from "../../dialects/own-fields.ts";
import { isUnsent, pricedObjects, priceEffects } from "../../dialects/price-effects.ts";
import { leavesTierOpen, standardTier, type TierPlan } from "../../dialects/tiers.ts";
import { nothingSaid } from "../../dialects/upstream-checks.ts";
import type { Member, ObjectSpan, Span } from "../../lib/json-reader.ts";
import { insertMembers, removeEntries, replaceValue, splice, type Edit } from "../../lib/json-splice.ts";
import type { Inspection } from "../inspect/body.ts";
import { present } from "../inspect/fields.ts";
import { isOffline } from "./refuse.ts";
import {
  openRequestReasoning,
  type ReasoningEdits,
  reasoningEdits,
  withoutBlocks,
} from "./sealed-reasoning.ts";
import { thinkingEdits } from "./thinking-edits.ts";

/** A value of Responses' `include`. */
const ENCRYPTED_REASONING = "reasoning.encrypted_content";

const samplingFields = ["temperature", "top_p", "top_k"];

export interface RelayBody {
  readonly body: Buffer;
  /** Whether we, not the client, asked for this stream's usage chunk. */
  readonly usageInjected: boolean;
  /** Whether we, not the client, asked for the content of reasoning. */
  readonly reasoningAsked: boolean;
  /** Client field names that this route has no place for (rule 2.2). */
  readonly dropped: readonly string[];
  /** Fields of own-fields.ts that it has: an upstream may be asked again without them. */
  readonly own: readonly OwnField[];
}

/** The part of a route that the edits depend on. */
type RelayRoute = Pick<Route, "capabilities" | "limits">;

/** How a body is to be written. */
export interface RelayWishes {
  /** Whether a drop is refused (rule 2.2). */
  readonly strict: boolean;
  /** Whether a Responses answer's reasoning is to be kept whole. */
  readonly encryptedReasoning: boolean;
  readonly tiers: TierPlan;
}

/**
 * Writes the body for one upstream of a route.
 * @throws ApiError 400 when a field would be dropped and `strict` forbids it, or nothing of the conversation may go;
 *   413 when its sealed reasoning is too large.
 */
export function relayBody(
  inspection: Inspection,
  route: RelayRoute,
  upstream: Upstream,
  wishes: RelayWishes,
  sealer: Sealer,
): RelayBody {
  const reasoning = reasoningEdits(openRequestReasoning(inspection, sealer), upstream.dedicatedTo !== null);
  const edits = new RelayEdits(inspection, reasoning);
  edits.model(upstream.model);
  edits.limits(route.limits.maxOutputTokens);
  if (!route.capabilities.samplingParameters) edits.drop(samplingFields);
  edits.drop(priceEffects[inspection.dialect].account);
  // An empty list asks for nothing, and an upstream may not know the field.
  edits.drop(["mcp_servers"]);
  edits.dropUnsent();
  edits.tiers(wishes.tiers);
  switch (inspection.dialect) {
    case "messages":
      edits.messages(route);
      break;
    case "chat":
      edits.chat(route, wishes.tiers);
      break;
    case "responses":
      edits.responses(route, wishes.encryptedReasoning);
  }
  return edits.finish(wishes.strict);
}

class RelayEdits {
  readonly #look: Inspection;
  /** Starts of the content blocks or input items whose reasoning is not for this upstream. */
  readonly #gone: ReadonlySet<number>;
  readonly #edits: Edit[];
  readonly #inserted: [string, string][] = [];
  readonly #removed = new Set<string>();
  /** Members of top-level objects that are removed, by the object's name. */
  readonly #removedMembers = new Map<string, Set<string>>();
  readonly #dropped: string[] = [];
  readonly #own: OwnField[] = [];
  #usageInjected = false;
  #reasoningAsked = false;

  constructor(inspection: Inspection, { edits, gone }: ReasoningEdits) {
    this.#look = inspection;
    this.#gone = gone;
    this.#edits = [...edits];
  }

  finish(strict: boolean): RelayBody {
    const { body, top } = this.#look;
    if (strict) refuseDrops(this.#dropped);
    const { members } = top;
    const edits = insertMembers(top, this.#inserted, members.length - this.#removed.size);
    edits.push(...this.#edits);
    for (const edit of this.#look.content.citedFiles) edits.push(edit);
    if (this.#removed.size > 0)
      edits.push(...removeEntries(members, (index) => this.#removed.has(members[index]?.key ?? "")));
    for (const [field, keys] of this.#removedMembers) {
      const object = this.#object(field)?.members ?? [];
      edits.push(...removeEntries(object, (index) => keys.has(object[index]?.key ?? "")));
    }
    return {
      body: splice(body, edits),
      usageInjected: this.#usageInjected,
      reasoningAsked: this.#reasoningAsked,
      dropped: this.#dropped,
      own: this.#own,
    };
  }

  model(name: string): void {
    if (name !== this.#look.model) this.#set("model", JSON.stringify(name));
  }

  limits(most: number): void {
    const { dialect, limits } = this.#look;
    for (const { member, value } of limits) {
      const least = dialect === "responses" ? OUTPUT_TOKENS_MIN : 0;
      const clamped = Math.max(least, Math.min(value, most));
      if (clamped !== value) this.#edits.push(replaceValue(member, String(clamped)));
    }
    if (dialect === "messages" && limits.length === 0) this.#set("max_tokens", String(most));
  }

  /** Removes fields and names them as dropped. */
  drop(names: readonly string[]): void {
    for (const name of names) {
      if (!this.#look.fields.has(name)) continue;
      this.#removed.add(name);
      if (present(this.#look.fields, name) !== undefined) this.#dropped.push(name);
    }
  }

  /** Removes tiers without a price, and keeps the account from choosing a dearer one by itself (rules 10.1, 10.2). */
  tiers({ dropped, standard }: TierPlan): void {
    const { dialect, tierFields } = this.#look;
    for (const name of dropped) {
      this.#dropped.push(name);
      if (name === "reasoning.mode") this.#removeMember("reasoning", "mode");
      else if (name !== "service_tier") this.#removed.add(name);
    }
    const { service_tier: asked } = tierFields;
    const isDropped = dropped.includes("service_tier");
    if (standard.includes(dialect) && (isDropped || leavesTierOpen(asked))) {
      this.#set("service_tier", JSON.stringify(standardTier(dialect)));
      this.#own.push("service_tier");
    } else if (isDropped) this.#removed.add("service_tier");
  }

  /** Removes what no upstream is sent, whatever else it is sent, and names it as dropped. */
  dropUnsent(): void {
    for (const name of this.#look.fields.keys()) if (isUnsent("", name)) this.drop([name]);
    for (const field of pricedObjects)
      for (const { key, kind } of this.#object(field)?.members ?? []) {
        if (!isUnsent(field, key)) continue;
        this.#removeMember(field, key);
        if (kind !== "null") this.#dropped.push(`${field}.${key}`);
      }
  }

  #removeMember(field: string, key: string): void {
    const keys = this.#removedMembers.get(field);
    if (keys === undefined) this.#removedMembers.set(field, new Set([key]));
    else keys.add(key);
  }

  messages(route: RelayRoute): void {
    for (const edit of withoutBlocks(this.#look.body, this.#gone)) this.#edits.push(edit);
    this.#mapThinking(route.capabilities.thinking);
  }

  chat(route: RelayRoute, { unknown }: Pick<TierPlan, "unknown">): void {
    const { fields, stream } = this.#look;
    if (stream) this.#includeUsage(unknown.includes("stream_options"));
    // Nothing of a tenant stays in a shared account (rules 1.17, 2.10).
    const store = present(fields, "store");
    if (store !== undefined && this.#text(store) !== "false") this.#set("store", "false");
    if (unknown.includes("metadata")) this.drop(["metadata"]);
    else if (present(fields, "metadata") !== undefined) this.#own.push("metadata");
    if (route.capabilities.thinking) return;
    const effort = present(fields, "reasoning_effort");
    this.#dropThought("reasoning_effort", effort !== undefined && this.#value(effort) === "none");
  }

  /** @param encrypted the answer's reasoning is to be kept whole. */
  responses(route: RelayRoute, encrypted: boolean): void {
    const store = this.#look.fields.get("store");
    if (store === undefined || this.#text(store) !== "false") this.#set("store", "false");
    if (!route.capabilities.thinking) this.#dropReasoning();
    else if (encrypted) this.#includeReasoning();
    this.#cutOfflineSearch();
    this.#cutReasoning();
  }

  /** Asks for the content of reasoning, which an upstream that stores nothing gives only then. */
  #includeReasoning(): void {
    const given = present(this.#look.fields, "include");
    const include = given === undefined ? [] : this.#value(given);
    if (!Array.isArray(include) || include.includes(ENCRYPTED_REASONING)) return;
    this.#reasoningAsked = true;
    this.#set("include", JSON.stringify([...(include as unknown[]), ENCRYPTED_REASONING]));
  }

  /**
   * Removes reasoning items without content, which an upstream that did not store them refuses (rule 2.17), and those
   * that were made in another account.
   * @throws ApiError 400 where that is a compaction.
   */
  #cutReasoning(): void {
    const { inputItems, bareReasoning } = this.#look.content;
    for (const [index, item] of inputItems.entries())
      if (this.#gone.has(item.start) && objectOf(this.#value(item))?.["type"] === "compaction")
        throw unreadCompaction("openai", `input[${index}].encrypted_content`);
    const gone = new Set([...this.#gone, ...bareReasoning.map(({ start }) => start)]);
    if (gone.size === 0) return;
    const isGone = (index: number) => gone.has(inputItems[index]?.start ?? -1);
    const isEmpty = inputItems.every((_, index) => isGone(index));
    if (isEmpty && present(this.#look.fields, "instructions") === undefined) throw nothingSaid("responses");
    for (const edit of removeEntries(inputItems, isGone)) this.#edits.push(edit);
  }

  #mapThinking(thinks: boolean): void {
    const { edits, outputConfig, removed, dropped } = thinkingEdits(this.#look, thinks);
    this.#edits.push(...edits);
    if (outputConfig !== null) this.#set("output_config", outputConfig);
    for (const name of removed) this.#removed.add(name);
    this.#dropped.push(...dropped);
  }

  /** Removes `reasoning`. Its mode is named with the tiers, and without thinking the lack of a summary is no loss. */
  #dropReasoning(): void {
    const isNoLoss = (member: Member) =>
      member.kind === "null" ||
      ["summary", "generate_summary", "mode"].includes(member.key) ||
      (member.key === "effort" && this.#value(member) === "none");
    this.#dropThought("reasoning", this.#object("reasoning")?.members.every(isNoLoss) ?? false);
  }

  /** @param isNoLoss the field asks for nothing, or for no thinking, as such a model answers anyway. */
  #dropThought(name: string, isNoLoss: boolean): void {
    if (isNoLoss) this.#removed.add(name);
    else this.drop([name]);
  }

  /**
   * Asks a Chat stream for its usage, which would have to be billed from an estimate otherwise.
   * @param isUnknown the upstream refuses the field; what a client wants of it stays.
   */
  #includeUsage(isUnknown: boolean): void {
    const options = this.#object("stream_options");
    if (options === null) {
      if (isUnknown && this.#look.fields.has("stream_options")) this.#removed.add("stream_options");
      if (isUnknown) return;
      this.#own.push("stream_options");
    }
    const include = options?.members.find(({ key }) => key === "include_usage");
    if (include !== undefined && this.#text(include) === "true") return;
    this.#usageInjected = true;
    if (options === null) this.#set("stream_options", '{"include_usage":true}');
    else if (include !== undefined) this.#edits.push(replaceValue(include, "true"));
    else {
      const removed = this.#removedMembers.get("stream_options")?.size ?? 0;
      const left = options.members.length - removed;
      this.#edits.push(...insertMembers(options, [["include_usage", "true"]], left));
    }
  }

  /** Removes a search of Codex that may not go online: no upstream may run it as its own (dialects.md §H3). */
  #cutOfflineSearch(): void {
    const lists = new Map<ToolList, Set<number>>();
    for (const tool of this.#look.tools) {
      if (!isOffline(this.#look, tool)) continue;
      const gone = lists.get(tool.siblings) ?? new Set();
      lists.set(tool.siblings, gone.add(tool.index));
    }
    for (const [siblings, gone] of lists)
      this.#edits.push(...removeEntries(siblings, (index) => gone.has(index)));
  }

  /** Replaces a top-level value, or adds it. */
  #set(name: string, value: string): void {
    const member = this.#look.fields.get(name);
    if (member === undefined) this.#inserted.push([name, value]);
    else this.#edits.push(replaceValue(member, value));
  }

  /** The members of a top-level object; null when it is absent or of another kind. */
  #object(name: string): ObjectSpan | null {
    return this.#look.objects.get(name) ?? null;
  }

  #text({ start, end }: Span): string {
    return this.#look.body.toString("utf8", start, end);
  }

  #value(span: Span): unknown {
    return JSON.parse(this.#text(span));
  }
}

type ToolList = Inspection["tools"][number]["siblings"];
