/** Things that wait, each once; namespaces take turns, so that none keeps others' waiting by how many it has. */
export class TurnQueue {
  /** By namespace; whoever is next comes first. */
  readonly #waiting = new Map<string, Set<string>>();

  /** What waits already keeps its place. */
  add(namespace: string, key: string): void {
    this.#waiting.set(namespace, (this.#waiting.get(namespace) ?? new Set()).add(key));
  }

  /** Takes the one whose turn it is; undefined: none waits. */
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
