/** Organizations' balances for Prometheus (rule 14.6). */
import type { DatabasePool } from "slonik";
import { pageAccounts } from "./ledger/accounts.ts";

/** Accounts read in one query. */
const PAGE = 1_000;
/** Most series: more are of no use to anybody, and a burden to Prometheus. */
const MOST_ACCOUNTS = 20_000;

/**
 * The balance in credits of declared organizations, the first 20,000 by id. Others, of which there may be any number, are left
 * out.
 */
export async function readBalances(pool: DatabasePool): Promise<readonly (readonly [string, number])[]> {
  const balances: [string, number][] = [];
  let after = "";
  for (;;) {
    const page = await pageAccounts(pool, after, PAGE, "declared");
    for (const { organizationId, balance } of page) balances.push([organizationId, Number(balance) / 1e6]);
    after = page.at(-1)?.organizationId ?? "";
    if (page.length < PAGE || balances.length >= MOST_ACCOUNTS) return balances;
  }
}
