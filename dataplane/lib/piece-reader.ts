/** Who takes what is read from a store piece by piece, and how fast. */
export interface PieceReader {
  /** Asked before each piece: how many of the bytes that are wanted it may have. The piece before was taken by then. */
  most(wanted: number): number;
  /** Runs one read of the database when it is its turn. */
  readonly inTurn: ReadInTurn;
}

/** Runs a read when it has its turn. */
export type ReadInTurn = <Read>(read: () => Promise<Read>) => Promise<Read>;

/** Reads without waiting for a turn. */
export const atOnce: ReadInTurn = (read) => read();

/** Takes pieces as large as the store has them, as they come. */
export const unhindered: PieceReader = { most: (wanted) => wanted, inTurn: atOnce };
