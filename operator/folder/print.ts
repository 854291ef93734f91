/** Statuses as lines for a terminal, each when its meaning changes (rule 1.13). */
import { conditionOf, type ObjectStatus } from "../plan/conditions.ts";
import { reference } from "../plan/objects.ts";
import type { LocatedFault } from "./source.ts";

/** So many good objects of one round are named one by one; more are counted. */
const MAX_GOOD_LINES = 20;

export class StatusPrinter {
  readonly #print: (line: string) => void;
  #known = new Map<string, string>();
  #faults = new Set<string>();

  constructor(print: (line: string) => void) {
    this.#print = print;
  }

  statuses(statuses: readonly ObjectStatus[]): void {
    const known = new Map<string, string>();
    const good: string[] = [];
    for (const status of statuses) {
      const name = `${status.object.kind} ${reference(status.object)}`;
      const lines = linesOf(name, status);
      const meaning = lines.join("\n");
      known.set(name, meaning);
      if (this.#known.get(name) === meaning) continue;
      if (conditionOf(status, "Stalled") === undefined) good.push(...lines);
      else for (const line of lines) this.#print(line);
    }
    if (good.length <= MAX_GOOD_LINES) for (const line of good) this.#print(line);
    else this.#print(`${good.length} objects: ${summary(good)}`);
    for (const name of this.#known.keys()) if (!known.has(name)) this.#print(`${name} removed`);
    this.#known = known;
  }

  /** Faults of files that belong to no object; each is told once while it lasts. */
  files(faults: readonly LocatedFault[]): void {
    const lines = faults.map(fileFaultLine);
    for (const line of lines) if (!this.#faults.has(line)) this.#print(line);
    this.#faults = new Set(lines);
  }
}

export const fileFaultLine = ({ file, line, subject, path, reason, message }: LocatedFault): string =>
  [`${file}:${line}`, subject, path === "" ? "" : `${path}:`, `${reason}:`, message]
    .filter((part) => part !== "")
    .join(" ");

/** `ModelRoute default/x spec.model: PriceNotFound: …`, one for each fault; else one for the sum. */
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

/** `9990 Ready=True Ready: 1/1 pods`, for each different ending. */
function summary(lines: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const line of lines) {
    const ending = line.slice(line.indexOf("Ready="));
    counts.set(ending, (counts.get(ending) ?? 0) + 1);
  }
  return [...counts].map(([ending, count]) => `${count} ${ending}`).join(", ");
}
