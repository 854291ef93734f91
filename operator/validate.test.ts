import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { validateFolder } from "./validate.ts";

test("a number where a text belongs is to be put in quotes", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gapura-validate-"));
  const spec = "{credits: {grants: [{name: first, amount: 100}]}, displayName: true}";
  const organization = `apiVersion: gapura.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}\nspec: ${spec}\n`;
  await writeFile(join(folder, "organization.yaml"), organization);
  const { faults } = await validateFolder(folder);
  await rm(folder, { recursive: true });
  expect(faults.map(({ path, message }) => [path, message])).toEqual([
    ["spec.displayName", "must be a string, in quotes"],
    ["spec.credits.grants[0].amount", "must be a string, in quotes"],
  ]);
});

test("a word that a cluster would read as true or false is told, and a label that it would not take", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gapura-validate-"));
  const metadata = "{name: acme, labels: {team: a b}}";
  const organization = `apiVersion: gapura.dev/v1alpha1\nkind: Organization\nmetadata: ${metadata}\nspec: {displayName: NO}\n`;
  await writeFile(join(folder, "organization.yaml"), organization);
  const { faults } = await validateFolder(folder);
  await rm(folder, { recursive: true });
  expect(faults.map(({ line, name, path, reason }) => [line, name, path, reason])).toEqual([
    [3, "acme", "metadata.labels.team", "Invalid"],
    [4, "acme", "spec.displayName", "Invalid"],
  ]);
});

test("what is declared twice is told with the file that counts, a Secret in one file too", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gapura-validate-"));
  const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: provider}\n";
  const table = `apiVersion: gapura.dev/v1alpha1\nkind: PriceTable\nmetadata: {name: default}\nspec: {unit: USD}\n`;
  const file = join(folder, "all.yaml");
  await writeFile(file, [secret, secret, table, table].join("---\n"));
  const { faults } = await validateFolder(folder);
  await rm(folder, { recursive: true });
  expect(faults.map(({ line, reason, message }) => [line, reason, message])).toEqual([
    [5, "Duplicate", `Secret default/provider is declared in ${file} too; the first one counts`],
    [14, "Duplicate", `PriceTable default/default is declared in ${file} too; the first one counts`],
  ]);
});

test("kustomize's own file is no manifest, and what kustomize makes may be judged as one file", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gapura-validate-"));
  const table = `apiVersion: gapura.dev/v1alpha1\nkind: PriceTable\nmetadata: {name: default}\nspec: {unit: USD}\n`;
  await writeFile(join(folder, "prices.yaml"), table);
  await writeFile(join(folder, "kustomization.yaml"), "namespace: ml\nresources: [prices.yaml]\n");
  const whole = await validateFolder(folder);
  const single = await validateFolder(join(folder, "prices.yaml"));
  await rm(folder, { recursive: true });
  expect([whole.faults, whole.files, whole.objects]).toEqual([[], 1, 1]);
  expect([single.faults, single.files, single.objects]).toEqual([[], 1, 1]);
});
