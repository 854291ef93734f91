import { expect, test } from "vitest";
import {
  faultText,
  harmClass,
  planFaults,
  shortestFailing,
  sparedPlane,
  subjectOf,
  upstreamFaults,
} from "./plan.ts";

const options = { faults: 600, everyMs: 10_000, disks: true };

test("a plan follows from its seed, and another seed makes another", () => {
  expect(planFaults(7, options)).toEqual(planFaults(7, options));
  expect(planFaults(8, options)).not.toEqual(planFaults(7, options));
});

test("a shorter plan is the beginning of a longer one, and so is what is played of it", () => {
  expect(planFaults(7, { ...options, faults: 20 })).toEqual(planFaults(7, options).slice(0, 20));
});

test("every kind of fault comes, every fault of an upstream too, and one plane is never ended", () => {
  const plan = planFaults(3, options);
  const classes = new Set(plan.map(({ harm }) => harmClass(harm)));
  for (const store of ["redis", "postgres"])
    for (const how of ["kill", "restart", "freeze", "full", "disk", "sessions"])
      expect(classes).toContain(`${store}: ${how}`);
  for (const how of ["kill", "freeze", "end"])
    for (const who of ["plane", "operator"]) expect(classes).toContain(`${who}: ${how}`);
  for (const how of ["cut", "hole", "no answers", "slow", "no commits"])
    expect(classes).toContain(`network: ${how}`);
  for (const how of [...Object.keys(upstreamFaults), "first is gone", "all are gone"])
    expect(classes).toContain(`upstream: ${how}`);
  for (const how of ["engine: fails", "engine: hangs", "clock: time of day", "clock: time passed"])
    expect(classes).toContain(how);
  const ended = plan.flatMap(({ harm }) =>
    harm.kind === "plane" && harm.how !== "freeze" ? [harm.plane] : [],
  );
  expect(ended.length).toBeGreaterThan(10);
  expect(ended).not.toContain(sparedPlane(3));
});

test("without disks of its own nothing fills one, and everything else stays", () => {
  const [having, lacking] = [planFaults(3, options), planFaults(3, { ...options, disks: false })];
  expect(lacking.some(({ harm }) => harm.kind === "store" && harm.how === "disk")).toBe(false);
  expect(lacking.map(({ afterMs, forMs }) => [afterMs, forMs])).toEqual(
    having.map(({ afterMs, forMs }) => [afterMs, forMs]),
  );
});

test("a line of the plan says what is done to whom, when and for how long", () => {
  const harm = { kind: "network", plane: 1, store: "redis", how: "slow", delayMs: 80 } as const;
  expect(faultText({ number: 3, afterMs: 1_200, forMs: 4_000, harm })).toBe(
    "   3  +1.2 s  network of data plane b to redis: slow (80 ms), for 4.0 s",
  );
  expect(subjectOf({ kind: "clock", of: 0, how: "time passed", byMs: 80_000 })).toBe("plane 0");
});

test("the shortest prefix that fails is found, in as many runs as its length has binary digits", async () => {
  for (const shortest of [1, 2, 17, 39, 40]) {
    const tried: number[] = [];
    const fails = async (length: number) => {
      tried.push(length);
      return length >= shortest;
    };
    expect(await shortestFailing(40, fails)).toBe(shortest);
    expect(tried.length).toBeLessThanOrEqual(6);
  }
});
