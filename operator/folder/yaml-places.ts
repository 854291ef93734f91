/** Finds nodes of one YAML document, and the lines of the faults in it. Pure. */
import { type Document, isMap, isSeq, type LineCounter, type Node, type Pair, type YAMLMap } from "yaml";

/** Where a walk along a path ended. */
interface Reached {
  /** The node at the end of the path; undefined: the text has none there. */
  readonly node: unknown;
  /** Offset of what the path names, or of the innermost node around it that is there. */
  readonly offset: number;
}

/** The places of one document. Each map lists its keys once, for all faults in it: the library compares them with every key before the one that it looks for. */
export class Places {
  readonly #document: Document.Parsed;
  readonly #lines: LineCounter;
  readonly #pairs = new Map<YAMLMap, ReadonlyMap<string, Pair>>();

  constructor(document: Document.Parsed, lines: LineCounter) {
    this.#document = document;
    this.#lines = lines;
  }

  /** Returns the node of an item, by its index in the document's List, then in each List nested in that. */
  item(items: readonly number[]): unknown {
    return this.#walk(stepsTo(items)).node;
  }

  /** Returns the line of a path in an item, or of the innermost node around it that is in the text. */
  lineOf(items: readonly number[], path: string): number {
    return this.lineAt([...stepsTo(items), ...pathSteps(path)]);
  }

  /** The same for the steps of a path. */
  lineAt(steps: readonly PropertyKey[]): number {
    return this.#lines.linePos(this.#walk(steps).offset).line;
  }

  #walk(steps: readonly PropertyKey[]): Reached {
    let node: unknown = this.#document.contents;
    let offset = startOf(node) ?? this.#document.range[0];
    for (const step of steps) {
      const pair = isMap(node) ? this.#pairsOf(node).get(String(step)) : undefined;
      node = isSeq(node) && typeof step === "number" ? node.items[step] : pair?.value;
      // The key's own place: a value may begin a line below it.
      offset = startOf(pair?.key) ?? startOf(node) ?? offset;
      if (node === undefined || node === null) return { node: undefined, offset };
    }
    return { node, offset };
  }

  /** The pairs of a map by key; of a key that it has twice the first. */
  #pairsOf(map: YAMLMap): ReadonlyMap<string, Pair> {
    let pairs = this.#pairs.get(map);
    if (pairs === undefined) {
      pairs = new Map(map.items.toReversed().map((pair) => [String(pair.key), pair]));
      this.#pairs.set(map, pairs);
    }
    return pairs;
  }
}

const startOf = (node: unknown): number | undefined =>
  (node as Pick<Node, "range"> | null | undefined)?.range?.[0];

/** The steps from a document to an item of its List. */
const stepsTo = (items: readonly number[]): (string | number)[] => items.flatMap((item) => ["items", item]);

/** The inverse of `pathText`. */
function pathSteps(path: string): (string | number)[] {
  return Array.from(path.matchAll(/\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]|([^.[\]]+)/g), (match) => {
    if (match[1] !== undefined) return Number(match[1]);
    return match[2] === undefined ? (match[3] ?? "") : String(JSON.parse(match[2]));
  });
}
