/** Items that wait for a limit of their key or project go on as soon as it is raised, not only when they would look again. */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";

/** Batches that are remembered at most. Items of one that is not look again when their wait is over. */
const MOST_BATCHES = 10_000;

/** A batch of which items wait for a limit. */
export interface LimitWait {
  readonly batchId: string;
  readonly organizationId: string;
  /** Of the limits that refused them (`bumpKeyEpoch`). */
  readonly keyEpoch: number;
  /** When the last of them looks again by itself, Unix milliseconds. */
  readonly until: number;
}

/** What this worker was refused for a limit. */
export class LimitWaits {
  readonly #batches = new Map<string, LimitWait>();

  /** Notes a refused item, once it is stored that it waits: else `wake` would miss it. */
  add(wait: LimitWait): void {
    const before = this.#batches.get(wait.batchId);
    this.#batches.delete(wait.batchId);
    const keyEpoch = Math.min(wait.keyEpoch, before?.keyEpoch ?? wait.keyEpoch);
    // Items of a batch wait for different times: what is spent for longer than what running requests hold.
    const until = Math.max(wait.until, before?.until ?? wait.until);
    this.#batches.set(wait.batchId, { ...wait, keyEpoch, until });
    const [oldest] = this.#batches.keys();
    if (this.#batches.size > MOST_BATCHES && oldest !== undefined) this.#batches.delete(oldest);
  }

  /** Lets items begin whose organization's limits have changed since. @returns the batches that they are of. */
  async wake(db: CommonQueryMethods, now: number): Promise<readonly string[]> {
    for (const { batchId, until } of this.#batches.values()) if (until <= now) this.#batches.delete(batchId);
    if (this.#batches.size === 0) return [];
    const waits = [...this.#batches.values()];
    const epochs = await epochsOf(db, [...new Set(waits.map(({ organizationId }) => organizationId))]);
    const changed = waits.filter(
      ({ organizationId, keyEpoch }) => (epochs.get(organizationId) ?? keyEpoch) !== keyEpoch,
    );
    const ids = changed.map(({ batchId }) => batchId);
    if (ids.length > 0) await letBegin(db, ids);
    // Only now, and not what was refused meanwhile: what fails is tried at the next look.
    for (const wait of changed)
      if (this.#batches.get(wait.batchId) === wait) this.#batches.delete(wait.batchId);
    return ids;
  }
}

async function epochsOf(
  db: CommonQueryMethods,
  organizationIds: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const rows = await db.any(sql.type(z.object({ id: z.string(), epoch: z.bigint().transform(Number) }))`
    select id, key_epoch as epoch from organizations where id = any(${sql.array([...organizationIds], "text")})
  `);
  return new Map(rows.map(({ id, epoch }) => [id, epoch]));
}

/** What waits for a limit is accepted only when it begins (`putBack`): it alone has a time of acceptance that is to come. */
async function letBegin(db: CommonQueryMethods, batchIds: readonly string[]): Promise<void> {
  await db.query(sql.unsafe`
    update batch_items item
    set not_before = null, accepted_at = date_trunc('milliseconds', clock_timestamp())
    from (
      -- Others may claim or wake some of them at the same time.
      select batch_id, number from batch_items
      where batch_id = any(${sql.array([...batchIds], "text")}) and state = 'waiting'
        and not_before > clock_timestamp() and accepted_at > clock_timestamp()
      for update skip locked
    ) as waits
    where item.batch_id = waits.batch_id and item.number = waits.number
  `);
}
