/** Which output item an event of a Responses stream belongs to: servers number and name their items in several ways. */
import type { Piece } from "../block-order.ts";
import { countOf, objectOf, textOf } from "../fields.ts";
import type { JsonObject, JsonValue } from "../messages/types.ts";
import { corruptAnswer } from "../upstream-error.ts";

/** Most output items of one answer; a broken upstream must not fill the memory with empty ones. */
const MAX_ITEMS = 4_096;

/** Kinds of items that the hub has blocks for. */
export const itemKinds = ["message", "function_call", "reasoning"] as const;
export type ItemKind = (typeof itemKinds)[number];

export const itemKind = (item: JsonObject): ItemKind | undefined =>
  itemKinds.find((kind) => kind === item["type"]);

/** Ids of an item, its call id before its own: some servers give several items one id. */
const idsOf = (item: JsonObject | null, named?: JsonValue): string[] =>
  [named, item?.["call_id"], item?.["id"]].flatMap((id) => textOf(id) ?? []);

/** An output item under way. */
export interface Item {
  /** Content parts by content index; reasoning and calls have one piece, number 0. */
  readonly pieces: Map<number, Piece>;
  /** Reasoning: which of the two forms came first (the other one repeats it), and the last summary part. */
  reasoning: { form: "summary" | "raw"; part: number } | null;
  done: boolean;
}

export class StreamItems {
  /**
   * Items by their place in the output, separately for each kind: some servers number each kind by itself, or calls
   * from text on.
   */
  readonly #items: Readonly<Record<ItemKind, Map<number, Item>>> = {
    message: new Map(),
    function_call: new Map(),
    reasoning: new Map(),
  };
  #itemCount = 0;
  /** Places by item id. */
  readonly #outputs = new Map<string, number>();
  /** Places that an event with an index alone has named: its first id is remembered, as each delta may have another. */
  readonly #indexed = new Set<number>();
  /** Place of the item that was added last, until it ends: an unknown id is taken for it. */
  #added: number | null = null;
  /** The place after the last item that was named. */
  #nextOutput = 0;

  /**
   * Returns the place of an event's item. Some servers send no index: then its id or call id decides, else it is the
   * last item.
   */
  placeOf(data: JsonObject, type: string): number {
    const given = typeof data["output_index"] === "number" ? countOf(data["output_index"]) : null;
    const item = objectOf(data["item"]);
    if (given !== null && item === null) return this.#atIndex(given, data["item_id"]);
    const ids = idsOf(item, data["item_id"]);
    const isAdded = type === "response.output_item.added";
    if (ids.length === 0 && !isAdded) return given ?? Math.max(0, this.#nextOutput - 1);
    const known = this.#knownOf(ids)[0] ?? (isAdded ? null : this.#added);
    const output = given ?? known ?? this.#nextOutput;
    if (isAdded) this.#added = output;
    else if (item !== null && output === this.#added) this.#added = null;
    // An id that several items share stays with the first of them.
    for (const id of ids) if (!this.#outputs.has(id)) this.#outputs.set(id, output);
    if (this.#outputs.size > 2 * MAX_ITEMS) throw corruptAnswer("too many output items");
    this.#nextOutput = Math.max(this.#nextOutput, output + 1);
    return output;
  }

  /** Remembers the id under which an index is named first. */
  #atIndex(output: number, named: JsonValue | undefined): number {
    if (this.#indexed.has(output) || this.#indexed.size === MAX_ITEMS) return output;
    this.#indexed.add(output);
    const id = textOf(named);
    if (id !== null && !this.#outputs.has(id)) this.#outputs.set(id, output);
    return output;
  }

  #knownOf(ids: readonly string[]): number[] {
    return ids.flatMap((id) => this.#outputs.get(id) ?? []);
  }

  /** Returns the item at a place, a new one if need be. @throws ApiError for more than `MAX_ITEMS` */
  at(kind: ItemKind, output: number): Item {
    const items = this.#items[kind];
    const known = items.get(output);
    if (known !== undefined) return known;
    this.#itemCount += 1;
    if (this.#itemCount > MAX_ITEMS) throw corruptAnswer("too many output items");
    const item: Item = { pieces: new Map(), reasoning: null, done: false };
    items.set(output, item);
    return item;
  }

  /**
   * Returns the places of a kind's items by their indexes in the whole output. Some servers leave streamed items out of
   * it, or number each kind by itself: ids decide first, then the indexes if all of them fit, else the order.
   */
  placesOf(kind: ItemKind, items: readonly JsonObject[]): ReadonlyMap<number, number> {
    const left = new Set([...this.#items[kind].keys()].toSorted((a, b) => a - b));
    const places = new Map<number, number>();
    const take = (index: number, place: number) => {
      left.delete(place);
      places.set(index, place);
    };
    const own = [...items.entries()].filter(([, item]) => itemKind(item) === kind);
    for (const [index, item] of own) {
      const known = this.#knownOf(idsOf(item)).find((place) => left.has(place));
      if (known !== undefined) take(index, known);
    }
    const others = own.flatMap(([index]) => (places.has(index) ? [] : [index]));
    const fits = others.every((index) => left.has(index));
    // An item that was not streamed gets a place that no event can name.
    for (const index of others) take(index, fits ? index : (left.values().next().value ?? -1 - index));
    return places;
  }
}
