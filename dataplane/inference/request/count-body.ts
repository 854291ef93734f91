/** Writes a token count's body for an upstream. */
import type { Upstream } from "../../config/schema.ts";
import type { Sealer } from "../../dialects/codecs.ts";
import { removeEntries, replaceValue, splice, type Edit } from "../../lib/json-splice.ts";
import { priceEffects } from "../../dialects/price-effects.ts";
import type { Inspection } from "../inspect/body.ts";
import { openRequestReasoning, reasoningEdits, withoutBlocks } from "./sealed-reasoning.ts";

/** Fields of an inference that concern its answer alone; a count that has them is refused (dialects.md §B1). */
const ofTheAnswer = new Set([
  "max_tokens",
  "stream",
  "metadata",
  "service_tier",
  "stop_sequences",
  "temperature",
  "top_p",
  "top_k",
  "inference_geo",
]);

/**
 * The client's bytes with the upstream's name of the model, its own reasoning opened (rule 7.12), and never a thinking
 * budget (service.md "Inference") or a field that is for an inference alone.
 */
export function forCountUpstream(
  inspected: Inspection,
  { model, dedicatedTo }: Upstream,
  sealer: Sealer,
): Buffer {
  const { body, fields, objects, top } = inspected;
  const { edits: opened, gone } = reasoningEdits(
    openRequestReasoning(inspected, sealer),
    dedicatedTo !== null,
  );
  const edits: Edit[] = [...opened, ...withoutBlocks(body, gone)];
  const named = fields.get("model");
  if (named !== undefined) edits.push(replaceValue(named, JSON.stringify(model)));
  const thinking = objects.get("thinking");
  const type = thinking?.members.find(({ key }) => key === "type");
  const isEnabled =
    type !== undefined && JSON.parse(body.toString("utf8", type.start, type.end)) === "enabled";
  if (thinking !== undefined && isEnabled) edits.push(replaceValue(thinking, '{"type":"adaptive"}'));
  const isGone = (index: number) => {
    const key = top.members[index]?.key ?? "";
    return ofTheAnswer.has(key) || priceEffects.messages.account.includes(key);
  };
  edits.push(...removeEntries(top.members, isGone));
  return splice(body, edits);
}
