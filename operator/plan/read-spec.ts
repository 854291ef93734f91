/** Reads a spec as it stood in the manifest: into a typed spec, or into faults with paths. */
import { isDeepStrictEqual } from "node:util";
import type { z } from "zod";
import { type Kind, kinds } from "../api/kinds.ts";
import { type Declared, type Fault, pathText } from "./objects.ts";

/** At most this many faults are named for one object; the first ones help most. */
const MAX_FAULTS = 20;
/** Deepest nesting of a spec; the deepest kind has less than a third of this. */
const MAX_DEPTH = 32;

export type ReadSpec =
  | { readonly ok: true; readonly spec: unknown }
  | { readonly ok: false; readonly faults: readonly Fault[] };

/**
 * Results by spec, so that each is judged once: a source passes the same object again while it has not changed. By
 * kind, because a YAML alias may make one object the spec of several.
 */
const judged: Readonly<Record<Kind, WeakMap<object, ReadSpec>>> = {
  ModelRoute: new WeakMap(),
  ToolPolicy: new WeakMap(),
  PriceTable: new WeakMap(),
  Organization: new WeakMap(),
};

/** Checks a spec by schema and semantic rules of its kind; faults that the source found come first. */
export function readSpec(object: Declared): ReadSpec {
  if (object.faults.length === 0) return judgeOnce(object);
  // Those around the spec come first. What was not read, or may not be declared, is not judged.
  const isRead = object.faults.every(({ reason }) => reason === "Invalid");
  const read = isRead ? judgeOnce(object) : null;
  const inside = read === null || read.ok ? [] : read.faults;
  return { ok: false, faults: [...object.faults, ...inside] };
}

function judgeOnce(object: Declared): ReadSpec {
  const { spec } = object;
  if (typeof spec !== "object" || spec === null) return judge(object.kind, spec);
  let result = judged[object.kind].get(spec);
  if (result === undefined) {
    result = judge(object.kind, spec);
    judged[object.kind].set(spec, result);
  }
  return result;
}

function judge(kind: Kind, given: unknown): ReadSpec {
  const schema = kinds[kind].spec;
  let spec = given;
  let unknown: readonly z.core.$ZodIssue[] = [];
  if (needsCare(given, 0)) {
    const forbidden = forbiddenKey(given, ["spec"]);
    if (forbidden !== null) return { ok: false, faults: [forbidden] };
    spec = withoutNulls(given);
    // Null counts as absent in known fields only: an unknown one is a fault all the same.
    const issues = schema.safeParse(given).error?.issues ?? [];
    unknown = issues.filter(({ code }) => code === "unrecognized_keys");
  }
  const result = schema.safeParse(spec, { reportInput: true });
  // Mostly the schema adds and removes nothing: then one copy is enough.
  if (result.success && unknown.length === 0)
    return { ok: true, spec: isDeepStrictEqual(result.data, spec) ? spec : result.data };
  const issues = [...(result.error?.issues ?? []), ...unknown];
  // The bounds that all exact integers have come last: a field's own bounds say what it may be.
  const sorted = issues.toSorted(
    (one, other) => Number(isOfAllIntegers(one)) - Number(isOfAllIntegers(other)),
  );
  const faults = sorted.flatMap((issue) => faultsOf(issue, ["spec"]));
  return { ok: false, faults: firstOnes(firstOfEachPath(faults)) };
}

/** The last of the faults that are named says how many are not. */
function firstOnes(faults: readonly Fault[]): Fault[] {
  const more = faults.length - MAX_FAULTS;
  if (more <= 0) return [...faults];
  return faults.slice(0, MAX_FAULTS).map((fault, index) => {
    if (index < MAX_FAULTS - 1) return fault;
    return {
      ...fault,
      message: `${fault.message}; the object has ${more} more fault${more === 1 ? "" : "s"}`,
    };
  });
}

const isOfAllIntegers = (issue: z.core.$ZodIssue): boolean =>
  (issue.code === "too_small" || issue.code === "too_big") && issue.origin === "int";

/** Whether the value holds null, `__proto__` or too much depth. Few do, and looking is quicker than copying. */
function needsCare(value: unknown, depth: number): boolean {
  if (typeof value !== "object") return false;
  if (value === null || depth > MAX_DEPTH) return true;
  for (const key in value)
    if (key === "__proto__" || needsCare((value as Record<string, unknown>)[key], depth + 1)) return true;
  return false;
}

/** Finds `__proto__`, which parsers drop rather than judge, and depth that would exhaust the stack. */
function forbiddenKey(value: unknown, path: readonly PropertyKey[]): Fault | null {
  if (typeof value !== "object" || value === null) return null;
  if (path.length > MAX_DEPTH)
    return { reason: "Invalid", path: pathText(path), message: "is nested too deeply" };
  for (const [key, inner] of Object.entries(value)) {
    const here = [...path, Array.isArray(value) ? Number(key) : key];
    if (key === "__proto__")
      return { reason: "Invalid", path: pathText(here), message: "is not a known field" };
    const fault = forbiddenKey(inner, here);
    if (fault !== null) return fault;
  }
  return null;
}

/** Keeps one fault of each path: a value of the wrong form breaks rules of its content too, but its form is at fault. */
function firstOfEachPath(faults: readonly Fault[]): Fault[] {
  const seen = new Set<string>();
  return faults.filter(({ path }) => !seen.has(path) && seen.add(path));
}

/** Removes fields that are null: they count as absent, as the API server prunes them. */
function withoutNulls(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(withoutNulls);
  const kept = Object.entries(value).filter(([, inner]) => inner !== null);
  return Object.fromEntries(kept.map(([key, inner]) => [key, withoutNulls(inner)]));
}

function faultsOf(issue: z.core.$ZodIssue, root: readonly PropertyKey[]): Fault[] {
  const path = [...root, ...issue.path];
  if (issue.code === "unrecognized_keys")
    return issue.keys.map((key) => ({
      reason: "Invalid",
      path: pathText([...path, key]),
      message: "is not a known field",
    }));
  return [{ reason: "Invalid", path: pathText(path), message: wording(issue) }];
}

const article: Readonly<Record<string, string>> = {
  boolean: "true or false",
  int: "an integer",
  number: "a number",
  array: "a list",
  object: "an object",
  record: "an object",
};

/** One short sentence for each kind of issue; never the value itself, which may be a secret in the wrong place. */
function wording(issue: z.core.$ZodIssue): string {
  if (issue.input === undefined && issue.code !== "custom") return "is required";
  switch (issue.code) {
    case "invalid_type":
      return issue.expected === "string"
        ? notText(issue.input)
        : `must be ${article[issue.expected] ?? issue.expected}${writtenOtherwise(issue)}`;
    case "invalid_value":
      return `must be ${issue.values.length === 1 ? "" : "one of "}${issue.values.map(String).join(", ")}`;
    case "too_small":
      return `must ${bound(issue.origin, "least", issue.minimum)}`;
    case "too_big":
      return `must ${bound(issue.origin, "most", issue.maximum)}`;
    case "invalid_format":
      // Every pattern has a message that says what it wants.
      return issue.message;
    case "invalid_key":
      return "is not a valid key";
    default:
      return issue.message;
  }
}

/** Returns the message for a value that must be text: YAML reads text that looks like a number as a number. */
export const notText = (value: unknown): string =>
  `must be a string${typeof value === "number" || typeof value === "boolean" ? ", in quotes" : ""}`;

/** Explains words that kubectl, which reads YAML 1.1, takes for booleans: in YAML 1.2 they are text. */
function writtenOtherwise({ expected, input }: z.core.$ZodIssueInvalidType): string {
  return expected === "boolean" && typeof input === "string" && /^(y|yes|n|no|on|off)$/i.test(input)
    ? "; yes, no, on and off are text in YAML 1.2"
    : "";
}

function bound(origin: string, side: "least" | "most", value: number | bigint): string {
  const count = `at ${side} ${value}`;
  if (origin === "string") return `have ${count} character${value === 1 ? "" : "s"}`;
  if (origin === "array") return `have ${count} ${value === 1 ? "entry" : "entries"}`;
  return `be ${count}`;
}
