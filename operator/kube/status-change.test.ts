import { expect, test } from "vitest";
import type { Condition, ObjectStatus } from "../plan/conditions.ts";
import type { Declared } from "../plan/objects.ts";
import { changeKind, statusAt, statusChange } from "./status-change.ts";

const object: Declared = {
  kind: "ModelRoute",
  namespace: "n",
  name: "m",
  uid: "u",
  generation: 2,
  creationTimestamp: 1,
  createdAt: 1,
  spec: {},
  faults: [],
};
const condition = (
  type: Condition["type"],
  status: Condition["status"],
  reason: string,
  message: string,
): Condition => ({
  type,
  status,
  reason,
  message,
  observedGeneration: 2,
});
const wanted = (...conditions: Condition[]): ObjectStatus => ({
  object,
  verdict: { object, accepted: [], resolved: [], serves: 2, notes: [], facts: {} },
  observedGeneration: 2,
  conditions,
  facts: { model: "m" },
});
const stored = (...conditions: Condition[]) => ({
  observedGeneration: 2,
  model: "m",
  conditions: conditions.map((each) => ({ ...each, lastTransitionTime: "2026-01-01T00:00:00Z" })),
});
const now = "2026-02-02T00:00:00Z";
const served = (count: string) => condition("Programmed", "True", "Programmed", count);
const waiting = (count: string) => condition("Programmed", "False", "Pending", count);

test.for([
  { title: "the same status", want: [served("1/1 pods")], have: stored(served("1/1 pods")), kind: "none" },
  {
    title: "rule 6.2: a served object and another number of pods",
    want: [served("3/3 pods")],
    have: stored(served("2/2 pods")),
    kind: "refresh",
  },
  {
    title: "a note behind the number of pods",
    want: [served("1/1 pods; spec.x: GrantUnchanged")],
    have: stored(served("1/1 pods")),
    kind: "meaning",
  },
  {
    title: "a waiting object and another number of pods",
    want: [waiting("1/2 pods")],
    have: stored(waiting("0/2 pods")),
    kind: "count",
  },
  {
    title: "the last acknowledgement",
    want: [served("2/2 pods")],
    have: stored(waiting("1/2 pods")),
    kind: "meaning",
  },
  {
    title: "a condition of somebody else",
    want: [served("1/1 pods")],
    have: stored(served("1/1 pods"), condition("Stalled", "True", "Foreign", "x")),
    kind: "meaning",
  },
  { title: "no status at all", want: [served("1/1 pods")], have: undefined, kind: "meaning" },
  {
    title: "rule 6.6: a field that is not ours",
    want: [served("1/1 pods")],
    have: { ...stored(served("1/1 pods")), spend: 3 },
    kind: "meaning",
  },
])("$title: $kind", ({ want, have, kind }) => {
  expect(statusChange(wanted(...want), have, now).kind).toBe(kind);
});

test("lastTransitionTime stays where a condition's status stays, and is now where it changed", () => {
  const accepted = condition("Accepted", "True", "Accepted", "");
  const change = statusChange(
    wanted(accepted, served("1/1 pods")),
    stored(accepted, waiting("0/1 pods")),
    now,
  );
  if (change.kind === "none") throw new Error("nothing changes");
  expect(change.status).toMatchObject({
    conditions: [{ lastTransitionTime: "2026-01-01T00:00:00Z" }, { lastTransitionTime: now }],
  });
});

test("what is not ours is removed by name, for a merge patch leaves the rest alone", () => {
  const change = statusChange(wanted(served("1/1 pods")), { spend: 3 }, now);
  if (change.kind === "none") throw new Error("nothing changes");
  expect(change.status).toMatchObject({ spend: null, observedGeneration: 2, model: "m" });
});

test("a status that was held against another one is compared anew", () => {
  const want = wanted(served("1/1 pods"));
  const right = stored(served("1/1 pods"));
  const kinds = [right, { ...right, spend: 3 }, right, undefined, stored(waiting("0/1 pods")), right];
  expect(kinds.map((actual) => changeKind(want, actual))).toEqual([
    "none",
    "meaning",
    "none",
    "meaning",
    "meaning",
    "none",
  ]);
});

test("rule 6.4: what only lacks a Secret is stalled after a minute, told by its own status", () => {
  const lacks = (...reasons: ("SecretNotFound" | "SecretForbidden" | "PriceNotFound")[]): ObjectStatus => {
    const resolved = reasons.map((reason) => ({ reason, path: "spec", message: "gone" }));
    const conditions = [
      condition("ResolvedRefs", "False", reasons[0] ?? "", "gone"),
      condition("Stalled", "True", reasons[0] ?? "", "gone"),
    ];
    const status = wanted(...conditions);
    return { ...status, verdict: { ...status.verdict, resolved } };
  };
  const at = (status: ObjectStatus, actual: unknown, time: string) => {
    const { status: present, inMs } = statusAt(status, actual, Date.parse(time));
    return { types: present.conditions.map(({ type }) => type), inMs, present };
  };
  const both = ["ResolvedRefs", "Stalled"];
  const missing = lacks("SecretNotFound");
  // Nothing is written yet, or the reference was well until now.
  expect(at(missing, {}, now)).toMatchObject({ types: ["ResolvedRefs"], inMs: 60_000 });
  const well = stored(condition("ResolvedRefs", "True", "ResolvedRefs", ""));
  expect(at(missing, well, now)).toMatchObject({ types: ["ResolvedRefs"], inMs: 60_000 });
  const since = stored(condition("ResolvedRefs", "False", "SecretNotFound", "gone"));
  expect(at(missing, since, "2026-01-01T00:00:45Z")).toMatchObject({ types: ["ResolvedRefs"], inMs: 15_000 });
  // The same object each time: what it was compared with is remembered by it.
  expect(at(missing, since, "2026-01-01T00:00:46Z").present).toBe(at(missing, {}, now).present);
  expect(at(missing, since, "2026-01-01T00:01:00Z")).toMatchObject({ types: both, inMs: null });
  expect(at(lacks("SecretForbidden", "SecretNotFound"), {}, now)).toMatchObject({ inMs: 60_000 });
  for (const other of [lacks("PriceNotFound"), lacks("SecretNotFound", "PriceNotFound")])
    expect(at(other, {}, now)).toMatchObject({ types: both, inMs: null });
});
