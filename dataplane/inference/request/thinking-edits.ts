/** Edits of the thinking that a Messages client asks for, in an inference and in a count (service.md "Inference"). */
import type { Member, Span } from "../../lib/json-reader.ts";
import { insertMembers, removeEntries, replaceValue, type Edit } from "../../lib/json-splice.ts";
import type { Inspection } from "../inspect/body.ts";
import { present } from "../inspect/fields.ts";

export interface ThinkingEdits {
  readonly edits: readonly Edit[];
  /** Value of `output_config` where the body has no such object and needs one. */
  readonly outputConfig: string | null;
  /** Top-level fields to remove. */
  readonly removed: readonly string[];
  /** Fields of the client that are lost. */
  readonly dropped: readonly string[];
}

type Look = Pick<Inspection, "body" | "fields" | "objects">;

/** @param thinks whether the model has thinking. */
export const thinkingEdits = (look: Look, thinks: boolean): ThinkingEdits =>
  thinks ? adaptiveThinking(look) : withoutThinking(look);

const none: ThinkingEdits = { edits: [], outputConfig: null, removed: [], dropped: [] };

/** `enabled` becomes adaptive with effort `medium`, an explicit effort winning; no budget goes upstream. */
function adaptiveThinking({ body, objects }: Look): ThinkingEdits {
  const thinking = objects.get("thinking");
  if (thinking === undefined) return none;
  const edits = removeEntries(thinking.members, (index) => thinking.members[index]?.key === "budget_tokens");
  const type = named(thinking.members, "type");
  if (type === undefined || valueAt(body, type) !== "enabled") return { ...none, edits };
  edits.push(replaceValue(type, '"adaptive"'));
  const config = objects.get("output_config");
  if (config === undefined) return { ...none, edits, outputConfig: '{"effort":"medium"}' };
  const effort = named(config.members, "effort");
  if (effort === undefined) edits.push(...insertMembers(config, [["effort", '"medium"']]));
  else if (effort.kind === "null") edits.push(replaceValue(effort, '"medium"'));
  return { ...none, edits };
}

/** Removes thinking and effort; only what was asked for is a loss. */
function withoutThinking({ body, fields, objects }: Look): ThinkingEdits {
  const type = named(objects.get("thinking")?.members ?? [], "type");
  const isLost =
    present(fields, "thinking") !== undefined && (type === undefined || valueAt(body, type) !== "disabled");
  const dropped = isLost ? ["thinking"] : [];
  const removed = fields.has("thinking") ? ["thinking"] : [];
  const config = objects.get("output_config")?.members ?? [];
  const effort = named(config, "effort");
  if (effort === undefined) return { ...none, removed, dropped };
  if (effort.kind !== "null") dropped.push("output_config.effort");
  if (config.length === 1) removed.push("output_config");
  const edits = config.length === 1 ? [] : removeEntries(config, (index) => config[index]?.key === "effort");
  return { ...none, edits, removed, dropped };
}

const named = (members: readonly Member[], name: string): Member | undefined =>
  members.find(({ key }) => key === name);

const valueAt = (body: Buffer, { start, end }: Span): unknown =>
  JSON.parse(body.toString("utf8", start, end));
