/** Finds plain words and numbers that kubectl takes for something else: such a file means one thing here and another in a cluster. Pure. */
import { isMap, isScalar, isSeq, type Scalar, type ScalarTag, Schema } from "yaml";
import { pathText } from "../plan/objects.ts";
import type { PlacedFault } from "./metadata.ts";

const BOOL = "tag:yaml.org,2002:bool";
const INT = "tag:yaml.org,2002:int";

/**
 * Of YAML 1.1 kubectl reads the words (`yes`, `NO`, `on`, `y`) and the integers (`010` is 8, `1_000`); moments and sexagesimals
 * are text to it, as they are here.
 */
const otherTags = new Schema({ schema: "yaml-1.1" }).tags.filter(
  (tag): tag is ScalarTag & { readonly test: RegExp } =>
    "test" in tag && (tag.tag === BOOL || (tag.tag === INT && tag.format !== "TIME")),
);

/** Judges keys and values of one object, from its node. A value never appears in a message. */
export function otherForKubectl(object: unknown): PlacedFault[] {
  const faults: PlacedFault[] = [];
  const judge = (scalar: Scalar, path: readonly PropertyKey[]) => {
    const message = otherMeaning(scalar);
    if (message !== null) faults.push({ path: pathText(path), message });
  };
  const walk = (node: unknown, path: readonly PropertyKey[]): void => {
    if (isScalar(node)) judge(node, path);
    else if (isSeq(node)) for (const [index, item] of node.items.entries()) walk(item, [...path, index]);
    else if (isMap(node))
      for (const { key, value } of node.items) {
        const inner = [...path, String(key)];
        if (isScalar(key)) judge(key, inner);
        walk(value, inner);
      }
  };
  walk(object, []);
  return faults;
}

function otherMeaning({ type, source, value }: Scalar): string | null {
  if (type !== "PLAIN" || source === undefined) return null;
  const tag = otherTags.find(({ test }) => test.test(source));
  // Neither the words nor the integers have a fault to tell of.
  const other = tag?.resolve(source, () => {}, {});
  const meant: unknown = isScalar(other) ? other.value : other;
  if (tag === undefined || meant === value) return null;
  return typeof meant === "boolean"
    ? "is true or false to kubectl, which reads YAML 1.1: put it in quotes, or write true or false"
    : "is another value to kubectl, which reads YAML 1.1: put it in quotes, or write a number in decimal digits";
}
