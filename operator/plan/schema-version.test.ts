import { expect, test } from "vitest";
import { SCHEMA_VERSION } from "../../dataplane/config/schema.ts";
import { chooseVersion } from "./schema-version.ts";

test.for([
  { title: "nobody answers: our own newest", accepted: [], version: 3 },
  {
    title: "all pods are of our release",
    accepted: [
      [3, 2],
      [3, 2],
    ],
    version: 3,
  },
  {
    title: "one pod of the last release",
    accepted: [
      [3, 2],
      [2, 1],
    ],
    version: 2,
  },
  {
    title: "one pod of a release to come",
    accepted: [
      [3, 2],
      [4, 3],
    ],
    version: 3,
  },
  { title: "no version suits all: the one that suits most", accepted: [[3], [3], [9]], version: 3 },
  { title: "nothing suits anybody: our own newest", accepted: [[9]], version: 3 },
])("$title", ({ accepted, version }) => {
  expect(chooseVersion(accepted, [3, 2])).toBe(version);
});

test("this release writes its own newest version", () => {
  expect(chooseVersion([])).toBe(SCHEMA_VERSION);
});
