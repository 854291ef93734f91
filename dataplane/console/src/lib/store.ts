/** A value that components watch. */
import { useEffect, useState } from "preact/hooks";

export class Store<Value> {
  #value: Value;
  readonly #watchers = new Set<(value: Value) => void>();

  constructor(value: Value) {
    this.#value = value;
  }

  get value(): Value {
    return this.#value;
  }

  set(value: Value): void {
    this.#value = value;
    for (const watcher of this.#watchers) watcher(value);
  }

  watch(watcher: (value: Value) => void): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }
}

export function useStore<Value>(store: Store<Value>): Value {
  const [value, setValue] = useState(store.value);
  useEffect(() => {
    // It may have changed between the first drawing and now.
    setValue(() => store.value);
    return store.watch((next) => setValue(() => next));
  }, [store]);
  return value;
}
