/**
 * `make` once for each object, which must never change: the same object gives the same result, whose identity tells
 * that nothing changed. What is forgotten of the object is forgotten of the result.
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
