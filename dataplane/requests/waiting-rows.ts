/**
 * Rows that wait to be stored, as JSON texts whose bytes lie outside of V8's heap: as objects they would survive young
 * collections, which copy each of them twice and then fill the old generation with it. Pure.
 */

/** Of one statement. */
const ROWS_AT_ONCE = 500;
/** As many rows of the usual size, and some room. */
const PACK_BYTES = 256 * 1024;
const JSONB_VERSION = 1;
const COMMA = 0x2c;
const OPENING = 0x5b;
const CLOSING = 0x5d;

/** Rows of one statement, in the order in which they came. */
export class RowPack {
  readonly #bytes: Buffer;
  /** Where each row ends, behind its comma. */
  readonly #ends = new Uint32Array(ROWS_AT_ONCE);
  #rows = 0;

  constructor(bytes: number) {
    this.#bytes = Buffer.allocUnsafeSlow(bytes);
  }

  get rows(): number {
    return this.#rows;
  }

  /** False: there is no room for it. */
  add(row: string): boolean {
    const from = this.#endOf(this.#rows);
    if (this.#rows === ROWS_AT_ONCE || from + mostBytes(row) > this.#bytes.length) return false;
    const end = from + this.#bytes.write(row, from);
    this.#bytes[end] = COMMA;
    this.#ends[this.#rows] = end + 1;
    this.#rows += 1;
    return true;
  }

  /**
   * These rows as a JSON array in Postgres' binary form of `jsonb`: a version and the text. A string of so many would be a
   * large object of the old generation.
   */
  jsonb(from = 0, to = this.#rows): Buffer {
    const [start, end] = [this.#endOf(from), Math.max(0, this.#endOf(to) - 1)];
    const bytes = Buffer.allocUnsafeSlow(end - start + 3);
    bytes[0] = JSONB_VERSION;
    bytes[1] = OPENING;
    this.#bytes.copy(bytes, 2, start, end);
    bytes[bytes.length - 1] = CLOSING;
    return bytes;
  }

  /** Where the first so many rows end. */
  #endOf(rows: number): number {
    return rows === 0 ? 0 : (this.#ends[rows - 1] ?? 0);
  }
}

/** In UTF-8, with its comma. */
const mostBytes = (row: string): number => 3 * row.length + 1;

export class WaitingRows {
  #packs: RowPack[] = [];
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
    const pack = new RowPack(Math.max(PACK_BYTES, mostBytes(row)));
    pack.add(row);
    this.#packs.push(pack);
  }

  /** The oldest rows, which nothing is added to from here on, and which wait until `stored` is told; null: none wait. */
  first(): RowPack | null {
    this.#sealed = this.#packs.length > 0;
    return this.#packs[0] ?? null;
  }

  /** The oldest rows wait no more. */
  stored(): void {
    this.#rows -= this.#packs.shift()?.rows ?? 0;
    this.#sealed = false;
  }
}
