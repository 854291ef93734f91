/**
 * Rows that wait to be stored, as JSON texts whose bytes lie outside of V8's heap: as objects they would survive young
 * collections, which copy each of them twice and then fill the old generation with it. Pure.
 */
import { CLOSE_ARRAY, COMMA, OPEN_ARRAY } from "../lib/json-bytes.ts";

/** Of one statement. */
const ROWS_AT_ONCE = 500;
/** As many rows of the usual size, and some room. */
const PACK_BYTES = 256 * 1024;
/** The version and the opening bracket. */
const HEAD_BYTES = 2;
const JSONB_VERSION = 1;

/** Rows of one statement, in the order in which they came. */
export class RowPack {
  /** The version, the opening bracket, and each row with a comma behind it. */
  readonly #bytes: Buffer;
  /** Where each row begins; the last one of these is where the next row will. */
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

  /** It has the usual size, so another may take its place. */
  get isUsual(): boolean {
    return this.#bytes.length === PACK_BYTES;
  }

  clear(): void {
    this.#rows = 0;
    this.#starts[0] = HEAD_BYTES;
  }

  /** False: there is no room for it. */
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
   * These rows, one at least, as a JSON array in Postgres' binary form of `jsonb`: a version and the text. A string of so
   * many would be a large object of the old generation. Of all rows it is the pack's own memory: nothing is added afterwards.
   */
  jsonb(from = 0, to = this.#rows): Buffer {
    const [start, end] = [this.#startOf(from), this.#startOf(to)];
    const all = from === 0 && to === this.#rows;
    const parts = [this.#bytes.subarray(0, HEAD_BYTES), this.#bytes.subarray(start, end)];
    const bytes = all ? this.#bytes.subarray(0, end) : Buffer.concat(parts);
    // In place of the last comma.
    bytes[bytes.length - 1] = CLOSE_ARRAY;
    return bytes;
  }

  #startOf(row: number): number {
    return this.#starts[row] ?? 0;
  }
}

/** In UTF-8, with its comma. */
const mostBytes = (row: string): number => 3 * row.length + 1;

export class WaitingRows {
  #packs: RowPack[] = [];
  /** Stored, and used again: the system gives new memory page by page, each cleared first. */
  #spare: RowPack | null = null;
  /** Nothing is added to the first pack any more. */
  #sealed = false;
  #rows = 0;

  /** How many wait. */
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

  /** The oldest rows, which nothing is added to from here on, and which wait until `stored` is told; null: none wait. */
  first(): RowPack | null {
    this.#sealed = this.#packs.length > 0;
    return this.#packs[0] ?? null;
  }

  /** The oldest rows wait no more, and nobody reads them any more. */
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
