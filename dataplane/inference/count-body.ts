/** A count's body as an upstream gets it. */
import { replaceValue, splice, type Edit } from "../lib/json-splice.ts";
import type { Look } from "./look.ts";

/** The client's bytes with the upstream's name of the model, and never a thinking budget (spec, `POST /v1/messages`). */
export function forCountUpstream({ body, fields, objects }: Look, model: string): Buffer {
  const named = fields.get("model");
  const edits: Edit[] = named === undefined ? [] : [replaceValue(named, JSON.stringify(model))];
  const thinking = objects.get("thinking");
  const type = thinking?.members.find(({ key }) => key === "type");
  const isEnabled =
    type !== undefined && JSON.parse(body.toString("utf8", type.start, type.end)) === "enabled";
  if (thinking !== undefined && isEnabled) edits.push(replaceValue(thinking, '{"type":"adaptive"}'));
  return splice(body, edits);
}
