/** A member of a roster. `seat` is its index there; -1: it is in no roster. */
export interface Seated {
  seat: number;
}

/**
 * A set of members that come and go quickly. V8's Map and Set keep a pointer from each table that they have outgrown to the
 * next one. Once such a table is in the old generation, young collections treat all later tables and their entries as alive:
 * a third of the garbage of requests was promoted to the old generation instead of being freed.
 */
export class Roster<Member extends Seated> implements Iterable<Member> {
  readonly #members: Member[] = [];

  get size(): number {
    return this.#members.length;
  }

  has({ seat }: Member): boolean {
    return seat >= 0;
  }

  add(member: Member): void {
    if (member.seat >= 0) return;
    member.seat = this.#members.push(member) - 1;
  }

  /** @returns false when the member is not in the roster. */
  delete(member: Member): boolean {
    const { seat } = member;
    if (seat < 0) return false;
    member.seat = -1;
    const last = this.#members.pop();
    if (last === undefined || last === member) return true;
    this.#members[seat] = last;
    last.seat = seat;
    return true;
  }

  [Symbol.iterator](): Iterator<Member> {
    return this.#members.values();
  }
}
