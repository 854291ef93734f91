/** A ledger with months behind it, and all that its API answers about them, for the tests of closed months (rule 12.5). */
import fc from "fast-check";
import { pino } from "pino";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { reconcileBatches } from "../../dataplane/batches/reconcile-batches.ts";
import { chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { readScopeSpend } from "../../dataplane/billing/holds/scope-spend.ts";
import { windowOf } from "../../dataplane/billing/scopes.ts";
import {
  UsageRetention,
  type UsageRetentionOptions,
} from "../../dataplane/billing/ledger/usage-retention.ts";
import { usageRow, type UsageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import type { Prices } from "../../dataplane/config/schema.ts";
import { completionsUsage } from "../../dataplane/reports/completions-usage.ts";
import { costReport } from "../../dataplane/reports/cost-report.ts";
import { costs } from "../../dataplane/reports/costs.ts";
import { exportCosts } from "../../dataplane/reports/focus/export.ts";
import { messagesUsage } from "../../dataplane/reports/messages-usage.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { openRedis, redisReady } from "../../dataplane/store/redis.ts";
import type { RedisStore } from "../../dataplane/store/redis-servers.ts";
import { makeOrganization, plainPrices, request } from "./money-world.ts";
import { freshDatabase, freshRedis } from "./stores.ts";

export const DAY = 86_400_000;
const log = pino({ level: "silent" });

/** The first moment of a month, so many before this one. */
export function monthsAgo(months: number): number {
  const now = new Date();
  return Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - months);
}
/** `2026-03`. */
export const monthText = (unixMs: number) => new Date(unixMs).toISOString().slice(0, 7);
/** Of its rows. */
export const tableOf = (unixMs: number) => `usage_${monthText(unixMs).replace("-", "_")}`;

/** Prices whose parts seldom come out even. */
const oddPrices: Prices = {
  ...plainPrices,
  input: "0.333333",
  output: "7.1234567",
  cacheRead: "0.0142857",
  tools: { webSearch: "0.0007", webFetch: "0", xSearchPost: "0.0333333", xSearchProfile: "320" },
  serviceTiers: [{ name: "priority", multiplier: "2" }],
};

const few = fc.integer({ min: 0, max: 3 });
const count = fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 200_000 }));
/** Requests of the months from `oldest` ago to the present one, many of them around midnights. */
export const traffic = (oldest: number, most: number) =>
  fc.array(
    fc.record({
      month: fc.integer({ min: 0, max: oldest }),
      at: fc.oneof(
        fc.integer({ min: 0, max: 28 * DAY - 1 }),
        fc.tuple(few, fc.integer({ min: 0, max: 1 })).map(([day, ms]) => (day + 1) * DAY - ms),
        fc.constant(0),
      ),
      organization: fc.constantFrom("org_one", "org_two"),
      keyId: fc.constantFrom("apikey_1", "apikey_2"),
      projectId: fc.constantFrom("proj_1", "proj_2"),
      model: fc.constantFrom("m,1", "m'2"),
      contextTokens: fc.constantFrom(8000, 200_000),
      tags: fc.constantFrom("", "feature=search,team=ml", "team=web"),
      batch: fc.boolean(),
      priority: fc.boolean(),
      provisional: fc.constantFrom(false, false, true),
      tokens: fc.record({
        input: count,
        cacheRead: count,
        cacheWrite5m: count,
        cacheWrite1h: count,
        output: count,
        reasoning: fc.constant(0),
      }),
      tools: fc.record({ webSearches: few, webFetches: few, xSearches: few, xPosts: few, xProfiles: few }),
    }),
    { minLength: 60, maxLength: most },
  );
export type Traffic = ReturnType<typeof traffic> extends fc.Arbitrary<infer Items> ? Items : never;

export class RetentionWorld implements AsyncDisposable {
  readonly organizations = ["org_one", "org_two"] as const;
  readonly url: string;
  readonly pool: DatabasePool;
  readonly #redis: RedisStore;
  readonly #disposal: AsyncDisposableStack;

  private constructor(url: string, pool: DatabasePool, redis: RedisStore, disposal: AsyncDisposableStack) {
    this.url = url;
    this.pool = pool;
    this.#redis = redis;
    this.#disposal = disposal;
  }

  /** `url`: of a migrated database; a fresh one without. */
  static async open(url?: string): Promise<RetentionWorld> {
    await using disposal = new AsyncDisposableStack();
    const own = url === undefined ? disposal.use(await freshDatabase()) : { url };
    const server = disposal.use(await freshRedis());
    const redis = disposal.adopt(openRedis(server.url, { onError: () => {} }), (open) => open.disconnect());
    await redisReady(redis, 5_000);
    const pool = disposal.adopt(await openPostgres(own.url, { onError: () => {} }), (open) => open.end());
    for (const id of ["org_one", "org_two"]) await makeOrganization(pool, id, 1_000_000_000_000n);
    return new RetentionWorld(own.url, pool, redis, disposal.move());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#disposal.disposeAsync();
  }

  /** The partitions of a month, as data planes made them when it was ahead. */
  async makePartitions(month: number): Promise<void> {
    const next = Date.parse(`${monthText(month + 32 * DAY)}-01`);
    const [from, to] = [month, next].map((ms) => new Date(ms).toISOString());
    for (const [parent, name] of [
      ["usage", tableOf(month)],
      ["usage_hourly", tableOf(month).replace("usage", "usage_hourly")],
    ] as const)
      await this.pool.query(sql.unsafe`
        create table ${sql.identifier([name])} partition of ${sql.identifier([parent])}
        for values from (${sql.literalValue(from ?? "")}) to (${sql.literalValue(to ?? "")})
      `);
  }

  async charge(...rows: UsageRow[]): Promise<void> {
    await this.pool.transaction((transaction) => chargeRows(transaction, rows));
  }

  /** Sends traffic through the real ledger, some of it provisionally at first; batches are those of their rows. */
  async play(items: Traffic): Promise<readonly UsageRow[]> {
    const rows = items.map((item) => {
      const { month, at, organization, batch, priority, tokens, tools, provisional, ...of } = item;
      const asked = request(organization, {
        ...of,
        acceptedAt: Math.min(monthsAgo(month) + at, Date.now()),
        endpoint: batch ? "batch" : "chat",
        batchId: batch ? `batch_${organization}_${of.projectId}_${of.keyId}` : null,
        prices: oddPrices,
      });
      const tiers = { charged: priority ? ["priority"] : [], doubtful: [] };
      const used = { tools, status: "ok", estimated: false, iterations: 1, upstream: "u" } as const;
      const half = { ...tokens, input: Math.floor(tokens.input / 2), tiers };
      return {
        first: provisional && !batch ? [usageRow(asked, { ...used, tokens: half }, true)] : [],
        row: usageRow(asked, { ...used, tokens: { ...tokens, tiers } }),
      };
    });
    await this.charge(...rows.flatMap(({ first }) => first));
    const final = rows.map(({ row }) => row);
    for (let from = 0; from < final.length; from += 50) await this.charge(...final.slice(from, from + 50));
    await this.pool.query(sql.unsafe`
      insert into batches (id, organization_id, project_id, key_id, form, dialect, state, outcome, created_at, expires_at,
        ended_at, emptied, total, succeeded, input_tokens, cached_tokens, output_tokens, reasoning_tokens)
      select batch_id, organization_id, project_id, key_id, 'openai', 'chat', 'ended', 'completed', now(), now(), now(),
        true, count(*), count(*), sum(input_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens),
        sum(cache_read_tokens), sum(output_tokens), sum(reasoning_tokens)
      from usage where batch_id is not null group by 1, 2, 3, 4
    `);
    return final;
  }

  /** One that closes what was over `before`, as a data plane does; small steps. */
  retention(before: number, more: Partial<UsageRetentionOptions> = {}): UsageRetention {
    const retentionMs = 100 * DAY;
    const clock = { now: () => before + retentionMs };
    const usual = { pool: this.pool, clock, log, retentionMs, dropRows: false, summed: 7, moved: 3 };
    return new UsageRetention({ ...usual, ...more });
  }

  /** All that the API says of whole days from `from` to `to`, of spends and of credit. */
  async answers(from: number, to = Date.now()): Promise<Record<string, unknown>> {
    const found: Record<string, unknown> = {};
    for (const organizationId of this.organizations) {
      for (let month = from; month <= to; month = Date.parse(`${monthText(month + 32 * DAY)}-01`)) {
        const end = new Date(Date.parse(`${monthText(month + 32 * DAY)}-01`)).toISOString();
        const start = new Date(month).toISOString();
        const query = { starting_at: start, ending_at: end, start_time: start, end_time: end, limit: "31" };
        const asked = [
          [messagesUsage, "model,api_key_id,context_window,service_tier,workspace_id,tag:team"],
          [messagesUsage, null],
          [completionsUsage, "model,api_key_id,project_id,batch,service_tier"],
          [completionsUsage, "tag:feature"],
          [costReport, "description,tag:team"],
          [costs, "line_item"],
          [costs, null],
        ] as const;
        for (const [report, group] of asked) {
          const answer = await report(
            this.pool,
            organizationId,
            { ...query, ...(group === null ? {} : { group_by: group }) },
            Date.now(),
          );
          found[`${organizationId} ${monthText(month)} ${report.name} ${group}`] = JSON.stringify(answer);
        }
        const csv = exportCosts(this.pool, organizationId, {
          format: "focus-csv",
          month: monthText(month),
        });
        let text = "";
        for await (const chunk of csv.contents) text += String(chunk);
        found[`${organizationId} ${monthText(month)} export`] = text;
      }
    }
    const scopes = ["apikey_1", "apikey_2", "proj_1", "proj_2"].flatMap((id) =>
      (["total", "month"] as const).map((per) => ({
        id,
        name: `${id} ${per}`,
        ...windowOf(per, Date.now()),
      })),
    );
    const spends = await readScopeSpend(
      this.pool,
      this.organizations.flatMap((organizationId) =>
        scopes.map((scope) => ({ organizationId, scope: { ...scope } as never })),
      ),
    );
    for (const { organizationId, name, spent } of spends) found[`${organizationId} ${name}`] = spent;
    const accounts = await this.pool.any(
      sql.type(z.object({ id: z.string(), balance: z.bigint() }))`
        select organization_id as id, balance_micros as balance from accounts
      `,
    );
    for (const { id, balance } of accounts) found[id] = balance;
    return found;
  }

  /** What reconciliation says: nothing when all agrees; and how many rows it has counted, closed ones too. */
  async audit(): Promise<{ readonly broken: readonly string[]; readonly rows: bigint }> {
    const { broken, usageRows } = await reconcileLedger(this.pool, this.#redis);
    return { broken: [...broken, ...(await reconcileBatches(this.pool))], rows: usageRows };
  }

  /** Rows of a table, also of one that stands apart; null: there is none. */
  async rowsIn(table: string): Promise<bigint | null> {
    const there = await this.pool.exists(sql.unsafe`select from pg_class where relname = ${table}`);
    if (!there) return null;
    return await this.pool.oneFirst(
      sql.type(z.object({ count: z.bigint() }))`select count(*) from ${sql.identifier([table])}`,
    );
  }

  async closedUntil(): Promise<number> {
    return await this.pool.oneFirst(sql.type(z.object({ until: z.number() }))`
      select greatest(closed_until, '1970-01-01T00:00:00Z') as until from usage_retention
    `);
  }
}
