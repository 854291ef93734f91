/** Limits and their standings as the admin API reads and shows them (rules 9.4, 9.5). */
import { z } from "zod";
import { creditsText, parseCredits } from "../../billing/credits.ts";
import type { Holds } from "../../billing/holds/holds.ts";
import type { Standing } from "../../billing/holds/standings.ts";
import { amountOf, anewText, type LimitedScope } from "../../billing/scopes.ts";
import { limitBounds, limitPeriods, MODEL_PATTERN, type Limits } from "../../config/schema.ts";
import type { ApiKey } from "../../identity/keys.ts";
import { scopesOfKeys, type LimitsChange } from "../../identity/limits.ts";
import type { CommonQueryMethods } from "slonik";
import { ApiError } from "../../lib/api-error.ts";
import { firstIssue, issueWords } from "./issue-words.ts";

const count = z.int().min(1).max(limitBounds.count).nullable().optional();
/** The form of `limits` in a body. */
export const limitsForm = z.strictObject({
  credits: z
    .strictObject({
      amount: z
        .string()
        .regex(/^\d+(\.\d{1,6})?$/, 'must be credits such as "500" or "2.5", with at most six decimals')
        .refine((text) => parseCredits(text) !== null, `must be at most ${limitBounds.credits}`),
      per: z.enum(limitPeriods),
    })
    .nullable()
    .optional(),
  models: z
    .array(z.string().max(limitBounds.modelCharacters).regex(MODEL_PATTERN.form, MODEL_PATTERN.message))
    .min(1)
    .max(limitBounds.models)
    .nullable()
    .optional(),
  requests_per_minute: count,
  tokens_per_minute: count,
  concurrent_requests: count,
});

/** undefined: limits are not mentioned; null: all are removed. @throws ApiError 400 with the path of the field. */
export function readLimits(value: unknown): LimitsChange | null | undefined {
  if (value === undefined || value === null) return value;
  const read = limitsForm.safeParse(value, { reportInput: true });
  if (!read.success) {
    const issue = firstIssue(read.error.issues);
    const unknown = issue?.code === "unrecognized_keys" ? issue.keys : [];
    const path = ["limits", ...(issue?.path ?? []).map(String), ...unknown.slice(0, 1)]
      .join(".")
      .slice(0, 200);
    const why = issue === undefined ? "is not valid" : issueWords(issue);
    throw new ApiError("invalid_value", `${path}: ${why}.`, { param: path });
  }
  const { credits, models, requests_per_minute, tokens_per_minute, concurrent_requests } = read.data;
  const change = {
    credits: credits && { amountMicros: (parseCredits(credits.amount) ?? 0n).toString(), per: credits.per },
    models,
    requestsPerMinute: requests_per_minute,
    tokensPerMinute: tokens_per_minute,
    concurrentRequests: concurrent_requests,
  };
  const said = Object.entries(change).filter(([, field]) => field !== undefined);
  return Object.fromEntries(said);
}

/** Limits as the admin API shows them (rule 9.5): null where none is set. */
export function limitsObject(limits: Limits | null) {
  if (limits === null) return null;
  const { credits, models, requestsPerMinute, tokensPerMinute, concurrentRequests } = limits;
  return {
    credits: credits === undefined ? null : { amount: creditsText(amountOf(credits)), per: credits.per },
    models: models ?? null,
    requests_per_minute: requestsPerMinute ?? null,
    tokens_per_minute: tokensPerMinute ?? null,
    concurrent_requests: concurrentRequests ?? null,
  };
}

function standingObject({ scope: { kind, limits }, spent, held, beginsAnewAt }: Standing) {
  const { credits } = limits;
  const amount = credits === undefined ? 0n : amountOf(credits);
  const left = amount - spent - held;
  return {
    scope: kind,
    per: credits?.per ?? "total",
    amount: creditsText(amount),
    spent: creditsText(spent),
    held: creditsText(held),
    left: creditsText(left > 0n ? left : 0n),
    begins_anew_at: anewText(beginsAnewAt),
  };
}

export interface StandingNeeds {
  readonly pool: CommonQueryMethods;
  readonly holds: Pick<Holds, "standing">;
}

/** Reads how the credit limits of keys stand; the result makes the shown form of one key. */
export async function standingsOfKeys(
  { pool, holds }: StandingNeeds,
  organizationId: string,
  keyIds: readonly string[],
): Promise<(keyId: string) => readonly ReturnType<typeof standingObject>[]> {
  const scopesOf = await scopesOfKeys(pool, keyIds);
  const standings = await holds.standing.limits(organizationId, keyIds.map(scopesOf));
  const places = new Map(keyIds.map((id, index) => [id, index]));
  return (keyId) => (standings[places.get(keyId) ?? -1] ?? []).map(standingObject);
}

/** Functions that show keys as `keyObject` does, with how their limits stand. */
export function showKeys<Shown extends object>(
  { pool, holds }: StandingNeeds,
  keyObject: (key: ApiKey, organizationId: string) => Shown,
) {
  /** Returns a function that shows each of these keys. */
  const shown = async (organizationId: string, keys: readonly ApiKey[], from: CommonQueryMethods = pool) => {
    const ids = keys.map(({ id }) => id);
    const standings = await standingsOfKeys({ pool: from, holds }, organizationId, ids);
    return (key: ApiKey) => ({ ...keyObject(key, organizationId), standing: standings(key.id) });
  };
  const shownOne = async (organizationId: string, key: ApiKey, from: CommonQueryMethods = pool) =>
    (await shown(organizationId, [key], from))(key);
  return { shown, shownOne };
}

/** As `standingsOfKeys`, of projects. */
export async function standingsOfProjects(
  holds: StandingNeeds["holds"],
  organizationId: string,
  projects: readonly { readonly id: string; readonly limits: Limits | null }[],
) {
  const scopes = projects.map(({ id, limits }): readonly LimitedScope[] =>
    limits === null ? [] : [{ kind: "project", id, limits }],
  );
  const standings = await holds.standing.limits(organizationId, scopes);
  const places = new Map(projects.map(({ id }, index) => [id, index]));
  return (projectId: string) => (standings[places.get(projectId) ?? -1] ?? []).map(standingObject);
}
