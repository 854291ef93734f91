/**
 * Calls `make` once for each object, which must never change: the same object gives the very same result, which shows
 * that nothing changed. A result is forgotten with its object.
 */
export function oncePer<Key extends object, Value extends object | string>(
  make: (key: Key) => Value,
): (key: Key) => Value {
  const made = new WeakMap<Key, Value>();
  return (key) => {
    let value = made.get(key);
    if (value === undefined) {
      value = make(key);
      made.set(key, value);
    }
    return value;
  };
}
