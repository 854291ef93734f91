import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { NODE_FLAGS } from "./node-flags.ts";

test("the image runs our programs with the flags that `npm start` gives them", () => {
  const entrypoint = /^ENTRYPOINT (.+)$/m.exec(readFileSync("Dockerfile", "utf8"))?.[1] ?? "";
  expect(JSON.parse(entrypoint)).toEqual(["node", ...NODE_FLAGS, "--disable-warning=ExperimentalWarning"]);
});
