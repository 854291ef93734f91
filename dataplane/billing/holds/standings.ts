/**
 * What an organization and its limits have left: the ledger and Redis read together, as each knows charges that the other has
 * not. Holds nothing and charges nothing.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import type { Clock } from "../../lib/clock.ts";
import { ANSWER_SLICE_MS, Slices } from "../../lib/slices.ts";
import { MOST_LOOKS, type AccountLoader } from "./account-loader.ts";
import { readStanding } from "../ledger/accounts.ts";
import type { Micros } from "../credits.ts";
import { readScopeSpend, type ScopeOf } from "./scope-spend.ts";
import { beginsAnewAt, creditScopes, scopesText, type LimitedScope } from "../scopes.ts";
import { operation, type Reply } from "./shard.ts";
import { ASKED_AT_ONCE, UNSURE_LOOK_MS, UNSURE_LOOKS, type Shards } from "./shards.ts";

/** Scopes whose spend is read at once: a millisecond or two. */
const READ_AT_ONCE = 500;

export interface StandingsOptions {
  readonly pool: DatabasePool;
  readonly clock: Clock;
  readonly log: Logger;
}

/** An organization's credit; all but `available` are exact sums of the ledger and of the charges on their way there. */
export interface Credit {
  readonly granted: Micros;
  readonly used: Micros;
  readonly held: Micros;
  /** What a new request could hold; not below zero. */
  readonly available: Micros;
}

/** How a limit of credit stands. */
export interface Standing {
  readonly scope: LimitedScope;
  readonly spent: Micros;
  readonly held: Micros;
  /** Unix milliseconds; null: never. */
  readonly beginsAnewAt: number | null;
}

const anewOf = ({ limits }: LimitedScope, now: number): number | null =>
  limits.credits === undefined ? null : beginsAnewAt(limits.credits.per, now);

export class Standings {
  readonly #options: StandingsOptions;
  readonly #shards: Shards;
  readonly #loader: AccountLoader;

  constructor(options: StandingsOptions, shards: Shards, loader: AccountLoader) {
    this.#options = options;
    this.#shards = shards;
    this.#loader = loader;
  }

  /** What `GET /v1/organization/credits` shows (rule 5.18). @throws ApiError 503. */
  async credit(organizationId: string): Promise<Credit> {
    for (let look = 1; ; look += 1) {
      const { granted, balance, version } = await readStanding(this.#options.pool, organizationId);
      const reply = await this.#shards.run(organizationId, operation("balance", organizationId));
      const [word, undrained = "0", held = "0", known = "0"] = reply;
      // Only with both at the same version is it sure that no charge is missing, or counted in both.
      if (known === version.toString() || look === MOST_LOOKS) {
        const left = balance - BigInt(undrained);
        const available = left - BigInt(held);
        return {
          granted,
          used: granted - left,
          held: BigInt(held),
          available: available > 0n ? available : 0n,
        };
      }
      if (word === "load" || BigInt(known) < version) await this.#loader.load(organizationId);
    }
  }

  /**
   * What is left of the credit limits of keys, each given by the scopes that hold for it (rule 9.5). For a moment after keys or
   * limits were changed it is open whose the last charges are: that is waited for (rule 9.2). Without Redis the ledger's sums
   * are shown alone: a key that was just made must be shown. Few are asked for at once, as holds wait behind them.
   */
  async limits(
    organizationId: string,
    keys: readonly (readonly LimitedScope[])[],
  ): Promise<readonly (readonly Standing[])[]> {
    const now = this.#options.clock.now();
    const slices = new Slices(ANSWER_SLICE_MS);
    const texts = await slices.map(keys, (scopes) => scopesText(scopes, now, false));
    let replies = await this.#askStandings(organizationId, texts);
    for (let look = 1; look < UNSURE_LOOKS && replies.some(([word]) => word === "moving"); look += 1) {
      await sleep(UNSURE_LOOK_MS);
      replies = await this.#askStandings(organizationId, texts);
    }
    // Redis knows no spend of a scope that no request has used yet: the ledger has it.
    const unknown = new Map<string, ScopeOf>();
    const names = await slices.map(texts.keys(), (index) =>
      creditScopes(texts[index] ?? "").map((scope, place) => {
        if ((replies[index]?.[1 + 2 * place] ?? "") === "")
          unknown.set(scope.name, { organizationId, scope });
        return scope.name;
      }),
    );
    const spent = await this.#spends([...unknown.values()]);
    return await slices.map(keys.entries(), ([index, scopes]) =>
      scopes
        .filter(({ limits }) => limits.credits !== undefined)
        .map((scope, place) => {
          const [told = "", held = "0"] = (replies[index] ?? []).slice(1 + 2 * place);
          const micros = told === "" ? (spent.get(names[index]?.[place] ?? "") ?? 0n) : BigInt(told);
          return { scope, spent: micros, held: BigInt(held), beginsAnewAt: anewOf(scope, now) };
        }),
    );
  }

  /** The spend of scopes in the ledger, by name. */
  async #spends(scopes: readonly ScopeOf[]): Promise<ReadonlyMap<string, Micros>> {
    const spent = new Map<string, Micros>();
    for (let at = 0; at < scopes.length; at += READ_AT_ONCE)
      for (const spend of await readScopeSpend(this.#options.pool, scopes.slice(at, at + READ_AT_ONCE)))
        spent.set(spend.name, spend.spent);
    return spent;
  }

  async #askStandings(organizationId: string, texts: readonly string[]): Promise<readonly Reply[]> {
    const replies: Reply[] = [];
    const ask = async (text: string): Promise<Reply> =>
      text === "" ? [] : await this.#shards.run(organizationId, operation("standing", organizationId, text));
    try {
      for (let at = 0; at < texts.length; at += ASKED_AT_ONCE)
        replies.push(...(await Promise.all(texts.slice(at, at + ASKED_AT_ONCE).map(ask))));
    } catch (error) {
      this.#options.log.warn({ err: error, organizationId }, "what limits have left is told without Redis");
    }
    return replies;
  }
}
