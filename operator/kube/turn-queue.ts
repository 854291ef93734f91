/** A queue of keys, each once. Namespaces take turns, so that one with many keys does not delay the others. */
export class TurnQueue {
  /** Waiting keys by namespace; the namespace whose turn is next comes first. */
  readonly #waiting = new Map<string, Set<string>>();

  /** Adds a key; one that waits already keeps its place. */
  add(namespace: string, key: string): void {
    this.#waiting.set(namespace, (this.#waiting.get(namespace) ?? new Set()).add(key));
  }

  /** Takes the key whose turn it is; undefined: none waits. */
  next(): string | undefined {
    const [next] = this.#waiting;
    if (next === undefined) return undefined;
    const [namespace, keys] = next;
    const [key] = keys;
    if (key !== undefined) keys.delete(key);
    this.#waiting.delete(namespace);
    if (keys.size > 0) this.#waiting.set(namespace, keys);
    return key;
  }
}
