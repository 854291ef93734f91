/** Edits of the thinking that a Messages client asks for, in an inference and in a count (service.md "Inference"). */
import type { Member } from "../../lib/json-reader.ts";
import { insertMembers, removeEntries, replaceValue, type Edit } from "../../lib/json-splice.ts";
import type { Inspection } from "../inspect/body.ts";

export interface ThinkingEdits {
  readonly edits: readonly Edit[];
  /** Value of `output_config` where the body has no such object and needs one. */
  readonly outputConfig: string | null;
}

/** `enabled` becomes adaptive with effort `medium`, an explicit effort winning; no budget goes upstream. */
export function thinkingEdits({ body, objects }: Pick<Inspection, "body" | "objects">): ThinkingEdits {
  const thinking = objects.get("thinking");
  if (thinking === undefined) return { edits: [], outputConfig: null };
  const named = (members: readonly Member[], name: string) => members.find(({ key }) => key === name);
  const edits = removeEntries(thinking.members, (index) => thinking.members[index]?.key === "budget_tokens");
  const type = named(thinking.members, "type");
  if (type === undefined || JSON.parse(body.toString("utf8", type.start, type.end)) !== "enabled")
    return { edits, outputConfig: null };
  edits.push(replaceValue(type, '"adaptive"'));
  const config = objects.get("output_config");
  if (config === undefined) return { edits, outputConfig: '{"effort":"medium"}' };
  const effort = named(config.members, "effort");
  if (effort === undefined) edits.push(...insertMembers(config, [["effort", '"medium"']]));
  else if (effort.kind === "null") edits.push(replaceValue(effort, '"medium"'));
  return { edits, outputConfig: null };
}
