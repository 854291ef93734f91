import { expect, test } from "vitest";
import { objectTable } from "../../test/operator/object-table.ts";
import { compile } from "./compile.ts";
import { type Declared, pathText } from "./objects.ts";

const declared = (kind: Declared["kind"], spec: unknown): Declared => ({
  kind,
  namespace: "default",
  name: "row",
  uid: "uid",
  generation: 1,
  creationTimestamp: null,
  createdAt: 0,
  spec,
  faults: [],
});

test.for(objectTable.map((row) => ({ ...row, label: `${row.kind}: ${row.title}` })))(
  "rule 6.7: the compiler judges $label as the API server does ($verdict)",
  ({ kind, spec, verdict, path }) => {
    const { verdicts } = compile({
      objects: [declared(kind, spec)],
      secrets: new Map(),
      published: null,
    });
    const faults = verdicts[0]?.accepted ?? [];
    expect(faults.map((fault) => fault.path)).toEqual(verdict === "good" ? [] : [path]);
    expect(faults.every(({ reason, message }) => reason === "Invalid" && message !== "")).toBe(true);
  },
);

test("a path is written as people write it", () => {
  expect(pathText(["spec", "upstreams", 0, "headers", "x y"])).toBe('spec.upstreams[0].headers["x y"]');
  expect(pathText([])).toBe("");
});
