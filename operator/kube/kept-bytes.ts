/**
 * Limits how many bytes are kept of what each namespace declares: objects without end would otherwise fill the memory of this
 * process, which serves everybody.
 */
export class KeptBytes {
  /** Bytes that are kept of a namespace at most; null: all. */
  readonly mostOf: (namespace: string) => number | null;
  /** Kept bytes by id. */
  readonly #byId = new Map<string, number>();
  readonly #byNamespace = new Map<string, number>();

  constructor(mostOf: (namespace: string) => number | null) {
    this.mostOf = mostOf;
  }

  /** Returns how many bytes are kept of a namespace whose share is limited. */
  of(namespace: string): number {
    return this.#byNamespace.get(namespace) ?? 0;
  }

  /** Keeps `bytes` for the id, instead of those kept before. @returns false when there is no room: then none are kept for it. */
  take(namespace: string, id: string, bytes: number): boolean {
    const most = this.mostOf(namespace);
    if (most === null) return true;
    this.release(namespace, id);
    const sum = bytes + this.of(namespace);
    if (sum > most) return false;
    this.#byId.set(id, bytes);
    this.#byNamespace.set(namespace, sum);
    return true;
  }

  release(namespace: string, id: string): void {
    const bytes = this.#byId.get(id) ?? 0;
    this.#byId.delete(id);
    const left = this.of(namespace) - bytes;
    if (left > 0) this.#byNamespace.set(namespace, left);
    else this.#byNamespace.delete(namespace);
  }
}
