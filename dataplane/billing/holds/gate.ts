/** Admission: one request's way to a hold, and the error of a refused one (design.md §5, rule 1.8). */
import { LRUCache } from "lru-cache";
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import { isWithinLimits, modelNotFound } from "../../config/find-route.ts";
import { ApiError } from "../../lib/api-error.ts";
import type { Clock } from "../../lib/clock.ts";
import { invalidKey } from "../../lib/invalid-key.ts";
import { inBackground } from "../../lib/in-background.ts";
import { metrics } from "../../telemetry/metrics.ts";
import type { AccountLoader } from "./account-loader.ts";
import { readAccounts } from "../ledger/accounts.ts";
import { Admission } from "./admission.ts";
import type { CurrentKey, HeldBill, RateLimits, ScopeArguments } from "./held-bill.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import type { MeteredRequest, Payer } from "../meter.ts";
import type { Micros } from "../credits.ts";
import {
  creditEmpty,
  creditReserved,
  limitReached,
  limitReserved,
  limitSpent,
  ledgerBehind,
  meterUnavailable,
  rateLimitHeaders,
  tooManyAtOnce,
  type LimitState,
} from "./rate-limits.ts";
import { creditScopes, NO_LIMITS, scopesText } from "../scopes.ts";
import { operation, RedisSilent, type Reply } from "./shard.ts";
import { REDIS_MS, type Shards } from "./shards.ts";
import { KnownCredit } from "./known-credit.ts";

/** Least time between two reads of the ledger for an account that looked empty. */
const RECHECK_MS = 1_000;

/**
 * Most times that a request asks. Its key, its account and the spend of its scopes may each have to be read anew, and again
 * while keys and limits are changed; then a round of all three takes some milliseconds.
 */
const MOST_ASKED = 16;

const hasLimits = ({ requestsPerMinute, tokensPerMinute, concurrentRequests }: RateLimits): boolean =>
  requestsPerMinute !== null || tokensPerMinute !== null || concurrentRequests !== null;
const noLimits: RateLimits = { requestsPerMinute: null, tokensPerMinute: null, concurrentRequests: null };

/** Who asks to be admitted: a request, or a key whose request is not read yet. */
interface Asking {
  readonly request: Pick<MeteredRequest, "organizationId" | "keyId"> & { readonly id?: string };
  /** As of the moment of asking. */
  readonly scopes: () => ScopeArguments;
  /** Takes over a key that has changed since it was looked up. */
  readonly renew: (key: CurrentKey) => void;
}

/** Name in `KnownCredit`: the key where it has limits, else the organization. */
const payerOf = ({ organizationId, keyId, limits }: Pick<Payer, "organizationId" | "keyId" | "limits">) =>
  limits.length === 0 ? organizationId : keyId;

/** Limits as arguments of the scripts; 0: no limit. */
const limitArguments = ({ concurrentRequests, requestsPerMinute, tokensPerMinute }: RateLimits) => [
  String(concurrentRequests ?? 0),
  String(requestsPerMinute ?? 0),
  String(tokensPerMinute ?? 0),
];

/** Whether another request would be admitted, read from the reply to a hold. */
const isRoomLeft = ([, , ofRequests = "0", requests, , ofTokens = "0", tokens]: Reply): boolean =>
  !(ofRequests !== "0" && requests === "0") && !(ofTokens !== "0" && tokens === "0");

/** Items of batches are not counted: most are tried again. */
function countRefused(endpoint: MeteredRequest["endpoint"], reason: "credit" | "limit" | "reserved"): void {
  if (endpoint !== "batch") metrics.refused.inc({ reason });
}

/** A request with the limits of its key, or a key alone. */
type Limited = Pick<MeteredRequest, "keyId" | "limits" | "acceptedAt">;

/** The lines that a request may have to wait in. */
const linesOf = ({ request: { organizationId }, scopes }: HeldBill): readonly string[] =>
  scopes === "" ? [organizationId] : [organizationId, ...creditScopes(scopes).map(({ name }) => name)];

export interface AdmitOptions {
  readonly pool: DatabasePool;
  readonly clock: Clock;
  readonly log: Logger;
  /** The organization's limits, by the present snapshot. */
  readonly limits: (organizationId: string) => RateLimits | undefined;
  /** The key as it is now when it is still valid, else null (`KeyDirectory.recheck`). */
  readonly recheckKey: (keyId: string) => Promise<CurrentKey | null>;
  /** How long a request waits for credit that others hold; 2 s unless a test sets another time. */
  readonly waitMs?: number;
}

export class Gate {
  readonly #options: AdmitOptions;
  readonly #shards: Shards;
  readonly #loader: AccountLoader;
  readonly #admission: Admission;
  readonly #known = new KnownCredit();
  /** Organizations whose account was just read because it seemed empty. */
  readonly #rechecked = new LRUCache<string, true>({ max: 10_000, ttl: RECHECK_MS });

  constructor(options: AdmitOptions, shards: Shards, loader: AccountLoader) {
    this.#options = options;
    this.#shards = shards;
    this.#loader = loader;
    this.#admission = new Admission(options.waitMs);
  }

  /** Holds min(estimate, available) for the bill. @throws ApiError unless the request may run. */
  admit(bill: HeldBill, estimate: Micros): Promise<void> {
    const line = this.#admission.hasLines
      ? linesOf(bill).find((name) => this.#admission.hasLine(name))
      : undefined;
    if (line !== undefined) return this.#standInLine(bill, estimate, line, null);
    return this.#hold(bill, estimate, (reply) => {
      // The usual case. Otherwise it has to wait for credit, or its account has to be read first.
      if (reply[0] === "held") return this.#admitted(bill, reply);
      const { organizationId } = bill.request;
      const name = reply[0] === "busy" ? reply[1] || organizationId : organizationId;
      // Where there is a line by now, the request asks again when its turn comes.
      return this.#standInLine(bill, estimate, name, this.#admission.hasLine(name) ? null : reply);
    });
  }

  /**
   * Whether Redis said within the last second that the payer may begin a request. With `exactly`, never where the payer or its
   * organization has limits, as these may have been used up since.
   */
  knownFine(payer: Payer, exactly: boolean): boolean {
    if (!this.#known.mayBegin(payerOf(payer))) return false;
    if (!exactly) return true;
    return payer.limits.length === 0 && !hasLimits(this.#options.limits(payer.organizationId) ?? noLimits);
  }

  /** Whether a request may begin, without taking anything. @throws ApiError as `admit`, save that no credit is held. */
  async look(payer: Payer, endpoint: Dialect): Promise<void> {
    const limits = this.#options.limits(payer.organizationId) ?? noLimits;
    const { reply, asked } = await this.#look(payer, limits);
    // A scope that others hold may be free when the body has been read.
    const fine = reply[0] === "fine" || reply[0] === "busy";
    this.#known.learn(payerOf(payer), fine);
    if (!fine) throw this.#refusal(reply, endpoint, asked);
  }

  /** Whether the balance is above 0. Without Redis the ledger alone is asked. @throws ApiError 401, 402, 503 */
  async lookForCredit(payer: Payer): Promise<void> {
    const { organizationId, keyId } = payer;
    let reply: Reply;
    try {
      reply = (await this.#look({ ...payer, limits: NO_LIMITS }, noLimits)).reply;
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== "unavailable") throw error;
      const [account] = await readAccounts(this.#options.pool, [organizationId]).catch((cause: unknown) => {
        throw meterUnavailable(cause);
      });
      reply = [account !== undefined && account.balance > 0n ? "fine" : "empty"];
    }
    // Files may be stored while the ledger lags, or has yet to say that the credit is spent.
    if (reply[0] !== "fine" && reply[0] !== "full" && reply[0] !== "busy")
      throw this.#refusal(reply, "chat", { keyId, limits: NO_LIMITS, acceptedAt: 0 });
  }

  async #look(payer: Payer, rates: RateLimits): Promise<{ readonly reply: Reply; readonly asked: Limited }> {
    const { organizationId, keyId } = payer;
    let { keyEpoch, limits } = payer;
    const acceptedAt = this.#options.clock.now();
    const scopes = (): ScopeArguments => [scopesText(limits, acceptedAt, true), String(keyEpoch)];
    const reply = await this.#settled(
      {
        request: payer,
        scopes,
        renew: (key) => {
          ({ keyEpoch } = key);
          if (payer.limits !== NO_LIMITS) ({ limits } = key);
        },
      },
      () => {
        const look = operation(
          "look",
          organizationId,
          String(keyEpoch),
          ...limitArguments(rates),
          scopes()[0],
        );
        return this.#shards.run(organizationId, look);
      },
    );
    return { reply, asked: { keyId, limits, acceptedAt } };
  }

  /** `line`: the line to wait in if there is one. `first`: the reply to the first try, when it was made already. */
  async #standInLine(bill: HeldBill, estimate: Micros, line: string, first: Reply | null): Promise<void> {
    let known = first;
    const reply = await this.#admission.admit(bill.request.organizationId, line, () => {
      const told = known;
      known = null;
      return this.#tryHold(bill, estimate, told);
    });
    this.#admitted(bill, reply);
  }

  /** Wakes the lines that wait for what the bill held. */
  freed(bill: HeldBill): void {
    if (!this.#admission.hasLines) return;
    for (const line of linesOf(bill)) this.#admission.freed(line);
  }

  /** Wakes the line that waits for the organization's credit. */
  freedAny(organizationId: string): void {
    this.#admission.freed(organizationId);
  }

  /** `known`: the reply to the first try, when it was made already. */
  #tryHold(bill: HeldBill, estimate: Micros, known: Reply | null): Promise<Reply> {
    const { request } = bill;
    const asking = {
      request,
      scopes: () => bill.scopeArguments,
      renew: (key: CurrentKey) => {
        const { model } = request;
        // Its route was found under the limits that were remembered of the key.
        if (!isWithinLimits(key.limits, model)) throw modelNotFound(model);
        bill.renew(key);
      },
    };
    return this.#settled(asking, () => this.#hold(bill, estimate, (told) => told), known);
  }

  /**
   * Asks until the reply is final, loading in between what Redis does not know. `known`: the reply to the first try, when it
   * was made already. @throws ApiError 401, 503
   */
  async #settled(
    { request: { organizationId, keyId, id }, scopes, renew }: Asking,
    ask: () => Promise<Reply>,
    known: Reply | null = null,
  ): Promise<Reply> {
    for (let attempt = 0; attempt < MOST_ASKED; attempt += 1) {
      const reply = attempt === 0 && known !== null ? known : await ask();
      switch (reply[0]) {
        case "load":
          await this.#loader.load(organizationId);
          break;
        case "scopes":
          await this.#loader.loadScopes(organizationId, scopes());
          break;
        case "key": {
          const key = await this.#recheckKey(keyId);
          if (key === null) throw invalidKey();
          renew(key);
          break;
        }
        case "empty":
          // Redis may not know a new grant yet: 402 only after the ledger was read, be it by another request of the last
          // second.
          if (this.#rechecked.has(organizationId) && !this.#loader.isLoading(organizationId)) return reply;
          this.#rechecked.set(organizationId, true);
          await this.#loader.load(organizationId);
          break;
        default:
          return reply;
      }
    }
    this.#options.log.error({ request_id: id, organizationId }, "what a request asks does not come to rest");
    throw meterUnavailable();
  }

  /** Asks for the hold, and passes the reply on. Not async, as there is one for each request. */
  #hold<Result>(
    bill: HeldBill,
    estimate: Micros,
    then: (reply: Reply) => Result | Promise<Result>,
  ): Promise<Result> {
    const { organizationId, id } = bill.request;
    const hold = operation(
      "hold",
      organizationId,
      id,
      estimate.toString(),
      bill.keyEpoch === null ? "" : String(bill.keyEpoch),
      bill.item,
      ...limitArguments(bill.limits),
      String(bill.tokensTaken),
      bill.scopes,
    );
    return this.#shards
      .of(organizationId)
      .run(hold, REDIS_MS)
      .then(then, (error: unknown) => {
        if (!(error instanceof RedisSilent) || error.sent) {
          // The hold may have been taken although no reply came.
          const release = operation(
            "release",
            organizationId,
            id,
            ...bill.correction(0),
            "0",
            ...bill.scopeArguments,
          );
          inBackground(this.#shards.hand(organizationId, release), this.#options.log, "releasing a hold");
        }
        throw meterUnavailable(error);
      });
  }

  /** @throws ApiError unless the request may run. */
  #admitted(bill: HeldBill, reply: Reply): void {
    const { request } = bill;
    const { endpoint } = request;
    if (reply[0] !== "held") {
      // Credit that others hold entirely is credit all the same: no 402.
      this.#known.learn(payerOf(request), reply[0] === "busy");
      throw this.#refusal(reply, endpoint, request);
    }
    bill.amount = BigInt(reply[1] ?? "0");
    // Batch items have no limits per minute, so their holds show nothing of them.
    if (endpoint !== "batch") this.#known.learn(payerOf(request), isRoomLeft(reply));
    if (reply.length > 2) bill.headers = this.#headers(endpoint, reply.slice(2));
  }

  /** Makes the error of a refused request, and counts it. */
  #refusal(
    reply: Reply,
    endpoint: MeteredRequest["endpoint"],
    { keyId, limits, acceptedAt }: Limited,
  ): ApiError {
    const [word = "", which, letter] = reply;
    switch (word) {
      case "empty":
        countRefused(endpoint, "credit");
        return creditEmpty();
      case "busy": {
        countRefused(endpoint, "reserved");
        const scope = limits.find(({ id }) => which?.startsWith(`/${id}.`));
        return scope === undefined ? creditReserved() : limitReserved(scope.kind, keyId);
      }
      case "spent": {
        const scope = limits.find(({ kind }) => kind[0] === letter);
        if (scope === undefined) break;
        countRefused(endpoint, "credit");
        return limitSpent(scope, keyId, acceptedAt);
      }
      case "concurrent":
        countRefused(endpoint, "limit");
        return tooManyAtOnce({ letter: which, keyId }, Number(letter));
      case "limited": {
        countRefused(endpoint, "limit");
        const kind = letter === "tokens" ? "tokens" : "requests";
        const headers = this.#headers(endpoint, reply.slice(5));
        return limitReached({ letter: which, keyId }, kind, Number(reply[4]), Number(reply[3]), headers);
      }
      case "full":
        return ledgerBehind();
    }
    // `done`: ids are random, so only a bug of ours charges one twice.
    return new ApiError("internal", "This request was answered already.", {
      cause: new Error(`the meter said ${word}`),
    });
  }

  /** `told`: for requests, then for tokens: the limit, what is left, and milliseconds until it is full. */
  #headers(endpoint: MeteredRequest["endpoint"], told: Reply): Record<string, string> {
    const states: LimitState[] = [];
    for (const [index, kind] of (["requests", "tokens"] as const).entries()) {
      const [limit = 0, remaining = 0, fullInMs = 0] = told.slice(3 * index, 3 * index + 3).map(Number);
      if (limit > 0) states.push({ kind, limit, remaining, fullInMs });
    }
    return rateLimitHeaders(endpoint, states, this.#options.clock.now());
  }

  /** Batch items are paced by their workers, not by limits made for people who wait. */
  limitsOf(request: MeteredRequest): RateLimits {
    if (request.endpoint === "batch") return noLimits;
    return this.#options.limits(request.organizationId) ?? noLimits;
  }

  async #recheckKey(keyId: string): Promise<CurrentKey | null> {
    try {
      return await this.#options.recheckKey(keyId);
    } catch (error) {
      throw meterUnavailable(error);
    }
  }
}
