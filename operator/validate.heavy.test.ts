import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { validateFolder } from "./validate.ts";

test("many faults of one file take no longer than reading it a few times", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gapura-validate-"));
  const routes = Array.from(
    { length: 1500 },
    (_, number) =>
      `apiVersion: gapura.dev/v1alpha1\nkind: ModelRoute\nmetadata: {name: m${number}}\nspec:\n  model: m${number}\n  limits: {contextTokens: 1, maxOutputTokens: 1}\n  upstreams: [{name: a, dialect: Messages, baseURL: "https://a.example"}]\n`,
  );
  await writeFile(join(folder, "routes.yaml"), routes.join("---\n"));
  const startedMs = Date.now();
  const { faults } = await validateFolder(folder);
  await rm(folder, { recursive: true });
  // Each route lacks a price. Read again for each, the file took minutes.
  expect(faults.map(({ line }) => line)).toEqual(routes.map((_, number) => 8 * number + 5));
  expect(Date.now() - startedMs).toBeLessThan(30_000);
});

test("more faults than one call takes arguments are told, each one", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gapura-validate-"));
  const count = 150_000;
  const data = Array.from({ length: count }, (_, index) => `  k${index}: 1\n`).join("");
  const secret = `apiVersion: v1\nkind: Secret\nmetadata: {name: provider}\ndata:\n${data}`;
  await writeFile(join(folder, "secret.yaml"), secret);
  const { faults } = await validateFolder(folder);
  await rm(folder, { recursive: true });
  expect(faults).toHaveLength(count);
});
