/** A member of a roster. `seat` is its place there; -1: it is in none. */
export interface Seated {
  seat: number;
}

/**
 * Who is here now, where all come and go within a moment. A Map or Set would do, but V8's leave a pointer from each
 * table they have outgrown to the next one. Once one of these is old, the collector of the young generation takes all
 * later ones, and whatever stood in them, for alive: a third of all that the requests left behind was moved to the
 * old generation instead of being forgotten.
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

  /** False: it was not here. */
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
