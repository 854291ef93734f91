/** Statuses as lines for a terminal, each when its meaning changes (rule 1.13). */
import { conditionOf, type ObjectStatus } from "../plan/conditions.ts";
import { reference } from "../plan/objects.ts";
import type { LocatedFault } from "./source.ts";

/** Number of good objects of one round that are named one by one; more are only counted. */
const MAX_GOOD_LINES = 20;
/** Waiting for the data plane is printed only when it takes this long: every edit waits a moment. */
const PATIENCE_MS = 2000;

export class StatusPrinter {
  readonly #print: (line: string) => void;
  readonly #now: () => number;
  #known = new Map<string, string>();
  /** Since when an object waits for the data plane. */
  #waiting = new Map<string, number>();
  /** The lines of each file that has faults. */
  #faults = new Map<string, ReadonlySet<string>>();

  /** `now`: Unix milliseconds. */
  constructor(print: (line: string) => void, now: () => number) {
    this.#print = print;
    this.#now = now;
  }

  statuses(statuses: readonly ObjectStatus[]): void {
    const known = new Map<string, string>();
    const waiting = new Map<string, number>();
    const good: string[] = [];
    for (const status of statuses) {
      const name = `${status.object.kind} ${reference(status.object)}`;
      const lines = linesOf(name, status);
      const meaning = lines.join("\n");
      const before = this.#known.get(name);
      if (isWaiting(status)) {
        const since = this.#waiting.get(name) ?? this.#now();
        waiting.set(name, since);
        if (this.#now() - since < PATIENCE_MS) {
          if (before !== undefined) known.set(name, before);
          continue;
        }
      }
      known.set(name, meaning);
      if (before === meaning) continue;
      if (conditionOf(status, "Stalled") === undefined) good.push(...lines);
      else for (const line of lines) this.#print(line);
    }
    if (good.length <= MAX_GOOD_LINES) for (const line of good) this.#print(line);
    else this.#print(`${good.length} objects: ${summary(good)}`);
    for (const name of this.#known.keys())
      if (!known.has(name) && !waiting.has(name)) this.#print(`${name} removed`);
    this.#known = known;
    this.#waiting = waiting;
  }

  /** Prints faults of files that belong to no object, each once while it lasts, and which files have none any more. */
  files(faults: readonly LocatedFault[]): void {
    const byFile = Map.groupBy(faults, ({ file }) => file);
    const known = new Map([...byFile].map(([file, ones]) => [file, new Set(ones.map(fileFaultLine))]));
    for (const [file, lines] of known)
      for (const line of lines) if (this.#faults.get(file)?.has(line) !== true) this.#print(line);
    for (const file of this.#faults.keys())
      if (!known.has(file)) this.#print(`${file} has no faults any more`);
    this.#faults = known;
  }
}

const isWaiting = (status: ObjectStatus): boolean =>
  conditionOf(status, "Stalled") === undefined &&
  ["Pending", "NoPods"].includes(conditionOf(status, "Programmed")?.reason ?? "");

/** One line that names the place of a fault. */
export function fileFaultLine({
  file,
  line,
  kind,
  namespace,
  name,
  path,
  reason,
  message,
}: LocatedFault): string {
  const subject = name === "" ? "" : `${namespace}/${name}`;
  return [`${file}:${line}`, kind, subject, path === "" ? "" : `${path}:`, `${reason}:`, message]
    .filter((part) => part !== "")
    .join(" ");
}

/** Makes `ModelRoute default/x spec.model: PriceNotFound: …`, a line for each fault; without faults one with `Ready`. */
function linesOf(name: string, status: ObjectStatus): string[] {
  const { accepted, resolved } = status.verdict;
  const programmed = conditionOf(status, "Programmed");
  const faults = [...accepted, ...resolved];
  if (faults.length > 0)
    return faults.map(
      ({ path, reason, message }) =>
        `${name} ${path === "" ? "" : `${path}: `}${reason}: ${message} (Programmed=${programmed?.status ?? "Unknown"}: ${programmed?.message ?? ""})`,
    );
  const ready = conditionOf(status, "Ready");
  const note = conditionOf(status, "Accepted")?.message ?? "";
  return [
    `${name} Ready=${ready?.status ?? "Unknown"} ${ready?.reason ?? ""}: ${ready?.message ?? ""}${note === "" ? "" : ` (${note})`}`,
  ];
}

/** Makes `9990 Ready=True Ready: 1/1 pods`, one for each different ending. */
function summary(lines: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const line of lines) {
    const ending = line.slice(line.indexOf("Ready="));
    counts.set(ending, (counts.get(ending) ?? 0) + 1);
  }
  return [...counts].map(([ending, count]) => `${count} ${ending}`).join(", ");
}
