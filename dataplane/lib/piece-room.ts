/**
 * Room for the pieces of downloads that their clients have not taken yet. Nobody is refused or waits for it: a piece is large
 * while little is held, and small when much is, so that thousands of clients that take nothing hold little (rule 7.2).
 */

const KiB = 1024;
const MiB = 1024 * KiB;

export const pieceLimits = {
  /** The least size of a piece, which is not counted: about what a socket holds. */
  smallBytes: 64 * KiB,
  /** Bytes of larger pieces, of one organization and of all. */
  bytesOfOne: 16 * MiB,
  bytes: 64 * MiB,
  /** A piece has at most this part of what is left, so that those who come later find some room, too. */
  share: 1 / 4,
} as const;

/** What one download holds. */
export interface HeldPiece {
  /** Returns how many of the wanted bytes the next piece may have; the piece before was taken. */
  readonly next: (wanted: number) => number;
  /** Gives everything back; may be called more than once. */
  readonly release: () => void;
}

export class PieceRoom {
  #bytes = 0;
  readonly #byOwner = new Map<string, number>();

  /** Bytes of large pieces that are held now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Begins a download. */
  open(owner: string): HeldPiece {
    let held = 0;
    const release = () => {
      this.#add(owner, -held);
      held = 0;
    };
    return {
      release,
      next: (wanted) => {
        release();
        const { smallBytes, bytes, bytesOfOne, share } = pieceLimits;
        const left = Math.min(bytes - this.#bytes, bytesOfOne - (this.#byOwner.get(owner) ?? 0));
        const most = Math.min(wanted, Math.floor(left * share));
        if (most <= smallBytes) return Math.min(wanted, smallBytes);
        held = most;
        this.#add(owner, held);
        return held;
      },
    };
  }

  #add(owner: string, more: number): void {
    if (more === 0) return;
    this.#bytes += more;
    const bytes = (this.#byOwner.get(owner) ?? 0) + more;
    if (bytes > 0) this.#byOwner.set(owner, bytes);
    else this.#byOwner.delete(owner);
  }
}
