/**
 * Rows that wait to be stored, as JSON texts whose bytes are outside of V8's heap: as objects they would survive young
 * collections, which copy each twice and then fill the old generation with them. Pure.
 */
import { CLOSE_ARRAY, COMMA, OPEN_ARRAY } from "../lib/json-bytes.ts";

/** Rows of one statement. */
const ROWS_AT_ONCE = 500;
/** Usual size of a pack: `ROWS_AT_ONCE` rows of the usual size, and some room. */
const PACK_BYTES = 256 * 1024;
/** Bytes of the version and the opening bracket. */
const HEAD_BYTES = 2;
const JSONB_VERSION = 1;

/** Rows of one statement, in the order in which they came. */
export class RowPack {
  /** The version, the opening bracket, and the rows, each followed by a comma. */
  readonly #bytes: Buffer;
  /** Where each row begins; the last entry is where the next row will begin. */
  readonly #starts = new Uint32Array(ROWS_AT_ONCE + 1);
  #rows = 0;

  constructor(bytes: number) {
    this.#bytes = Buffer.allocUnsafeSlow(bytes);
    this.#bytes[0] = JSONB_VERSION;
    this.#bytes[1] = OPEN_ARRAY;
    this.clear();
  }

  get rows(): number {
    return this.#rows;
  }

  /** Whether it has the usual size, so that its memory may be used again. */
  get isUsual(): boolean {
    return this.#bytes.length === PACK_BYTES;
  }

  clear(): void {
    this.#rows = 0;
    this.#starts[0] = HEAD_BYTES;
  }

  /** Adds a row. False: there is no room for it. */
  add(row: string): boolean {
    const from = this.#startOf(this.#rows);
    if (this.#rows === ROWS_AT_ONCE || from + mostBytes(row) > this.#bytes.length) return false;
    const end = from + this.#bytes.write(row, from);
    this.#bytes[end] = COMMA;
    this.#rows += 1;
    this.#starts[this.#rows] = end + 1;
    return true;
  }

  /**
   * Returns these rows, one at least, as a JSON array in Postgres' binary form of `jsonb`: a version and the text. As a string
   * they would be a large object of the old generation. For all rows it is the pack's own memory, so none may be added afterwards.
   */
  jsonb(from = 0, to = this.#rows): Buffer {
    const [start, end] = [this.#startOf(from), this.#startOf(to)];
    const all = from === 0 && to === this.#rows;
    const parts = [this.#bytes.subarray(0, HEAD_BYTES), this.#bytes.subarray(start, end)];
    const bytes = all ? this.#bytes.subarray(0, end) : Buffer.concat(parts);
    // The closing bracket replaces the last comma.
    bytes[bytes.length - 1] = CLOSE_ARRAY;
    return bytes;
  }

  #startOf(row: number): number {
    return this.#starts[row] ?? 0;
  }
}

/** The most bytes of a row in UTF-8, with its comma. */
const mostBytes = (row: string): number => 3 * row.length + 1;

export class WaitingRows {
  #packs: RowPack[] = [];
  /** A stored pack that is used again: new memory would come from the system page by page, each cleared first. */
  #spare: RowPack | null = null;
  /** Whether the first pack takes no more rows. */
  #sealed = false;
  #rows = 0;

  /** How many rows wait. */
  get rows(): number {
    return this.#rows;
  }

  add(row: string): void {
    this.#rows += 1;
    const last = this.#sealed && this.#packs.length === 1 ? undefined : this.#packs.at(-1);
    if (last?.add(row) === true) return;
    let pack = this.#spare;
    this.#spare = null;
    if (pack?.add(row) !== true) {
      pack = new RowPack(Math.max(PACK_BYTES, HEAD_BYTES + mostBytes(row)));
      pack.add(row);
    }
    this.#packs.push(pack);
  }

  /** Returns the oldest rows, which take no more from here on and wait until `stored` is called; null: none wait. */
  first(): RowPack | null {
    this.#sealed = this.#packs.length > 0;
    return this.#packs[0] ?? null;
  }

  /** Drops the oldest rows, which are stored; nobody may read them any more. */
  stored(): void {
    const pack = this.#packs.shift();
    this.#sealed = false;
    if (pack === undefined) return;
    this.#rows -= pack.rows;
    if (!pack.isUsual) return;
    pack.clear();
    this.#spare = pack;
  }
}
