/** When a status differs in meaning from what stands in the API server, and what is written then. */
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
  /** Only the number of pods of what waits for them: worth telling, not worth a write each time. */
  | { readonly kind: "count"; readonly status: Record<string, unknown> }
  /** Only the number of pods of what is served: nothing while a rollout is under way (rule 6.2). */
  | { readonly kind: "refresh"; readonly status: Record<string, unknown> }
  | { readonly kind: "meaning"; readonly status: Record<string, unknown> };

/** A Secret that is missing may still be on its way: whatever writes it (External Secrets) has so long (rule 6.4). */
const SECRET_GRACE_MS = 60_000;

/** Of each status that waits for a Secret the same without `Stalled`. */
const patient = new WeakMap<ObjectStatus, ObjectStatus>();

/**
 * The status that is to be written at `now` (Unix milliseconds), and when it may be another one: an object that only lacks
 * Secrets is not stalled before they have been missing for a minute, which its own status tells, also after a restart.
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
    resolved.every(({ reason }) => reason === "SecretNotFound");
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
 * The merge patch of `status` that makes `actual` say what is wanted. `lastTransitionTime` stays where a condition's
 * status does. `nowIso`: RFC 3339, whole seconds.
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

/** Of each wanted status what it was last held against. */
const compared = new WeakMap<ObjectStatus, { readonly actual: unknown; readonly kind: Change["kind"] }>();

/** 10,000 statuses are looked at several times for each edit: each pair is compared once. */
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
