/** File contents as rows of 1 MiB (design.md §6). */
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { countMoved } from "../lib/garbage.ts";
import { unhindered, type PieceReader } from "../lib/piece-reader.ts";
import { poolInTurns } from "../store/pool-turns.ts";
import { piecesOf, type FileContents, type WrittenFile } from "./contents.ts";

const CHUNK_BYTES = 1024 * 1024;

export class PostgresContents implements FileContents {
  readonly storage = "postgres";
  readonly #postgres: DatabasePool;

  constructor(postgres: DatabasePool) {
    this.#postgres = postgres;
  }

  async write(
    { id, organizationId }: WrittenFile,
    source: AsyncIterable<Buffer>,
    onProgress: () => Promise<void>,
  ): Promise<number> {
    const pool = poolInTurns(this.#postgres, organizationId);
    let number = 0;
    let size = 0;
    for await (const piece of piecesOf(source, CHUNK_BYTES)) {
      await pool.query(sql.unsafe`
        insert into file_chunks (file_id, number, bytes) values (${id}, ${number}, ${sql.binary(piece)})
      `);
      number += 1;
      size += piece.length;
      await onProgress();
    }
    return size;
  }

  async *read(
    id: string,
    start: number,
    end: number,
    reader: PieceReader = unhindered,
  ): AsyncIterable<Buffer> {
    for (let at = start; at < end;) {
      const number = Math.floor(at / CHUNK_BYTES);
      const from = at - number * CHUNK_BYTES;
      const most = reader.most(Math.min(CHUNK_BYTES - from, end - at));
      const { bytes: piece } = await reader.inTurn(() =>
        this.#postgres.one(sql.type(z.object({ bytes: z.instanceof(Buffer) }))`
          select substring(bytes from ${from + 1} for ${most}) as bytes from file_chunks
          where file_id = ${id} and number = ${number}
        `),
      );
      if (piece.length === 0) throw new Error(`file ${id} ends before byte ${end}`);
      // A row arrives as hexadecimal text, twice as long as its bytes.
      countMoved(2 * piece.length);
      yield piece;
      at += piece.length;
    }
  }

  async remove(id: string): Promise<void> {
    // In portions: one statement over 512 rows of 1 MiB could run into the statement time-out.
    for (;;) {
      const { rowCount } = await this.#postgres.query(sql.unsafe`
        delete from file_chunks where file_id = ${id} and number in (
          select number from file_chunks where file_id = ${id} order by number desc limit 64
        )
      `);
      if (rowCount === 0) return;
    }
  }
}
