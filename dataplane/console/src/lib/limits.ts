/** Limits as a form holds them: texts; an empty one means no limit. */
import type { Limits, LimitsChange } from "../api/schema.ts";
import type { Separators } from "./decimal.ts";

export const periods = ["day", "week", "month", "total"] as const;
export type Period = (typeof periods)[number];

export interface LimitsDraft {
  /** Credits in the page language's notation: `1.000` is a thousand in one language and one in another. */
  readonly amount: string;
  readonly per: Period;
  /** Ids, or prefixes with a `*`, separated by commas or spaces. */
  readonly models: string;
  readonly requests: string;
  readonly tokens: string;
  readonly concurrent: string;
}

export function draftOf(limits: Limits | null, { decimal }: Separators): LimitsDraft {
  const count = (value: number | null | undefined) => (value ?? "").toString();
  return {
    amount: (limits?.credits?.amount ?? "").replace(".", decimal),
    per: limits?.credits?.per ?? "month",
    models: (limits?.models ?? []).join(", "),
    requests: count(limits?.requests_per_minute),
    tokens: count(limits?.tokens_per_minute),
    concurrent: count(limits?.concurrent_requests),
  };
}

/** Returns only the changed fields, so that another person's change of another field stays. Null: none changed. */
export function changeOf(
  before: Limits | null,
  draft: LimitsDraft,
  separators: Separators,
): LimitsChange | null {
  const [old, wanted] = [fieldsOf(draftOf(before, separators), separators), fieldsOf(draft, separators)];
  const changed = Object.entries(wanted).filter(
    ([name, value]) => JSON.stringify(value) !== JSON.stringify(old[name as keyof LimitsChange]),
  );
  return changed.length === 0 ? null : Object.fromEntries(changed);
}

function fieldsOf(
  { amount, per, models, requests, tokens, concurrent }: LimitsDraft,
  { decimal }: Separators,
): Required<LimitsChange> {
  const count = (text: string) => (text.trim() === "" ? null : Number(text));
  const ids = models.split(/[\s,]+/).filter((id) => id !== "");
  return {
    credits: amount.trim() === "" ? null : { amount: amount.trim().replace(decimal, "."), per },
    models: ids.length === 0 ? null : ids,
    requests_per_minute: count(requests),
    tokens_per_minute: count(tokens),
    concurrent_requests: count(concurrent),
  };
}

/** Returns an expiry in the form of the browser's field: UTC to the minute, empty for never. */
export const expiryDraft = (expiresAt: string | null): string => expiresAt?.slice(0, 16) ?? "";
export const expiryOf = (draft: string): string | null => (draft === "" ? null : `${draft.slice(0, 16)}:00Z`);
