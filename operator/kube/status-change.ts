/** Decides whether a status differs in meaning from the one in the API server, and what is written then. */
import { z } from "zod";
import type { Condition, ObjectStatus } from "../plan/conditions.ts";

const statusSchema = z.looseObject({
  observedGeneration: z.number().optional(),
  conditions: z
    .array(
      z.looseObject({
        type: z.string(),
        status: z.string(),
        reason: z.string().optional(),
        message: z.string().optional(),
        observedGeneration: z.number().optional(),
        lastTransitionTime: z.string().optional(),
      }),
    )
    .optional(),
});
type Actual = z.infer<typeof statusSchema>;

export type Change =
  | { readonly kind: "none" }
  /** Only the number of pods, in a condition that waits for them: worth showing, not worth a write each time. */
  | { readonly kind: "count"; readonly status: Record<string, unknown> }
  /** Only the number of pods, of an object that is served: no write while a rollout is under way (rule 6.2). */
  | { readonly kind: "refresh"; readonly status: Record<string, unknown> }
  | { readonly kind: "meaning"; readonly status: Record<string, unknown> };

/** How long a Secret may still be on its way from what writes it, such as External Secrets, or the right to read it (rule 6.4). */
const SECRET_GRACE_MS = 60_000;

/** For each status that waits for a Secret, the same status without `Stalled`. */
const patient = new WeakMap<ObjectStatus, ObjectStatus>();

/**
 * Returns the status to write at `now` (Unix milliseconds), and in how many milliseconds it may change: an object that only
 * lacks Secrets is not stalled before they have been missing for a minute. Its own status shows since when, also after a restart.
 */
export function statusAt(
  wanted: ObjectStatus,
  actual: unknown,
  now: number,
): { readonly status: ObjectStatus; readonly inMs: number | null } {
  const { accepted, resolved } = wanted.verdict;
  const missing =
    accepted.length === 0 &&
    resolved.length > 0 &&
    resolved.every(({ reason }) => reason === "SecretNotFound" || reason === "SecretForbidden");
  if (!missing) return { status: wanted, inMs: null };
  const conditions = readStatus(actual).conditions ?? [];
  const since = conditions.find(({ type, status }) => type === "ResolvedRefs" && status === "False");
  const inMs = Date.parse(since?.lastTransitionTime ?? "") + SECRET_GRACE_MS - now;
  if (inMs <= 0) return { status: wanted, inMs: null };
  const status = patient.get(wanted) ?? {
    ...wanted,
    conditions: wanted.conditions.filter(({ type }) => type !== "Stalled"),
  };
  patient.set(wanted, status);
  return { status, inMs: Number.isNaN(inMs) ? SECRET_GRACE_MS : inMs };
}

/**
 * Returns the merge patch that turns the status `actual` into the wanted one. `lastTransitionTime` stays where a
 * condition's status does. `nowIso`: RFC 3339, whole seconds.
 */
export function statusChange(wanted: ObjectStatus, actual: unknown, nowIso: string): Change {
  const current = readStatus(actual);
  const before = new Map((current.conditions ?? []).map((condition) => [condition.type, condition]));
  const conditions = wanted.conditions.map((condition) => {
    const last = before.get(condition.type);
    const kept = last?.status === condition.status ? last.lastTransitionTime : undefined;
    return { ...condition, lastTransitionTime: kept ?? nowIso };
  });
  const status: Record<string, unknown> = {
    observedGeneration: wanted.observedGeneration,
    conditions,
    ...wanted.facts,
  };
  for (const key of Object.keys(current)) if (!Object.hasOwn(status, key)) status[key] = null;
  const kind = changeKind(wanted, actual);
  return kind === "none" ? { kind } : { kind, status };
}

/** For each wanted status, the last comparison. */
const compared = new WeakMap<ObjectStatus, { readonly actual: unknown; readonly kind: Change["kind"] }>();

/** Compares two statuses. 10,000 are looked at several times for each edit, so each pair is compared only once. */
export function changeKind(wanted: ObjectStatus, actual: unknown): Change["kind"] {
  const last = compared.get(wanted);
  if (last !== undefined && last.actual === actual) return last.kind;
  const kind = difference(wanted, readStatus(actual));
  compared.set(wanted, { actual, kind });
  return kind;
}

const readStatus = (actual: unknown): Actual => statusSchema.safeParse(actual).data ?? {};

function difference(wanted: ObjectStatus, current: Actual): Change["kind"] {
  if (current.observedGeneration !== wanted.observedGeneration) return "meaning";
  for (const [key, value] of Object.entries(wanted.facts)) if (current[key] !== value) return "meaning";
  for (const [key, value] of Object.entries(current)) {
    const isOurs = key === "observedGeneration" || key === "conditions" || Object.hasOwn(wanted.facts, key);
    if (!isOurs && value !== null) return "meaning";
  }
  const actual = current.conditions ?? [];
  if (actual.length !== wanted.conditions.length) return "meaning";
  let kind: Change["kind"] = "none";
  for (const condition of wanted.conditions) {
    const found = actual.find(({ type }) => type === condition.type);
    const same =
      found?.status === condition.status &&
      found.reason === condition.reason &&
      found.observedGeneration === condition.observedGeneration;
    if (!same) return "meaning";
    if (found.message === condition.message) continue;
    if (withoutCount(found.message ?? "") !== withoutCount(condition.message)) return "meaning";
    if (kind !== "count") kind = isServed(condition) ? "refresh" : "count";
  }
  return kind;
}

const withoutCount = (message: string) => message.replace(/^\d+\/\d+ pods/, "");

const isServed = ({ type, status }: Condition) =>
  (type === "Programmed" || type === "Ready") && status === "True";
