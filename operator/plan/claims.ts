import { type Declared, reference } from "./objects.ts";

/** Who holds which public name. Asked in order of age, so that the older one wins. */
export class Claims {
  readonly #holders = new Map<string, Declared>();

  /** The first of the names that another object holds, as an index; -1: all are free or the asker's own. */
  takenIndex(names: readonly string[], asker: Declared): number {
    return names.findIndex((name) => {
      const holder = this.#holders.get(name);
      return holder !== undefined && holder !== asker;
    });
  }

  take(names: readonly string[], holder: Declared): void {
    for (const name of names) this.#holders.set(name, holder);
  }

  /** Who holds the name, as the asker may know it: nothing of another namespace is told. */
  describeHolder(name: string, asker: Declared): string {
    const holder = this.#holders.get(name);
    return holder === undefined || holder.namespace !== asker.namespace
      ? `an older ${asker.kind} of another namespace`
      : `the older ${holder.kind} ${reference(holder)}`;
  }
}
