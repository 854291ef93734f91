/** Copies from the ledger to Redis what Redis does not know: accounts with their key epochs, and the spend of scopes. */
import type { DatabasePool } from "slonik";
import { Gathered } from "../../lib/gathered.ts";
import { lookedUpInTime } from "../../store/lookup-time.ts";
import { readAccounts, type Account, type KeyedAccount } from "../ledger/accounts.ts";
import type { ScopeArguments } from "./held-bill.ts";
import { meterUnavailable } from "./rate-limits.ts";
import { readScopeSpend, scopeOperation, type ScopeOf, type ScopeSpend } from "./scope-spend.ts";
import { creditScopes } from "../scopes.ts";
import { operation, type MeterOperation } from "./shard.ts";
import { REDIS_MS, type Shards } from "./shards.ts";

/** Accounts, or scopes, read in one query. */
const READ_AT_ONCE = 500;
/** How often the ledger and Redis are read until both are at the same version of an account. */
export const MOST_LOOKS = 5;

const scopeKey = (organizationId: string, name: string): string => `${organizationId}\0${name}`;

class OtherServer extends Error {
  override readonly name = "OtherServer";
  override readonly message = "another Postgres answers than the one that Redis knows";
}

export class AccountLoader {
  readonly #pool: DatabasePool;
  readonly #shards: Shards;
  /** Compares Redis with the ledger when another Postgres answers (ledger-guard.ts). */
  readonly #compare: () => Promise<unknown>;
  readonly #loading = new Map<string, Promise<void>>();
  readonly #accounts: Gathered<string, ReadonlyMap<string, KeyedAccount>>;
  readonly #spends: Gathered<ScopeOf, ReadonlyMap<string, ScopeSpend>>;

  constructor(pool: DatabasePool, shards: Shards, compare: () => Promise<unknown>) {
    this.#pool = pool;
    this.#shards = shards;
    this.#compare = compare;
    this.#accounts = new Gathered(async (ids) => {
      const accounts = await lookedUpInTime(readAccounts(pool, ids));
      return new Map(accounts.map((account) => [account.organizationId, account]));
    }, READ_AT_ONCE);
    this.#spends = new Gathered(async (scopes) => {
      const spends = await lookedUpInTime(readScopeSpend(pool, scopes));
      return new Map(spends.map((spend) => [scopeKey(spend.organizationId, spend.name), spend]));
    }, READ_AT_ONCE);
  }

  /**
   * Reads these accounts and key epochs from the ledger again, some at a time, and resolves when Redis has them.
   * @throws Error when a store does not answer in time. Accounts of other Redis servers are written all the same.
   */
  async refresh(organizationIds: readonly string[]): Promise<void> {
    const failures: unknown[] = [];
    for (let at = 0; at < organizationIds.length; at += READ_AT_ONCE) {
      const ids = organizationIds.slice(at, at + READ_AT_ONCE);
      await this.#compared(async () => {
        const accounts = await lookedUpInTime(readAccounts(this.#pool, ids));
        const told = await Promise.allSettled(accounts.map((account) => this.#tell(account)));
        const failed = told.flatMap((one) => (one.status === "rejected" ? [one.reason as unknown] : []));
        const other = failed.find((error) => error instanceof OtherServer);
        if (other !== undefined) throw other;
        failures.push(...failed);
      });
    }
    if (failures.length > 0) throw failures[0];
  }

  /** What another Postgres has is taken only after it was compared with what Redis knows. */
  async #compared(readAndTell: () => Promise<void>): Promise<void> {
    try {
      await readAndTell();
    } catch (error) {
      if (!(error instanceof OtherServer)) throw error;
      await this.#compare();
      await readAndTell();
    }
  }

  /** Copies the ledger's account to Redis, once for all callers of the same moment. @throws ApiError 503. */
  load(organizationId: string): Promise<void> {
    const under = this.#loading.get(organizationId);
    if (under !== undefined) return under;
    const loading = this.#compared(async () => {
      const account = (await this.#accounts.ask(organizationId)).get(organizationId);
      if (account !== undefined) await this.#tell(account);
    })
      .catch((error: unknown) => {
        throw meterUnavailable(error);
      })
      .finally(() => this.#loading.delete(organizationId));
    this.#loading.set(organizationId, loading);
    return loading;
  }

  /** Whether the organization's account is being read from the ledger just now. */
  isLoading(organizationId: string): boolean {
    return this.#loading.has(organizationId);
  }

  /** Copies the spend of a request's scopes from the ledger to Redis. @throws ApiError 503. */
  async loadScopes(organizationId: string, [scopes, limitsEpoch]: ScopeArguments): Promise<void> {
    try {
      await this.#compared(async () => {
        await Promise.all(
          creditScopes(scopes).map(async (scope) => {
            const spends = await this.#spends.ask({ organizationId, scope });
            const spend = spends.get(scopeKey(organizationId, scope.name));
            if (spend !== undefined) await this.#tellSpend(spend, limitsEpoch);
          }),
        );
      });
    } catch (error) {
      throw meterUnavailable(error);
    }
  }

  async #tellSpend(spend: ScopeSpend, limitsEpoch: string): Promise<void> {
    const [word] = await this.#shards
      .of(spend.organizationId)
      .run(scopeOperation(spend, limitsEpoch), REDIS_MS);
    if (word === "other") throw new OtherServer();
  }

  async #tell(account: KeyedAccount): Promise<void> {
    const known = accountOperation(account, account.keyEpoch.toString(), false);
    const [word] = await this.#shards.of(account.organizationId).run(known, REDIS_MS);
    if (word === "other") throw new OtherServer();
  }
}

/** Writes an account to Redis. `keyEpoch`: empty when unknown; `onlyKnown`: not if Redis has forgotten the organization. */
export const accountOperation = (account: Account, keyEpoch: string, onlyKnown: boolean): MeterOperation =>
  operation(
    "account",
    account.organizationId,
    account.balance.toString(),
    account.version.toString(),
    keyEpoch,
    onlyKnown ? "1" : "0",
    account.ledger,
  );
