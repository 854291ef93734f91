import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { ALLOCATOR, NODE_FLAGS } from "./node-flags.ts";

test("the image runs our programs with the flags that `npm start` gives them", () => {
  const dockerfile = readFileSync("Dockerfile", "utf8");
  const entrypoint = /^ENTRYPOINT (.+)$/m.exec(dockerfile)?.[1] ?? "";
  expect(JSON.parse(entrypoint)).toEqual(["node", ...NODE_FLAGS, "--disable-warning=ExperimentalWarning"]);
  const environment = Object.entries(ALLOCATOR).map(([name, value]) => `${name}=${value}`);
  expect(dockerfile).toContain(`\nENV ${environment.join(" ")}\n`);
});
