/**
 * What is kept in mind of the requests of one run (money-run.ts), and what may stand of them in the books: while it runs,
 * of each refusal, and in the end.
 */
import { sql } from "slonik";
import { expect } from "vitest";
import { z } from "zod";
import type { HeldBill } from "../../dataplane/billing/holds/held-bill.ts";
import { readLosses } from "../../dataplane/billing/ledger/ledger-losses.ts";
import type { MeteredRequest } from "../../dataplane/billing/meter.ts";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import type { RunLimits } from "./money-run-limits.ts";
import type { Plane } from "./money-world.ts";

export interface Known {
  readonly bill: HeldBill;
  readonly request: MeteredRequest;
  readonly plane: number;
  readonly estimate: number;
  /** The largest cost that may still be within the estimates given. */
  limit: number;
  spent: number;
  /** What was ever spent of it: a sweeper may have heard of any of these last. */
  readonly seen: Set<number>;
  state: "running" | "settled" | "released" | "orphaned";
  /** What the ledger may hold of it in the end: costs, or null for no row. */
  may: Set<number | null>;
  /** The data plane that charged it is dead. */
  isOwnerDead: boolean;
  /** Redis forgot after it was charged. */
  isForgotten: boolean;
  /** No store and no data plane knows of it any more: the loss of three (docs/decisions/money.md). */
  isLost: boolean;
}

/** A request that was not admitted. */
export interface Refused {
  readonly organization: number;
  readonly keyId: string;
  readonly acceptedAt: number;
  readonly code: string;
  /** That its key and its project had when it asked. */
  readonly limits: MeteredRequest["limits"];
}

/** What may stand in the ledger of it in the end. */
const mostOf = ({ may }: Known) => Math.max(0, ...Array.from(may, (cost) => cost ?? 0));

/** Of a run at one moment. */
export interface RunBooks {
  /** Part of the names of its organizations. */
  readonly id: string;
  readonly known: readonly Known[];
  readonly names: readonly string[];
  /** To each organization. */
  readonly granted: readonly bigint[];
  readonly limits: RunLimits;
  /** Whether a store has come back older. */
  readonly wasRolledBack: boolean;
  /** Through which the stores are read. */
  readonly plane: Plane;
}

const withMost = (known: readonly Known[]) => known.map((one) => ({ ...one, cost: mostOf(one) }));
const knownOf = <Some extends Known>(known: readonly Some[], name: string) =>
  known.filter(({ request }) => request.organizationId === name);

/**
 * Nobody is told that credit is spent while there is some, whatever is on its way between the stores. granted: before the
 * moment; spent is what may have been after it, so that what else happened in it excuses nothing.
 */
export function judgeRefusal(
  { known, names, granted, limits: ofRun }: RunBooks,
  { organization, keyId, acceptedAt, code, limits }: Refused,
): void {
  const name = names[organization] ?? "";
  const spent = withMost(known);
  if (code === "insufficient_credit") {
    const used = knownOf(spent, name).reduce((sum, { cost }) => sum + cost, 0);
    expect(used, `${name} is told that its credit is spent`).toBeGreaterThanOrEqual(
      Number(granted[organization]),
    );
  }
  if (code === "key_limit_reached" || code === "project_limit_reached")
    ofRun.judgeRefusal(spent, {
      keyId,
      acceptedAt,
      kind: code.startsWith("key") ? "key" : "project",
      limits,
    });
}

/** What stands in the books when everybody has ended is what may. */
export async function judgeBooks({
  id: run,
  known,
  names,
  granted,
  limits,
  wasRolledBack,
  plane,
}: RunBooks): Promise<void> {
  const rows = new Map(
    (
      await plane.pool.any(sql.type(z.object({ id: z.string(), cost: z.bigint() }))`
        select id, cost_micros as cost from usage where organization_id like ${`org_${run}_%`}
      `)
    ).map(({ id, cost }) => [id, Number(cost)]),
  );
  // Those of earlier runs on the same stores stay told.
  const lost = (await readLosses(plane.pool)).filter(({ organizationId }) => names.includes(organizationId));
  if (!wasRolledBack) expect(lost).toEqual([]);
  for (const { may, state, request } of known)
    expect([...may], `the row of a ${state} request`).toContain(rows.get(request.id) ?? null);
  expect(rows.size).toBeLessThanOrEqual(known.length);
  for (const [organization, name] of names.entries()) {
    const mine = knownOf(known, name);
    const used = mine.reduce((sum, { request }) => sum + BigInt(rows.get(request.id) ?? 0), 0n);
    const gone = lost.find(({ organizationId }) => organizationId === name)?.lost ?? 0n;
    // Nothing that was answered is forgotten: it has its row, or is in the sum of what was lost.
    const settled = mine.filter(({ state, isLost }) => state === "settled" && !isLost);
    const answered = settled.reduce((sum, { may }) => sum + Math.max(...Array.from(may, Number)), 0);
    expect(used + gone).toBeGreaterThanOrEqual(BigInt(answered));
    const { held, ...credit } = await plane.holds.standing.credit(name);
    expect(credit).toMatchObject({ granted: granted[organization] ?? 0n, used: used + gone });
    expect(held).toBe(0n);
  }
  await limits.judge(plane, names);
  const report = await reconcileLedger(plane.pool, plane.redis);
  expect(report.broken.filter((line) => !/: lost [\d.]+ credits$/.test(line))).toEqual([]);
  expect(report.holds).toBe(0);
}

/** Rules 1.8 and 9.1: never more than what was there, or what a limit allows, plus one request. */
export function judgeOverdraft({ known, names, granted, limits }: RunBooks): void {
  const spent = withMost(known);
  limits.judgeOverdraft(spent);
  for (const [organization, name] of names.entries()) {
    const mine = knownOf(spent, name);
    const used = mine.reduce((sum, { cost }) => sum + cost, 0);
    const largest = Math.max(0, ...mine.map(({ limit }) => limit));
    expect(used).toBeLessThanOrEqual(Number(granted[organization]) + largest);
  }
}
