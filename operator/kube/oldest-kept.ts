/**
 * Decides which objects of a namespace are kept when there is no room for all: oldest first, each that still fits with the older
 * ones, whatever order they are read in. An object that is left out is offered again when it is read again.
 */
import { type Aged, byAge, compareText, type Declared } from "../plan/objects.ts";
import { KeptBytes } from "./kept-bytes.ts";

type AgedObject = Aged & Pick<Declared, "kind">;

interface Kept {
  readonly object: AgedObject;
  readonly bytes: number;
}

/** Compares by age, then by kind: objects of two kinds may have the same name. */
const inOrder = (one: AgedObject, other: AgedObject): number =>
  byAge(one, other) || compareText(one.kind, other.kind);
const idOf = ({ kind, name }: AgedObject): string => `${kind} ${name}`;

export class OldestKept {
  readonly #bytes: KeptBytes;
  /** By namespace, oldest first. */
  readonly #kept = new Map<string, Kept[]>();

  /** @param mostOf bytes that are kept of a namespace; null: all. */
  constructor(mostOf: (namespace: string) => number | null) {
    this.#bytes = new KeptBytes(mostOf);
  }

  /** Returns how many bytes are kept of the namespace at most; null: all. */
  mostOf(namespace: string): number | null {
    return this.#bytes.mostOf(namespace);
  }

  /**
   * Keeps the object instead of its earlier version, and instead of younger ones where there is no room.
   * @returns the younger ones that are not kept any more; the object itself when it is not kept.
   */
  offer(object: AgedObject, bytes: number): readonly AgedObject[] {
    const { namespace } = object;
    if (this.mostOf(namespace) === null) return [];
    this.release(object);
    const kept = this.#kept.get(namespace) ?? [];
    const younger: Kept[] = [];
    while (!this.#take({ object, bytes }, kept)) {
      const youngest = kept.at(-1);
      if (youngest === undefined || inOrder(youngest.object, object) < 0) {
        for (const one of younger.toReversed()) this.#take(one, kept);
        return [object];
      }
      kept.pop();
      this.#release(youngest.object);
      younger.push(youngest);
    }
    return younger.toReversed().flatMap((one) => (this.#take(one, kept) ? [] : [one.object]));
  }

  release(object: AgedObject): void {
    const kept = this.#kept.get(object.namespace) ?? [];
    const place = placeOf(object, kept);
    const found = kept[place]?.object;
    if (found === undefined || inOrder(found, object) !== 0) return;
    kept.splice(place, 1);
    if (kept.length === 0) this.#kept.delete(object.namespace);
    this.#release(object);
  }

  #take(one: Kept, kept: Kept[]): boolean {
    const { namespace } = one.object;
    if (!this.#bytes.take(namespace, `${namespace} ${idOf(one.object)}`, one.bytes)) return false;
    kept.splice(placeOf(one.object, kept), 0, one);
    this.#kept.set(namespace, kept);
    return true;
  }

  #release(object: AgedObject): void {
    this.#bytes.release(object.namespace, `${object.namespace} ${idOf(object)}`);
  }
}

/** Returns the index of the object in `kept`, or the one where it belongs. @param kept oldest first */
function placeOf(object: AgedObject, kept: readonly Kept[]): number {
  let [low, high] = [0, kept.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    const other = kept[middle]?.object;
    if (other !== undefined && inOrder(other, object) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
