/** Writes a token count's body for an upstream. */
import type { Route, Upstream } from "../../config/schema.ts";
import type { Sealer } from "../../dialects/codecs.ts";
import { insertMembers, removeEntries, replaceValue, splice, type Edit } from "../../lib/json-splice.ts";
import { isUnsent, priceEffects } from "../../dialects/price-effects.ts";
import type { Inspection } from "../inspect/body.ts";
import { openRequestReasoning, reasoningEdits, withoutBlocks } from "./sealed-reasoning.ts";
import { thinkingEdits } from "./thinking-edits.ts";

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
 * The client's bytes with the upstream's name of the model, its own reasoning opened (rule 7.12), its thinking
 * as an inference on this route has it, and no field that is for an inference alone.
 */
export function forCountUpstream(
  inspected: Inspection,
  { capabilities }: Pick<Route, "capabilities">,
  { model, dedicatedTo }: Upstream,
  sealer: Sealer,
): Buffer {
  const { body, fields, top } = inspected;
  const { edits: opened, gone } = reasoningEdits(
    openRequestReasoning(inspected, sealer),
    dedicatedTo !== null,
  );
  const edits: Edit[] = [...opened, ...withoutBlocks(body, gone), ...inspected.content.citedFiles];
  const named = fields.get("model");
  if (named !== undefined) edits.push(replaceValue(named, JSON.stringify(model)));
  const { edits: mapped, outputConfig, removed } = thinkingEdits(inspected, capabilities.thinking);
  edits.push(...mapped);
  const isGone = (index: number) => {
    const key = top.members[index]?.key ?? "";
    return (
      ofTheAnswer.has(key) ||
      removed.includes(key) ||
      priceEffects.messages.account.includes(key) ||
      isUnsent("", key)
    );
  };
  if (outputConfig !== null) {
    const config = fields.get("output_config");
    const left = top.members.filter((_, index) => !isGone(index)).length;
    // Before the removals: what is inserted within a removed span is lost.
    if (config === undefined) edits.push(...insertMembers(top, [["output_config", outputConfig]], left));
    else edits.push(replaceValue(config, outputConfig));
  }
  edits.push(...removeEntries(top.members, isGone));
  return splice(body, edits);
}
