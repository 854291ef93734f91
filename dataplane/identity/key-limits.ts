/** Limits of keys in the projects that their work was begun in: for work that outlives the key, such as a batch. */
import { LRUCache } from "lru-cache";
import { sql, type DatabasePool } from "slonik";
import { NO_LIMITS } from "../billing/scopes.ts";
import { Gathered } from "../lib/gathered.ts";
import { lookedUpInTime } from "../store/lookup-time.ts";
import { inProjectSchema, selectPrincipals } from "./principal-rows.ts";
import { principalWeight, type Principal } from "./principal.ts";

const MOST_LIMITS = 10_000;
/** Many items of a batch ask for the same limits within a second. */
const REMEMBERED_MS = 1_000;
/** Most keys that one statement looks up, for as many requests. */
const LOOKED_UP_AT_ONCE = 500;

/** A key, and the project in which work of it was begun. */
export interface KeyInProject {
  readonly keyId: string;
  readonly projectId: string;
}

/** Epoch 0: the key is not known. */
export type LimitsNow = Pick<Principal, "limits" | "keyEpoch">;

export class KeyLimits {
  readonly #pool: DatabasePool;
  /** By `inText`. */
  readonly #remembered = new LRUCache<string, LimitsNow>({
    max: MOST_LIMITS,
    maxSize: MOST_LIMITS,
    sizeCalculation: principalWeight,
    ttl: REMEMBERED_MS,
  });
  readonly #lookups = new Gathered(
    (asked: readonly KeyInProject[]) => lookedUpInTime(this.#lookUpTogether(asked)),
    LOOKED_UP_AT_ONCE,
  );

  constructor(pool: DatabasePool) {
    this.#pool = pool;
  }

  /** Returns the limits of a key, valid or not, at most `REMEMBERED_MS` old. @throws Error when Postgres does not answer */
  async of(asked: KeyInProject): Promise<LimitsNow> {
    const name = inText(asked);
    const known = this.#remembered.get(name);
    if (known !== undefined) return known;
    const { limits, keyEpoch } = (await this.#lookups.ask(asked)).get(name) ?? {
      limits: NO_LIMITS,
      keyEpoch: 0,
    };
    this.#remembered.set(name, { limits, keyEpoch });
    return { limits, keyEpoch };
  }

  /** Looks up keys in projects; returns the known ones, by `inText`. */
  async #lookUpTogether(asked: readonly KeyInProject[]): Promise<ReadonlyMap<string, Principal>> {
    const each = new Map(asked.map((one) => [inText(one), one])).values();
    const pairs = Array.from(each, ({ keyId, projectId }) => [keyId, projectId]);
    const joined = sql.fragment`
      join ${sql.unnest(pairs, ["text", "text"])} as asked(key_id, project_id) on asked.key_id = key.id
    `;
    const rows = await this.#pool.any(
      sql.type(inProjectSchema)`
        ${selectPrincipals(sql.fragment`, asked.project_id as "askedProjectId"`, sql.fragment`asked.project_id`, joined)}
      `,
    );
    return new Map(
      rows.map(({ projectId, principal }) => [inText({ keyId: principal.keyId, projectId }), principal]),
    );
  }
}

const inText = ({ keyId, projectId }: KeyInProject): string => `${keyId} ${projectId}`;
