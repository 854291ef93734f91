/** How the keys of a run of money-run.ts are limited, and what rule 9 says of what was spent, and of who asks next. */
import { sql, type DatabasePool } from "slonik";
import { expect } from "vitest";
import { z } from "zod";
import type { CurrentKey } from "../../dataplane/billing/holds/held-bill.ts";
import type { MeteredRequest } from "../../dataplane/billing/meter.ts";
import { windowOf, type LimitedScope } from "../../dataplane/billing/scopes.ts";
import type { LimitPeriod, Limits } from "../../dataplane/config/schema.ts";
import { DAY_MS } from "../../dataplane/lib/clock.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import type { Plane } from "./money-world.ts";
import { request } from "./money-world.ts";

const credits = (amount: number, per: LimitPeriod): Limits => ({
  credits: { amountMicros: String(amount), per },
});

/** How an organization's keys may be limited: the first key by day, the second in total, and their project by month. */
const VARIANTS = [
  { own: 150, shared: 250, project: 0 },
  { own: 90, shared: 300, project: 1 },
  { own: null, shared: 200, project: 0 },
  { own: null, shared: null, project: 1 },
] as const;

/** What a request may have cost, and the largest cost that was within its estimates. */
interface Spent {
  readonly request: MeteredRequest;
  readonly cost: number;
  readonly limit: number;
}

export class RunLimits {
  readonly #id: string;
  /** Of each organization: the variant, and the key epoch since which it holds. */
  readonly #now = [
    { variant: 0, keyEpoch: 1 },
    { variant: 0, keyEpoch: 1 },
  ];
  /** The most that a key or project was limited to since the run began; infinite: there was a time without a limit. */
  readonly #amounts = new Map<string, number>();
  /** Now, the two sides of the last midnight, and the end of the last month. */
  readonly moments: readonly number[];

  constructor(id: string) {
    this.#id = id;
    const now = Date.now();
    const midnight = now - (now % DAY_MS);
    this.moments = [now, midnight, midnight - 1, windowOf("month", now).from * DAY_MS - 1];
    for (const organization of [0, 1]) this.#note(organization);
  }

  /** The first and the second key of each organization. */
  keyId = (organization: number, key: number) => `apikey_${this.#id}_${organization}_${key}`;

  /** A key as it is now. */
  keyNow(keyId: string): CurrentKey {
    const [organization = 0, key = 0] = keyId.split("_").slice(-2).map(Number);
    const { variant, keyEpoch } = this.#now[organization] ?? { variant: 0, keyEpoch: 1 };
    const { own, shared, project } = VARIANTS[variant] ?? VARIANTS[0];
    const projectId = `proj_${this.#id}_${organization}_${project}`;
    const limits: LimitedScope[] = [];
    if (own !== null)
      limits.push({ kind: "key", id: keyId, limits: credits(own, key === 0 ? "day" : "total") });
    if (shared !== null) limits.push({ kind: "project", id: projectId, limits: credits(shared, "month") });
    return { keyEpoch, projectId, limits };
  }

  /** Its limits now, in a project that it may have left: that has none of its own then. */
  limitsOf(keyId: string, projectId: string): Pick<CurrentKey, "limits" | "keyEpoch"> {
    const { limits, keyEpoch } = this.keyNow(keyId);
    return { limits: limits.filter(({ kind, id }) => kind === "key" || id === projectId), keyEpoch };
  }

  change(organization: number, variant: number): void {
    const now = this.#now[organization];
    if (now === undefined) throw new Error("no such organization");
    now.variant = variant;
    now.keyEpoch += 1;
    this.#note(organization);
  }

  /** What its keys, and the project they are in now, are limited to now. */
  #note(organization: number): void {
    for (const key of [0, 1]) {
      const { projectId, limits } = this.keyNow(this.keyId(organization, key));
      for (const id of [this.keyId(organization, key), projectId]) {
        const amount = Number(limits.find((one) => one.id === id)?.limits.credits?.amountMicros ?? Infinity);
        this.#amounts.set(id, Math.max(this.#amounts.get(id) ?? 0, amount));
      }
    }
  }

  /** Rule 9.1: no window of a scope has more than the most that its limit ever was, plus one request. */
  judgeOverdraft(spent: readonly Spent[]): void {
    for (const [id, amount] of this.#amounts) {
      const mine = spent.filter(({ request: one }) => one.keyId === id || one.projectId === id);
      const windows = Map.groupBy(mine, ({ request: one }) => windowOf(perOf(id), one.acceptedAt).from);
      for (const [from, them] of windows) {
        const used = them.reduce((sum, { cost }) => sum + cost, 0);
        const largest = Math.max(...them.map(({ limit }) => limit));
        expect(used, `${id} from ${from}`).toBeLessThanOrEqual(amount + largest);
      }
    }
  }

  /** Of a request that was told that a limit is spent: of what it had when it asked, or has since, one is. */
  judgeRefusal(
    spent: readonly Spent[],
    {
      keyId,
      acceptedAt,
      kind,
      limits,
    }: Pick<MeteredRequest, "keyId" | "acceptedAt" | "limits"> & Pick<LimitedScope, "kind">,
  ): void {
    const rooms = [...limits, ...this.keyNow(keyId).limits]
      .filter((scope) => scope.kind === kind)
      .map((scope) => {
        const { amountMicros = "0", per = "total" } = scope.limits.credits ?? {};
        const { from } = windowOf(per, acceptedAt);
        const used = spent
          .filter(({ request: one }) => (kind === "key" ? one.keyId : one.projectId) === scope.id)
          .filter(({ request: one }) => windowOf(per, one.acceptedAt).from === from)
          .reduce((sum, { cost }) => sum + cost, 0);
        return Number(amountMicros) - used;
      });
    expect(Math.min(...rooms), `${keyId} is told that its ${kind}'s limit is spent`).toBeLessThanOrEqual(0);
  }

  /** Rule 9.2: what each scope is said to have spent is the sum of its rows, and who asks next is answered by that. */
  async judge(plane: Plane, organizationIds: readonly string[]): Promise<void> {
    for (const [organization, organizationId] of organizationIds.entries()) {
      const { granted, used } = await plane.holds.standing.credit(organizationId);
      for (const key of [0, 1]) {
        const keyId = this.keyId(organization, key);
        const now = this.keyNow(keyId);
        const [standings = []] = await plane.holds.standing.limits(organizationId, [now.limits]);
        for (const { scope, spent, held } of standings) {
          const counted = await spentIn(plane.pool, scope, Date.now());
          expect({ id: scope.id, spent, held }).toEqual({ id: scope.id, spent: counted, held: 0n });
        }
        for (const acceptedAt of this.moments) {
          const reasons = used >= granted ? ["insufficient_credit"] : [];
          for (const scope of now.limits)
            if (
              (await spentIn(plane.pool, scope, acceptedAt)) >=
              BigInt(scope.limits.credits?.amountMicros ?? 0)
            )
              reasons.push(`${scope.kind}_limit_reached`);
          const asked = request(organizationId, { ...now, keyId, limitsEpoch: now.keyEpoch, acceptedAt });
          const outcome = () => admitted(plane, asked);
          const right = reasons.length === 0 ? ["admitted"] : reasons;
          await expect.poll(outcome, { timeout: 20_000, message: keyId }).toBeOneOf(right);
        }
      }
    }
  }
}

/** The first key of an organization is limited by day, the second in total. */
const perOf = (id: string): LimitPeriod =>
  id.startsWith("proj_") ? "month" : id.endsWith("_0") ? "day" : "total";

/** How a request that is not made after all is received. */
async function admitted(plane: Plane, asked: MeteredRequest): Promise<string> {
  try {
    await (await plane.holds.open(asked, 1n)).release();
    return "admitted";
  } catch (error) {
    if (error instanceof ApiError) return error.code;
    throw error;
  }
}

/** By the rows alone, in the window of a moment. */
async function spentIn(pool: DatabasePool, { kind, id, limits }: LimitedScope, at: number): Promise<bigint> {
  const { from, to } = windowOf(limits.credits?.per ?? "total", at);
  const column = sql.identifier([kind === "key" ? "key_id" : "project_id"]);
  return await pool.oneFirst(sql.type(z.object({ sum: z.bigint() }))`
    select coalesce(sum(cost_micros), 0)::int8 as sum from usage
    where ${column} = ${id} and floor(extract(epoch from accepted_at) / 86400) >= ${from}
      and floor(extract(epoch from accepted_at) / 86400) < ${to}
  `);
}
