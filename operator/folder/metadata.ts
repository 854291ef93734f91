/** Judges what stands around an object's spec as an API server does: names, labels, annotations, fields that it does not know. Pure. */
import { isNamespaceName, NAME, NAMESPACE_FORM } from "../api/fields.ts";
import { isLabelKey, isLabelValue, LABEL_FORM, LABEL_KEY_FORM } from "../api/labels.ts";
import { type Fault, pathText } from "../plan/objects.ts";
import { notText } from "../plan/read-spec.ts";

const DEFAULT_NAMESPACE = "default";
/** Of all annotations of an object, keys included. */
const MAX_ANNOTATION_BYTES = 256 * 1024;
const UNKNOWN_FIELD = "is not a known field";
/** Every field of Kubernetes' ObjectMeta: what a cluster wrote out can be read in again. */
const METADATA_FIELDS: ReadonlySet<string> = new Set([
  "annotations",
  "creationTimestamp",
  "deletionGracePeriodSeconds",
  "deletionTimestamp",
  "finalizers",
  "generateName",
  "generation",
  "labels",
  "managedFields",
  "name",
  "namespace",
  "ownerReferences",
  "resourceVersion",
  "selfLink",
  "uid",
]);

/** A value that YAML or JSON gives for a map. */
export type Mapping = Readonly<Record<string, unknown>>;
export const isMapping = (value: unknown): value is Mapping =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** A fault and its path within the object. */
export type PlacedFault = Pick<Fault, "path" | "message">;

/**
 * What Kubernetes refuses around a spec: fields that it does not know, and labels, annotations and finalizers of a form that it
 * does not take.
 * @param known the names of the top-level fields.
 */
export function faultsAround(value: Mapping, known: ReadonlySet<string>): PlacedFault[] {
  const metadata = isMapping(value["metadata"]) ? value["metadata"] : {};
  const unknown = [
    ...Object.keys(value)
      .filter((key) => !known.has(key))
      .map((key) => [key]),
    ...Object.keys(metadata)
      .filter((key) => !METADATA_FIELDS.has(key))
      .map((key) => ["metadata", key]),
  ].map((path) => ({ path: pathText(path), message: UNKNOWN_FIELD }));
  const { labels, annotations, finalizers } = metadata;
  return [
    ...unknown,
    ...textFaults(["metadata", "labels"], labels, (key) => key, labelValueFault),
    // Kubernetes minds no capital letters here, not even in the prefix.
    ...textFaults(
      ["metadata", "annotations"],
      annotations,
      (key) => key.toLowerCase(),
      () => null,
    ),
    ...sizeFaults(annotations),
    ...finalizerFaults(finalizers),
  ];
}

/**
 * Judges labels or annotations. Kubernetes takes null, of all of them and of each, for absent.
 * @param judgedKey the key as Kubernetes judges it.
 * @param faultOf the message for a text; null: it is well.
 */
function textFaults(
  path: readonly string[],
  texts: unknown,
  judgedKey: (key: string) => string,
  faultOf: (text: string) => string | null,
): PlacedFault[] {
  if (texts === undefined || texts === null) return [];
  if (!isMapping(texts)) return [{ path: pathText(path), message: "must be an object" }];
  return Object.entries(texts).flatMap(([key, text]) => {
    const message =
      keyFault(judgedKey(key)) ??
      (text === null ? null : typeof text === "string" ? faultOf(text) : notText(text));
    return message === null ? [] : [{ path: pathText([...path, key]), message }];
  });
}

const keyFault = (key: string): string | null =>
  isLabelKey(key) ? null : `must have a name of ${LABEL_KEY_FORM}`;
const labelValueFault = (text: string): string | null =>
  isLabelValue(text) ? null : `must be ${LABEL_FORM}`;

function sizeFaults(annotations: unknown): PlacedFault[] {
  if (!isMapping(annotations)) return [];
  let bytes = 0;
  for (const [key, text] of Object.entries(annotations))
    bytes += Buffer.byteLength(key) + (typeof text === "string" ? Buffer.byteLength(text) : 0);
  if (bytes <= MAX_ANNOTATION_BYTES) return [];
  const message = `must have at most ${MAX_ANNOTATION_BYTES / 1024} KiB, keys included`;
  return [{ path: pathText(["metadata", "annotations"]), message }];
}

function finalizerFaults(finalizers: unknown): PlacedFault[] {
  if (finalizers === undefined || finalizers === null) return [];
  const path = ["metadata", "finalizers"];
  if (!Array.isArray(finalizers)) return [{ path: pathText(path), message: "must be a list" }];
  return finalizers.flatMap((name: unknown, index) => {
    const message = typeof name === "string" ? keyFault(name) : notText(name);
    return message === null ? [] : [{ path: pathText([...path, index]), message }];
  });
}

/** Returns the message for a field that is missing; null: it is there. */
export const missing = (value: unknown): string | null =>
  value === undefined || value === null || value === "" ? "is required" : null;

/** Where an object stands in a cluster, or what is wrong with that. */
export interface Metadata {
  readonly namespace: string | null;
  readonly name: string | null;
  readonly creationTimestamp: number | null;
  /** Path of the fault, when the name or the namespace is null. */
  readonly path: string;
  readonly message: string;
}

/** Reads an object's `metadata`. */
export function readMetadata(value: unknown): Metadata {
  const bad = (path: string, message: string): Metadata => ({
    namespace: null,
    name: null,
    creationTimestamp: null,
    path,
    message,
  });
  if (!isMapping(value)) return bad("metadata", missing(value) ?? "must be an object");
  const { name, namespace, creationTimestamp } = value;
  if (typeof name !== "string") return bad("metadata.name", missing(name) ?? notText(name));
  if (name.length > NAME.maxLength || !NAME.form.test(name))
    return bad("metadata.name", missing(name) ?? NAME.message);
  if (missing(namespace) === null) {
    if (typeof namespace !== "string") return bad("metadata.namespace", notText(namespace));
    if (!isNamespaceName(namespace)) return bad("metadata.namespace", `must be a name of ${NAMESPACE_FORM}`);
  }
  const created = typeof creationTimestamp === "string" ? Date.parse(creationTimestamp) : Number.NaN;
  return {
    namespace: typeof namespace === "string" && namespace !== "" ? namespace : DEFAULT_NAMESPACE,
    name,
    creationTimestamp: Number.isNaN(created) ? null : Math.floor(created / 1000),
    path: "",
    message: "",
  };
}
