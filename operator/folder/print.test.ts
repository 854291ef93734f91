import { beforeEach, expect, test } from "vitest";
import { type Delivery, Holdings, statusOf } from "../plan/conditions.ts";
import type { Declared, Verdict } from "../plan/objects.ts";
import { StatusPrinter } from "./print.ts";

let lines: string[];
let now: number;
let printer: StatusPrinter;
beforeEach(() => {
  lines = [];
  now = 0;
  printer = new StatusPrinter(
    (line) => lines.push(line),
    () => now,
  );
});

const verdict = (name: string, more: Partial<Verdict> = {}): Verdict => {
  const object: Declared = {
    kind: "ModelRoute",
    namespace: "team",
    name,
    uid: name,
    generation: 1,
    creationTimestamp: null,
    createdAt: 0,
    spec: {},
    faults: [],
  };
  return { object, accepted: [], resolved: [], serves: 1, notes: [], facts: {}, ...more };
};
const unasked: Delivery = { kind: "unasked" };
const nobody: Delivery = { kind: "asked", serial: 1, pods: [] };
const print = (delivery: Delivery, ...verdicts: Verdict[]) => {
  lines = [];
  printer.statuses(verdicts.map((one) => statusOf(one, new Holdings(delivery))));
  return lines;
};
const missing = { reason: "PriceNotFound", path: "spec.model", message: "no price" } as const;

test("rule 1.13: a fault has kind, namespace/name, path and reason, and what is served instead", () => {
  const conflict = { reason: "Conflicted", path: "spec.aliases[0]", message: "taken" } as const;
  expect(print(unasked, verdict("m", { accepted: [conflict], resolved: [missing], serves: null }))).toEqual([
    "ModelRoute team/m spec.aliases[0]: Conflicted: taken (Programmed=False: generation 1 is not served; nothing of it is served)",
    "ModelRoute team/m spec.model: PriceNotFound: no price (Programmed=False: generation 1 is not served; nothing of it is served)",
  ]);
});

test("a status is told once, again when its meaning changes, and the end of the object too", () => {
  expect(print(unasked, verdict("m"))).toHaveLength(1);
  expect(print(unasked, verdict("m"))).toEqual([]);
  expect(print(unasked, verdict("m", { resolved: [missing] }))).toHaveLength(1);
  expect(print(unasked, verdict("m"))).toHaveLength(1);
  expect(print(unasked)).toEqual(["ModelRoute team/m removed"]);
});

test("what holds without fault is said with the status", () => {
  expect(print(unasked, verdict("m", { notes: ["the proxy resolves names"] }))).toEqual([
    "ModelRoute team/m Ready=Unknown Unacknowledged: published; no data plane is asked (the proxy resolves names)",
  ]);
});

test("waiting for the data plane is told only when it takes long, and only once", () => {
  expect(print(nobody, verdict("m"))).toEqual([]);
  now = 1999;
  expect(print(nobody, verdict("m"))).toEqual([]);
  now = 2000;
  expect(print(nobody, verdict("m"))).toEqual(["ModelRoute team/m Ready=False NoPods: 0/0 pods"]);
  now = 9000;
  expect(print(nobody, verdict("m"))).toEqual([]);
});

test("many good objects are counted, each bad one is named", () => {
  const good = Array.from({ length: 100 }, (_, index) => verdict(`g-${index}`));
  expect(print(unasked, ...good, verdict("bad", { resolved: [missing] }))).toEqual([
    expect.stringMatching(/^ModelRoute team\/bad spec.model: PriceNotFound/),
    "100 objects: 100 Ready=Unknown Unacknowledged: published; no data plane is asked",
  ]);
});

test("a file's fault is told once while it lasts, and that it is gone", () => {
  const fault = {
    file: "a.yaml",
    line: 3,
    kind: "",
    namespace: "",
    name: "",
    path: "",
    reason: "Unreadable",
    message: "broken",
    hidesObject: true,
  } as const;
  printer.files([fault]);
  printer.files([fault]);
  printer.files([{ ...fault, line: 4 }]);
  printer.files([]);
  printer.files([]);
  printer.files([fault]);
  expect(lines).toEqual([
    "a.yaml:3 Unreadable: broken",
    "a.yaml:4 Unreadable: broken",
    "a.yaml has no faults any more",
    "a.yaml:3 Unreadable: broken",
  ]);
});
