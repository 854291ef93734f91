/** Stores the requests of a batch in Postgres, a few MiB a statement, whatever the batch's size. */
import { sql, type CommonQueryMethods } from "slonik";
import type { Room } from "../../files/storage.ts";
import type { NewId } from "../../lib/ids.ts";
import { MOST_MODEL_NAME } from "../../lib/names.ts";
import { timestamp } from "../../store/timestamp.ts";
import type { Batch } from "../batch.ts";

const ROWS_AT_ONCE = 1_000;
const BYTES_AT_ONCE = 4 * 1024 * 1024;
/** Distinct models that `batches.models` lists at most. */
const MOST_MODELS = 16;

export interface NewItem {
  /** As a JSON string literal. */
  readonly customId: string;
  readonly body: Buffer;
  /** The body's `model`; undefined: it is missing or no string. */
  readonly model: string | undefined;
}

/**
 * A batch whose items are being stored: only while it has this state and this claim. Another worker may take it meanwhile, or its
 * time be over.
 */
export type BatchBegun = Pick<Batch, "id" | "state" | "claim">;

/** Items that came for a batch which is not as it was given to their writer any more: another worker's by now, or over. */
export class BatchMovedOn extends Error {}

/** Gathers items and stores them in portions, in order. */
export class ItemWriter {
  readonly #db: CommonQueryMethods;
  readonly #batch: BatchBegun;
  readonly #newId: NewId;
  readonly #now: number;
  #waiting: NewItem[] = [];
  #waitingBytes = 0;
  /** Bytes of all requests so far. */
  bytes = 0;
  readonly #room: Room | null;
  #stored = 0;
  /** The model of the first item that names one. */
  model: string | null = null;
  /** The models of all items; null: more than `MOST_MODELS`, or some item names none. */
  #models: Set<string> | null = new Set();

  /** @param room takes storage as the items come; null: storage for all is taken already. */
  constructor(
    db: CommonQueryMethods,
    batch: BatchBegun,
    newId: NewId,
    now: number,
    room: Room | null = null,
  ) {
    this.#db = db;
    this.#batch = batch;
    this.#newId = newId;
    this.#now = now;
    this.#room = room;
  }

  /** Items added so far. */
  get count(): number {
    return this.#stored + this.#waiting.length;
  }

  /** Bytes of the items that are not stored yet. */
  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  /** The models of all items that are stored, where they are few and each names one; for `batches.models`. */
  get models() {
    return this.#models === null ? null : sql.array([...this.#models], "text");
  }

  async add(item: NewItem): Promise<void> {
    this.#waiting.push(item);
    this.#waitingBytes += item.body.length;
    this.bytes += item.body.length;
    if (this.#waiting.length >= ROWS_AT_ONCE || this.#waitingBytes >= BYTES_AT_ONCE) await this.flush();
  }

  /** Stores what was added. @throws BatchMovedOn: then nothing is stored. */
  async flush(): Promise<void> {
    const items = this.#waiting;
    if (items.length === 0) return;
    await this.#room?.fit(this.bytes);
    this.#waiting = [];
    this.#waitingBytes = 0;
    const models = items.map(({ model }) => modelName(model));
    this.model ??= models.find((model) => model !== null) ?? null;
    for (const model of models) {
      if (model !== null) this.#models?.add(model);
      if (model === null || (this.#models?.size ?? 0) > MOST_MODELS) this.#models = null;
    }
    // The bodies are one value, which Postgres cuts apart: an array of them would be twice as large on the wire.
    const blob = sql.binary(Buffer.concat(items.map(({ body }) => body)));
    let offset = 1;
    const rows = items.map(({ customId, body }, index) => {
      const start = offset;
      offset += body.length;
      return [this.#stored + index, customId, this.#newId("req"), models[index] ?? null, start, body.length];
    });
    const { id, state, claim } = this.#batch;
    const { rowCount } = await this.#db.query(sql.unsafe`
      with held as (
        -- Locked, so that it cannot end before these items are there for its sweep.
        select id from batches
        where id = ${id} and state = ${state} and claim is not distinct from ${claim}::uuid
        for share
      )
      insert into batch_items (batch_id, number, custom_id, request_id, accepted_at, model, body)
      select held.id, item.number, item.custom_id, item.request_id, ${timestamp(this.#now)}, item.model,
        substring(${blob}::bytea from item.start for item.length)
      from held cross join ${sql.unnest(rows, ["int4", "text", "text", "text", "int4", "int4"])}
        as item (number, custom_id, request_id, model, start, length)
    `);
    if (rowCount !== items.length) throw new BatchMovedOn(`${id} was taken from its reader, or has ended`);
    this.#stored += items.length;
  }
}

/** Returns null where no model can have the name; the error is reported when the item runs. */
const modelName = (text: string | undefined): string | null =>
  text !== undefined && text.length <= MOST_MODEL_NAME && /^[\x20-\x7e]+$/.test(text) ? text : null;

/** Deletes a batch's items in portions: one statement over thousands of large rows could time out. */
export async function removeItems(db: CommonQueryMethods, batchId: string): Promise<void> {
  for (;;) {
    const { rowCount } = await db.query(sql.unsafe`
      delete from batch_items where batch_id = ${batchId} and number in (
        select number from batch_items where batch_id = ${batchId} order by number limit ${ROWS_AT_ONCE}
      )
    `);
    if (rowCount === 0) return;
  }
}
