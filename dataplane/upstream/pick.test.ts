import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { BACK_OFF_MS, backOffMs, pick, preference } from "./pick.ts";

const now = 1000;
const IN = 0;
const SOON = 1100;
const LATE = 9000;

describe("the next upstream", () => {
  test.each<[string, [outUntil: number, tries: number][], number]>([
    [
      "the first in order",
      [
        [IN, 0],
        [IN, 0],
      ],
      0,
    ],
    [
      "an untried one before a tried one",
      [
        [IN, 1],
        [IN, 0],
      ],
      1,
    ],
    [
      "the least tried",
      [
        [IN, 2],
        [IN, 1],
        [IN, 1],
      ],
      1,
    ],
    [
      "one that is in before one that is out",
      [
        [LATE, 0],
        [IN, 0],
      ],
      1,
    ],
    [
      "a tried one that is in before an untried one that is out",
      [
        [IN, 1],
        [LATE, 0],
      ],
      0,
    ],
    [
      "one whose time is just over is in, wherever it stands",
      [
        [IN, 1],
        [now, 0],
      ],
      1,
    ],
    [
      "one whose time is over is in",
      [
        [now, 0],
        [IN, 0],
      ],
      0,
    ],
    [
      "all out: that which comes back first",
      [
        [LATE, 0],
        [SOON, 0],
      ],
      1,
    ],
    [
      "all out: an untried one first",
      [
        [LATE, 0],
        [SOON, 1],
      ],
      0,
    ],
    ["none", [], -1],
  ])("%s", (_name, states, expected) => {
    const list = states.map(([outUntil, tries]) => ({ outUntil, tries }));
    expect(pick(list, now)).toBe(expected);
  });

  test("there is always one, and never one that is out while another is in", () => {
    const state = fc.record({ outUntil: fc.nat({ max: 2000 }), tries: fc.nat({ max: 3 }) });
    fc.assert(
      fc.property(fc.array(state, { minLength: 1 }), (states) => {
        const picked = states[pick(states, now)];
        expect(picked).toBeDefined();
        const anyIn = states.some(({ outUntil }) => outUntil <= now);
        expect((picked?.outUntil ?? 0) <= now).toBe(anyIn);
      }),
    );
  });
});

test("priority comes before weight and key", () => {
  const list = [
    { name: "c", priority: 1, weight: 1000 },
    { name: "a", priority: 0, weight: 1 },
    { name: "d", priority: 2, weight: 1 },
    { name: "b", priority: 0, weight: 1 },
  ];
  const firsts = new Set<string | undefined>();
  for (let key = 0; key < 50; key += 1) {
    const order = preference(list, () => `${key}`).map(({ name }) => name);
    firsts.add(order[0]);
    expect(order.slice(2)).toEqual(["c", "d"]);
  }
  expect(firsts).toEqual(new Set(["a", "b"]));
});

test("weight 0 takes no traffic, whatever its priority and whoever fails", () => {
  const list = [
    { name: "drained", priority: 0, weight: 0 },
    { name: "a", priority: 1, weight: 1 },
    { name: "also drained", priority: 1, weight: 0 },
    { name: "b", priority: 2, weight: 1 },
  ];
  for (let key = 0; key < 20; key += 1)
    expect(preference(list, () => `${key}`).map(({ name }) => name)).toEqual(["a", "b"]);
  const none = list.filter(({ weight }) => weight === 0);
  expect(preference(none, () => "k").map(({ name }) => name)).toEqual(["drained", "also drained"]);
});

test("the first try waits for nothing, later ones longer and longer, up to a limit", () => {
  expect(backOffMs(0, 0.99)).toBe(0);
  expect(backOffMs(1, 0.999)).toBe(BACK_OFF_MS.first);
  expect(backOffMs(2, 0.999)).toBe(2 * BACK_OFF_MS.first);
  expect(backOffMs(40, 0.999)).toBeLessThanOrEqual(BACK_OFF_MS.most);
  expect(backOffMs(3, 0)).toBe(0);
});
