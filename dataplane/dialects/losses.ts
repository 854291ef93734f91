/**
 * Applies the field table (request-fields.ts) to a request: dropped fields are named, fields that may not be dropped
 * are refused.
 */
import { ApiError } from "../lib/api-error.ts";
import { isObject } from "../lib/json-object.ts";
import type { Carry } from "./codecs.ts";
import type { DropListener } from "./drop-listener.ts";
import { fieldError } from "./cursor.ts";
import type { Dialect } from "./dialect.ts";
import { dialectErrorFamily } from "./errors.ts";
import type { FieldRule } from "./field-rule.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";
import { fields } from "./request-fields.ts";

/** The table's rows of one dialect by name parts, so that a body is walked once and only where rows are. */
interface Branch {
  row?: FieldRule;
  readonly below: Map<string, Branch>;
}

function grow(rows: readonly FieldRule[]): Branch {
  const root: Branch = { below: new Map() };
  for (const row of rows) {
    let branch = root;
    for (const part of row.name.split(".")) {
      const next = branch.below.get(part) ?? { below: new Map<string, Branch>() };
      branch.below.set(part, next);
      branch = next;
    }
    branch.row = row;
  }
  return root;
}

const trees: Readonly<Record<Dialect, Branch>> = {
  messages: grow(fields.messages),
  chat: grow(fields.chat),
  responses: grow(fields.responses),
};

/** A field that is present and not neutral; `row` is null for one that is unknown or not served. */
interface Found {
  readonly name: string;
  readonly row: FieldRule | null;
}

const isNeutral = (row: FieldRule, value: JsonValue): boolean => {
  if (row.listIsHistory === true && Array.isArray(value)) return true;
  if (row.neutral === undefined) return false;
  if (row.neutral === "any") return true;
  const text = JSON.stringify(value);
  return row.neutral.some((neutral) => JSON.stringify(neutral) === text);
};

type IsServed = (row: FieldRule, value: JsonValue) => boolean;

/** Whether a value may cross toward `target`. */
const crosses = ({ crossing }: FieldRule, value: JsonValue, target: Dialect): boolean =>
  crossing?.[target]?.some((one) => one === value) ?? true;

/** Whether a value, or all elements of a list, are served toward `target`. */
const isServedToward =
  ({ serverTools, compacts }: Carry, target: Dialect): IsServed =>
  (row, value) => {
    const { served, servedToward } = row;
    if (!crosses(row, value, target)) return false;
    if (served === undefined || !Array.isArray(value)) return true;
    const all = serverTools || compacts ? served : [...served, ...(servedToward?.[target] ?? [])];
    return value.every((element) => all.some((name) => name === element));
  };

/** Whether the field is dropped, whatever the target. */
const hasNoPlace = ({ droppedWithServerTools, droppedWithSummary }: FieldRule, carry: Carry): boolean =>
  (droppedWithServerTools === true && carry.serverTools) || (droppedWithSummary === true && carry.compacts);

const isKept = ({ keptInRole }: FieldRule, role: JsonValue | undefined): boolean =>
  keptInRole === undefined || role === keptInRole;

/**
 * Yields fields with a row, and unknown values inside of known objects and lists, or in their place.
 * @param around the `role` of the turn around the value.
 */
function* presentIn(
  value: JsonValue,
  branch: Branch,
  isServed: IsServed,
  around?: JsonValue,
): Generator<Found> {
  if (Array.isArray(value)) for (const element of value) yield* presentIn(element, branch, isServed, around);
  else if (!isObject(value) && branch.row?.holds?.length === 0) yield { name: branch.row.name, row: null };
  if (!isObject(value)) return;
  // Only a `role` that the object's row holds is a turn's role.
  const role = branch.row?.holds?.includes("role") === true ? value["role"] : around;
  for (const [key, next] of branch.below) {
    const found = Object.hasOwn(value, key) ? value[key] : undefined;
    if (found === undefined || found === null) continue;
    if (next.row?.usedInRole !== undefined && value["role"] === next.row.usedInRole) continue;
    if (next.row !== undefined && !isNeutral(next.row, found)) yield { name: next.row.name, row: next.row };
    if (next.row !== undefined && !(isServed(next.row, found) && isKept(next.row, role)))
      yield { name: next.row.name, row: null };
    if (next.below.size > 0 || next.row?.holds !== undefined) yield* presentIn(found, next, isServed, role);
  }
  const { row } = branch;
  if (row?.holds === undefined) return;
  for (const key of Object.keys(value))
    if (!row.holds.includes(key) && !branch.below.has(key) && value[key] !== null)
      yield { name: `${row.name}.${key}`, row: null };
}

/**
 * Names every field of the client's body that is lost toward `target`, and refuses those that may not be.
 * Unknown fields, nested ones too, never cross between dialects, and are named as well.
 * @throws ApiError `unsupported_parameter` for a refused field.
 */
export function noteLosses(carry: Carry, target: Dialect, notes: DropListener): void {
  const known = trees[carry.dialect].below;
  // A Messages request is copied for a Messages upstream, with whatever stands in it.
  const isCopied = carry.dialect === "messages" && target === "messages";
  for (const { name, row } of presentIn(carry.request, trees[carry.dialect], isServedToward(carry, target))) {
    if (row === null) {
      if (!isCopied) notes.dropped(name);
      continue;
    }
    const handling = row.to[target];
    if (handling === "refused") throw refusal(carry.dialect, name);
    if (handling === "dropped" || hasNoPlace(row, carry)) notes.dropped(name);
  }
  if (isCopied) return;
  for (const [key, value] of Object.entries(carry.request))
    if (!known.has(key) && value !== null) notes.dropped(key);
}

/** The error for a field that no conversion may leave out. */
function refusal(dialect: Dialect, name: string): ApiError {
  if (dialect === "messages" && name === "thread")
    return new ApiError("thread_unsupported", "thread: message threads are not supported here", {
      param: name,
      details: { unsupported: ["thread"] },
    });
  return fieldError(
    dialectErrorFamily[dialect],
    name,
    "this parameter is not supported here",
    "unsupported_parameter",
  );
}

/** Writes the fields that cross beside the hub (rule 2.1) into a request for `target`. */
export function copyCarried(carry: Carry, target: Dialect, body: JsonObject): void {
  for (const row of fields[carry.dialect]) {
    const handling = row.to[target];
    if (typeof handling !== "object" || hasNoPlace(row, carry)) continue;
    const value = valueAt(carry.request, row.name.split("."));
    if (value !== undefined && crosses(row, value, target)) setAt(body, handling.copiedTo.split("."), value);
  }
}

function valueAt(object: JsonObject, path: readonly string[]): JsonValue | undefined {
  let value: JsonValue | undefined = object;
  for (const part of path) value = isObject(value) && Object.hasOwn(value, part) ? value[part] : undefined;
  return value ?? undefined;
}

function setAt(object: JsonObject, path: readonly string[], value: JsonValue): void {
  const [key = "", ...rest] = path;
  if (rest.length === 0) {
    object[key] = value;
    return;
  }
  const below = object[key];
  const next = isObject(below) ? below : {};
  object[key] = next;
  setAt(next, rest, value);
}

/** Most names that are sent; a client's own unknown fields are among them. */
const NAMES_MAX = 50;

/** Refuses, under strict, a request that would lose fields: up to `NAMES_MAX` are named, the first is `param`. */
export function refuseDrops(names: readonly string[]): void {
  const [first] = names;
  if (first === undefined) return;
  const listed = names.slice(0, NAMES_MAX).join(", ");
  throw new ApiError(
    "unsupported_parameter",
    `${listed}: this model's upstream has no place for ${names.length === 1 ? "this field" : "these fields"}, and x-gapura-strict forbids dropping ${names.length === 1 ? "it" : "them"}`,
    { param: first },
  );
}

/** Collects the names of dropped fields. */
export class DropNotes implements DropListener {
  readonly #strict: boolean;
  readonly #names = new Set<string>();

  constructor(strict: boolean) {
    this.#strict = strict;
  }

  dropped(field: string): void {
    this.#names.add(field);
  }

  /** @throws ApiError 400 under strict when anything was dropped. */
  judge(): void {
    if (this.#strict) refuseDrops([...this.#names]);
  }

  /** As `droppedHeader`. */
  header(): string | null {
    return droppedHeader([...this.#names]);
  }
}

/** Returns the value of `x-gapura-dropped`; null when nothing was dropped. */
export function droppedHeader(dropped: readonly string[]): string | null {
  if (dropped.length === 0) return null;
  // A client's own field name may hold anything; a header may not.
  const names = [...new Set(dropped)]
    .slice(0, NAMES_MAX)
    .map((name) => name.slice(0, 80).replaceAll(/[^A-Za-z0-9_.:-]/g, "_"));
  return [...new Set(names)].join(", ");
}
