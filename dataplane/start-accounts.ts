/** Who may ask, and what they may spend: keys, people's tokens and money, with what a snapshot declares of them. */
import type { Logger } from "pino";
import { startMoney, type Money } from "./billing/money.ts";
import type { SnapshotLoader } from "./config/load.ts";
import { DirectorySync } from "./identity/directory-sync.ts";
import { KeyDirectory } from "./identity/directory.ts";
import { Keys, newInferenceKey } from "./identity/keys.ts";
import { TokenPeople } from "./identity/people.ts";
import { guardedFetchJson } from "./identity/tokens/fetch-json.ts";
import { newId } from "./lib/ids.ts";
import { inBackground } from "./lib/in-background.ts";
import { Recurring } from "./lib/recurring.ts";
import type { OpenStores } from "./open-stores.ts";
import type { Resolver } from "./tools/url-guard/resolver.ts";

/** How often it is checked which issuers' keys must be read again. */
const ISSUERS_LOOK_MS = 2_000;

export interface AccountParts {
  /** Finds the owner of a key. */
  readonly directory: KeyDirectory;
  /** Finds the person of a token. */
  readonly people: TokenPeople;
  /** Makes, changes and deletes keys. */
  readonly keys: Keys;
  /** Copies what snapshots declare into Postgres. */
  readonly sync: DirectorySync;
  readonly money: Money;
  /** Reads the keys of tokens' issuers again from time to time. */
  readonly issuers: Recurring;
}

interface AccountNeeds {
  readonly log: Logger;
  readonly stores: OpenStores;
  readonly loader: SnapshotLoader;
  /** Resolves the hosts of tokens' issuers. */
  readonly resolver: Resolver;
  /** Called with what the start waits for. */
  readonly waitsFor: (what: string) => void;
}

/**
 * Starts the parts. Resolves once Redis is compared with the ledger, or cannot be, and the served snapshot is copied into
 * Postgres: a new process must know its keys before it takes requests.
 */
export async function startAccounts(needs: AccountNeeds): Promise<AccountParts> {
  const { log, stores, loader, resolver, waitsFor } = needs;
  const { postgres: pool, redis, reads, clock } = stores;
  const snapshot = () => loader.current;
  const directory = new KeyDirectory({ pool, clock });
  const money = startMoney({
    ledger: stores.ledger,
    redis,
    pool,
    clock,
    log,
    newId,
    snapshot,
    recheckKey: (keyId) => directory.recheck(keyId),
    limitsOf: (keyId, projectId) => directory.limitsOf(keyId, projectId),
  });
  const { holds } = money;
  const people = new TokenPeople({
    snapshot,
    directory,
    fetchJson: guardedFetchJson(resolver),
    clock,
  });
  const issuers = new Recurring(log, "issuers", ISSUERS_LOOK_MS, () => people.refresh());
  issuers.start();
  const sync = new DirectorySync({ pool, clock, directory, holds, newId, log });
  sync.start();
  waitsFor("Redis");
  await money.begin();
  waitsFor("its organizations to be copied into Postgres");
  if (loader.current !== null) await sync.copy(loader.current);
  loader.subscribe((changed) => inBackground(sync.copy(changed), log, "copying organizations"));
  const keys = new Keys({ pool, directory, holds, reads, newId, newKey: newInferenceKey });
  return { directory, people, keys, sync, money, issuers };
}
