/** Who may begin: one request's way to a hold, and what a refused one is told (design.md §5, rule 1.8). */
import { setImmediate } from "node:timers/promises";
import { LRUCache } from "lru-cache";
import { ApiError } from "../lib/api-error.ts";
import { readAccounts, type Account, type KeyedAccount } from "./accounts.ts";
import { Admission } from "./admission.ts";
import type { HeldBill, RateLimits } from "./held-bill.ts";
import type { HoldsOptions } from "./holds.ts";
import type { MeteredRequest, Micros } from "./meter.ts";
import {
  creditEmpty,
  creditReserved,
  limitReached,
  ledgerBehind,
  meterUnavailable,
  rateLimitHeaders,
  tooManyAtOnce,
  type LimitState,
} from "./rate-limits.ts";
import { operation, RedisSilent, type Operation, type Reply } from "./shard.ts";
import { REDIS_MS, type Shards } from "./shards.ts";

/** An account found empty is asked for in the ledger at most so often. */
const RECHECK_MS = 1_000;

type Accounts = ReadonlyMap<string, KeyedAccount>;
/** Accounts read in one query. */
const READ_AT_ONCE = 500;

const noLimits: RateLimits = { requestsPerMinute: null, tokensPerMinute: null, concurrentRequests: null };

export class Gate {
  readonly #options: HoldsOptions;
  readonly #shards: Shards;
  readonly #admission: Admission;
  /** When an account was last read because it seemed empty. */
  readonly #rechecked = new LRUCache<string, true>({ max: 10_000, ttl: RECHECK_MS });
  readonly #loading = new Map<string, Promise<void>>();
  /** Accounts that go to the ledger in one query at the end of this turn of the event loop. */
  #wanted: { readonly ids: string[]; readonly accounts: Promise<Accounts> } | null = null;

  constructor(options: HoldsOptions, shards: Shards) {
    this.#options = options;
    this.#shards = shards;
    this.#admission = new Admission(options.waitMs);
  }

  /** Holds min(estimate, available) for the bill. @throws ApiError unless the request may run. */
  admit(bill: HeldBill, estimate: Micros): Promise<void> {
    const { organizationId } = bill.request;
    if (this.#admission.hasLine(organizationId)) return this.#standInLine(bill, estimate, null);
    return this.#hold(bill, estimate, (reply) => {
      // Nearly always: the rest is for those who have to wait, or whose account has to be read first.
      if (reply[0] === "held") return this.#admitted(bill, reply);
      // Whoever has to stand in line is told what is true when its turn comes.
      return this.#standInLine(bill, estimate, this.#admission.hasLine(organizationId) ? null : reply);
    });
  }

  /** `first`: what the first try was told, when it was made already. */
  async #standInLine(bill: HeldBill, estimate: Micros, first: Reply | null): Promise<void> {
    let known = first;
    const reply = await this.#admission.admit(bill.request.organizationId, () => {
      const told = known;
      known = null;
      return this.#tryHold(bill, estimate, told);
    });
    this.#admitted(bill, reply);
  }

  /** Some credit of the organization became free. */
  freed(organizationId: string): void {
    this.#admission.freed(organizationId);
  }

  /** Reads these accounts and key epochs from the ledger again, and resolves when Redis has them. */
  async refresh(organizationIds: readonly string[]): Promise<void> {
    const accounts = await readAccounts(this.#options.pool, organizationIds);
    await Promise.all(accounts.map((account) => this.#tell(account)));
  }

  /** `known`: what the first try was told, when it was made already. */
  async #tryHold(bill: HeldBill, estimate: Micros, known: Reply | null): Promise<Reply> {
    const { organizationId, id, keyId } = bill.request;
    for (let attempt = 0; attempt < 6; attempt += 1) {
      const reply =
        attempt === 0 && known !== null ? known : await this.#hold(bill, estimate, (told) => told);
      switch (reply[0]) {
        case "load":
          await this.load(organizationId);
          break;
        case "key": {
          const keyEpoch = await this.#recheckKey(keyId);
          if (keyEpoch === null) throw new ApiError("authentication", "invalid x-api-key");
          bill.keyEpoch = keyEpoch;
          break;
        }
        case "empty":
          // A grant may have come that Redis has not heard of: 402 is said only on the ledger's word.
          if (this.#rechecked.has(organizationId)) return reply;
          this.#rechecked.set(organizationId, true);
          await this.load(organizationId);
          break;
        default:
          return reply;
      }
    }
    this.#options.log.error({ requestId: id, organizationId }, "the hold of a request does not come to rest");
    throw meterUnavailable();
  }

  /** Asks for the hold, and goes on with the reply. Not async, as there is one for each request. */
  #hold<Result>(
    bill: HeldBill,
    estimate: Micros,
    then: (reply: Reply) => Result | Promise<Result>,
  ): Promise<Result> {
    const { organizationId, id } = bill.request;
    const { concurrentRequests, requestsPerMinute, tokensPerMinute } = bill.limits;
    const hold = operation(
      "hold",
      organizationId,
      id,
      estimate.toString(),
      bill.keyEpoch === null ? "" : String(bill.keyEpoch),
      bill.item,
      String(concurrentRequests ?? 0),
      String(requestsPerMinute ?? 0),
      String(tokensPerMinute ?? 0),
      String(bill.tokensTaken),
    );
    return this.#shards
      .of(organizationId)
      .run(hold, REDIS_MS)
      .then(then, (error: unknown) => {
        if (!(error instanceof RedisSilent) || error.sent) {
          // It may have been made all the same.
          void this.#shards.hand(
            organizationId,
            operation("release", organizationId, id, ...bill.correction(0), "0"),
          );
        }
        throw meterUnavailable(error);
      });
  }

  /** @throws ApiError unless the request may run. */
  #admitted(bill: HeldBill, reply: Reply): void {
    const { request, limits } = bill;
    switch (reply[0]) {
      case "held":
        bill.amount = BigInt(reply[1] ?? "0");
        bill.headers = this.#headers(bill, reply.slice(2));
        return;
      case "empty":
        throw creditEmpty();
      case "busy":
        throw creditReserved();
      case "concurrent":
        throw tooManyAtOnce(limits.concurrentRequests ?? 0);
      case "limited": {
        const kind = reply[1] === "tokens" ? "tokens" : "requests";
        const limit = (kind === "tokens" ? limits.tokensPerMinute : limits.requestsPerMinute) ?? 0;
        throw limitReached(kind, limit, Number(reply[2]), this.#headers(bill, reply.slice(3)));
      }
      case "full":
        throw ledgerBehind();
      default:
        // `done`: ids are random, so only a bug of ours charges one twice.
        throw new ApiError("internal", "This request was answered already.", {
          cause: new Error(`hold of ${request.id}: ${reply[0]}`),
        });
    }
  }

  #headers(bill: HeldBill, [requestsLeft, requestsMs, tokensLeft, tokensMs]: Reply): Record<string, string> {
    const { requestsPerMinute, tokensPerMinute } = bill.limits;
    const states: LimitState[] = [];
    if (requestsPerMinute !== null) {
      const remaining = Number(requestsLeft);
      states.push({ kind: "requests", limit: requestsPerMinute, remaining, fullInMs: Number(requestsMs) });
    }
    if (tokensPerMinute !== null) {
      const remaining = Number(tokensLeft);
      states.push({ kind: "tokens", limit: tokensPerMinute, remaining, fullInMs: Number(tokensMs) });
    }
    return rateLimitHeaders(bill.request.endpoint, states, this.#options.clock.now());
  }

  /** Batch items are paced by their workers, not by limits made for people who wait. */
  limitsOf(request: MeteredRequest): RateLimits {
    if (request.endpoint === "batch") return noLimits;
    return this.#options.limits(request.organizationId) ?? noLimits;
  }

  async #recheckKey(keyId: string): Promise<number | null> {
    try {
      return await this.#options.recheckKey(keyId);
    } catch (error) {
      throw meterUnavailable(error);
    }
  }

  /** Brings the ledger's account to Redis, once for all who ask at the same time. @throws ApiError 503. */
  load(organizationId: string): Promise<void> {
    const under = this.#loading.get(organizationId);
    if (under !== undefined) return under;
    const loading = this.#read(organizationId)
      .then((account) => (account === undefined ? undefined : this.#tell(account)))
      .catch((error: unknown) => {
        throw meterUnavailable(error);
      })
      .finally(() => this.#loading.delete(organizationId));
    this.#loading.set(organizationId, loading);
    return loading;
  }

  async #read(organizationId: string): Promise<KeyedAccount | undefined> {
    if (this.#wanted === null || this.#wanted.ids.length >= READ_AT_ONCE) {
      const ids: string[] = [];
      this.#wanted = { ids, accounts: this.#readTogether(ids) };
    }
    const { ids, accounts } = this.#wanted;
    ids.push(organizationId);
    return (await accounts).get(organizationId);
  }

  /** Reads whatever has gathered in `ids` when this turn of the event loop is over. */
  async #readTogether(ids: readonly string[]): Promise<Accounts> {
    await setImmediate();
    if (this.#wanted?.ids === ids) this.#wanted = null;
    const accounts = await readAccounts(this.#options.pool, ids);
    return new Map(accounts.map((account) => [account.organizationId, account]));
  }

  async #tell(account: KeyedAccount): Promise<void> {
    const known = accountOperation(account, account.keyEpoch.toString(), false);
    await this.#shards.of(account.organizationId).run(known, REDIS_MS);
  }
}

export const accountOperation = (account: Account, keyEpoch: string, onlyKnown: boolean): Operation =>
  operation(
    "account",
    account.organizationId,
    account.balance.toString(),
    account.version.toString(),
    keyEpoch,
    onlyKnown ? "1" : "0",
  );
