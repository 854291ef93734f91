/** Types of what the operator observes and of what it says about it, the same for a folder and for a cluster. */
import type { Kind } from "../api/kinds.ts";

/** One declared object as it was found. */
export interface Declared {
  readonly kind: Kind;
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly generation: number;
  /** Unix seconds of the creation, where the source knows one; decides who is older. */
  readonly creationTimestamp: number | null;
  /** Unix seconds since when the object is known; shown as the model's age. */
  readonly createdAt: number;
  readonly spec: unknown;
  /** Faults that the source itself found; an object with any is not accepted. */
  readonly faults: readonly Fault[];
}

/** Values of Secrets, by `namespace/name` and data key. */
export type Secrets = ReadonlyMap<string, Readonly<Record<string, string>>>;

/** What is known of the Secrets that objects name. */
export interface KnownSecrets {
  readonly secrets: Secrets;
  /** The API server's words for each Secret (`namespace/name`) that is there and may not be read. */
  readonly forbidden: ReadonlyMap<string, string>;
}

export type AcceptedReason =
  | "Unreadable"
  | "Invalid"
  | "NotPermitted"
  | "Immutable"
  | "Conflicted"
  | "TooLarge";
export type ResolvedReason =
  | "PriceNotFound"
  | "SecretNotFound"
  | "SecretForbidden"
  | "SecretInvalid"
  | "ToolPolicyNotFound"
  | "ModelRouteNotFound";

/** One thing that a person has to mend. `path` stands from the object's root; empty: the object as a whole. */
export interface Fault<Reason extends string = AcceptedReason> {
  readonly reason: Reason;
  readonly path: string;
  readonly message: string;
}

/** What the compiler found out about one object. */
export interface Verdict {
  readonly object: Declared;
  /** Empty: `Accepted=True`. */
  readonly accepted: readonly Fault[];
  /** Empty: `ResolvedRefs=True`. */
  readonly resolved: readonly Fault<ResolvedReason>[];
  /** Generation of the object that the snapshot holds; an older one is the last good entry; null: none. */
  readonly serves: number | null;
  /** Things to know that are no fault; they stand in the message of `Accepted`. */
  readonly notes: readonly string[];
  /** Facts of the spec for the printer columns. */
  readonly facts: Readonly<Record<string, string | number>>;
}

/** A key to be made: it is declared, has no value anywhere and was never published. */
export interface WantedKey {
  readonly namespace: string;
  readonly secret: string;
  readonly key: string;
  readonly form: "inference" | "admin";
  /** The Organization that wants it. */
  readonly owner: Declared;
}

export const reference = (object: { readonly namespace: string; readonly name: string }): string =>
  `${object.namespace}/${object.name}`;

/** `spec.upstreams[0].headers["x-a b"]`: a path as people write it. */
export function pathText(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, step) => {
    if (typeof step === "number") return `${text}[${step}]`;
    const name = String(step);
    if (/^[A-Za-z_][-A-Za-z0-9_]*$/.test(name)) return text === "" ? name : `${text}.${name}`;
    return `${text}[${JSON.stringify(name)}]`;
  }, "");
}

/** What decides which object is older. */
export type Aged = Pick<Declared, "namespace" | "name" | "creationTimestamp">;

/**
 * Compares by age, oldest first: by creation time where there is one, then by namespace and name, so that a folder
 * without times has one order too (rule 1.12). An object without a time is younger than any with one.
 */
export function byAge(one: Aged, other: Aged): number {
  const times = [one.creationTimestamp ?? Infinity, other.creationTimestamp ?? Infinity] as const;
  if (times[0] !== times[1]) return times[0] < times[1] ? -1 : 1;
  return compareText(one.namespace, other.namespace) || compareText(one.name, other.name);
}

/** Code-unit order: the same on every machine, unlike a locale's. */
export const compareText = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0);
