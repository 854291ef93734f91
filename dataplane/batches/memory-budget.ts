/** Bytes that may be in memory at once; who asks for more than is free waits its turn. */
export class MemoryBudget {
  readonly #most: number;
  #used = 0;
  readonly #line: { readonly bytes: number; readonly admitted: () => void }[] = [];

  constructor(most: number) {
    this.#most = most;
  }

  /** Resolves with what gives the bytes back. One larger than the whole budget gets it alone. */
  async take(bytes: number): Promise<() => void> {
    const wanted = Math.min(bytes, this.#most);
    await new Promise<void>((admitted) => {
      this.#line.push({ bytes: wanted, admitted });
      this.#admit();
    });
    return () => {
      this.#used -= wanted;
      this.#admit();
    };
  }

  #admit(): void {
    for (let [first] = this.#line; first !== undefined; [first] = this.#line) {
      if (this.#used + first.bytes > this.#most) return;
      this.#line.shift();
      this.#used += first.bytes;
      first.admitted();
    }
  }
}
