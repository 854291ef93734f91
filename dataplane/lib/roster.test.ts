import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Roster } from "./roster.ts";

class Member {
  seat = -1;
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

describe("a roster", () => {
  test("knows who is here", () => {
    const roster = new Roster<Member>();
    const [anna, ben] = [new Member("anna"), new Member("ben")];
    roster.add(anna);
    expect([roster.size, roster.has(anna), roster.has(ben)]).toEqual([1, true, false]);
    roster.add(ben);
    expect(roster.delete(anna)).toBe(true);
    expect([roster.size, roster.has(anna), roster.has(ben)]).toEqual([1, false, true]);
    expect([...roster]).toEqual([ben]);
  });

  test("seats nobody twice, and lets nobody go twice", () => {
    const roster = new Roster<Member>();
    const anna = new Member("anna");
    roster.add(anna);
    roster.add(anna);
    expect(roster.size).toBe(1);
    expect([roster.delete(anna), roster.delete(anna)]).toEqual([true, false]);
    expect(roster.size).toBe(0);
  });

  test("holds what a set would after any comings and goings", () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.boolean(), fc.nat(9))), (steps) => {
        const members = Array.from({ length: 10 }, (_, index) => new Member(String(index)));
        const roster = new Roster<Member>();
        const set = new Set<Member>();
        for (const [comes, index] of steps) {
          const member = members[index] as Member;
          if (comes) {
            roster.add(member);
            set.add(member);
          } else expect(roster.delete(member)).toBe(set.delete(member));
          expect(roster.size).toBe(set.size);
          expect(new Set(roster)).toEqual(set);
          for (const one of members) expect(roster.has(one)).toBe(set.has(one));
        }
      }),
    );
  });
});
