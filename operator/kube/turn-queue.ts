/** A queue of items, each once. Namespaces take turns, so that one with many items does not delay the others. */
export class TurnQueue<Item = string> {
  /** Waiting items by namespace; the namespace whose turn is next comes first. */
  readonly #waiting = new Map<string, Set<Item>>();

  /** Adds an item; one that waits already keeps its place. */
  add(namespace: string, item: Item): void {
    this.#waiting.set(namespace, (this.#waiting.get(namespace) ?? new Set()).add(item));
  }

  /** Takes the item whose turn it is; undefined: none waits. */
  next(): Item | undefined {
    const [next] = this.#waiting;
    if (next === undefined) return undefined;
    const [namespace, items] = next;
    const [item] = items;
    if (item !== undefined) items.delete(item);
    this.#waiting.delete(namespace);
    if (items.size > 0) this.#waiting.set(namespace, items);
    return item;
  }

  /** Drops the last item of the namespace with the most; of the named one unless another has more. */
  dropOne(namespace: string): void {
    let most = namespace;
    const countOf = (one: string) => this.#waiting.get(one)?.size ?? 0;
    for (const other of this.#waiting.keys()) if (countOf(other) > countOf(most)) most = other;
    const items = this.#waiting.get(most);
    const last = [...(items ?? [])].at(-1);
    if (items === undefined || last === undefined) return;
    items.delete(last);
    if (items.size === 0) this.#waiting.delete(most);
  }
}
