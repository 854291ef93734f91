/** The release workflow runs nowhere but at a tag: what can be known of it before is held here. */
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { z } from "zod";

const root = resolve(import.meta.dirname, "..");
const read = (path: string) => readFileSync(join(root, path), "utf8");
const workflowSchema = z.object({
  jobs: z.object({
    release: z.object({
      permissions: z.record(z.string(), z.string()),
      steps: z.array(z.object({ uses: z.string().optional(), run: z.string().optional() })),
    }),
  }),
});
const { release } = workflowSchema.parse(parse(read(".github/workflows/release.yml"))).jobs;
const steps = release.steps.map(({ run = "" }) => run);
const script = steps.join("\n");

test("actions of every workflow are pinned by commit, tools by version", () => {
  for (const file of readdirSync(join(root, ".github/workflows"))) {
    const actions = Array.from(
      read(`.github/workflows/${file}`).matchAll(/uses: (.+)$/gm),
      ([, uses]) => uses,
    );
    expect(actions.length).toBeGreaterThan(0);
    for (const action of actions) expect(action).toMatch(/^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  }
  expect(script).toMatch(/npx --yes @cyclonedx\/cyclonedx-npm@\d+\.\d+\.\d+ /);
});

test("two architectures, provenance, SBOM, signatures without a key", () => {
  expect(script).toContain("--platform linux/amd64,linux/arm64 --provenance mode=max");
  expect(script).toMatch(/cosign sign --yes/);
  expect(script).toMatch(/cosign attest --yes --type cyclonedx/);
  expect(release.permissions).toEqual({ contents: "write", packages: "write", "id-token": "write" });
});

test("the notes hold this version's changes and the very command that verified the signatures", () => {
  const { version } = JSON.parse(read("package.json")) as { version: string };
  const folder = mkdtempSync(join(tmpdir(), "release-"));
  cpSync(join(root, "CHANGELOG.md"), join(folder, "CHANGELOG.md"));
  writeFileSync(join(folder, "signed.txt"), "ghcr.io/o/gapura@sha256:1\nghcr.io/o/charts/gapura@sha256:2\n");
  const [check = "", release = ""] = steps.slice(-2);
  // Cosign and GitHub are not here: what they are called with is told.
  const told = spawnSync("bash", ["-ec", `cd "$FOLDER"\n${check}\n${release}`], {
    encoding: "utf8",
    env: {
      ...process.env,
      FOLDER: folder,
      VERSION: version,
      GITHUB_SERVER_URL: "https://github.com",
      GITHUB_REPOSITORY: "o/gapura",
      GITHUB_REF: `refs/tags/v${version}`,
      GITHUB_REF_NAME: `v${version}`,
      "BASH_FUNC_cosign%%": '() { echo "cosign $*" >&2; }',
      "BASH_FUNC_gh%%": '() { echo "gh $*"; }',
    },
  });
  const notes = readFileSync(join(folder, "notes"), "utf8");
  rmSync(folder, { recursive: true });
  expect(told.stderr.trim().split("\n")).toEqual(
    ["gapura@sha256:1", "charts/gapura@sha256:2"].map(
      (what) =>
        `cosign verify --certificate-identity https://github.com/o/gapura/.github/workflows/release.yml@refs/tags/v${version} ` +
        `--certificate-oidc-issuer https://token.actions.githubusercontent.com ghcr.io/o/${what}`,
    ),
  );
  expect(told.stdout).toContain(`gh release create v${version}`);
  expect(notes).toContain(`## v${version}`);
  const [, shown = ""] = /```sh\n(.*)\n```/s.exec(notes) ?? [];
  expect(shown).toContain('cosign verify --certificate-identity "https://github.com/o/gapura/');
  expect(shown).toContain('"$what"');
});

test("what it writes into the charts is there to be written", () => {
  // It is appended.
  expect(read("charts/gapura/Chart.yaml")).toMatch(/^(?!.*^sources:).*\n$/ms);
  const values = read("charts/gapura/values.yaml");
  expect(values).toMatch(/^ {2}repository: gapura$/m);
  expect(values.match(/^ {2}digest: ""$/gm)).toHaveLength(1);
});

test("the images of others that it looks up are there to be found", () => {
  // As `sed` finds them.
  expect(read("Dockerfile").match(/^FROM node:[^ ]*$/gm)).toHaveLength(1);
  expect(script).toContain(String.raw`s/^FROM \(node:[^ ]*\)$/\1/p`);
  expect(read("charts/gapura/values.yaml").match(/^ {4}image: [a-z]*:\d*$/gm)).toEqual([
    "    image: postgres:18",
    "    image: redis:8",
  ]);
  expect(script).toContain(String.raw`s/^    image: \([a-z]*:[0-9]*\)$/\1/p`);
});

test("the charts and the package are of one version", () => {
  const { version } = JSON.parse(read("package.json")) as { version: string };
  for (const chart of ["gapura", "gapura-crds"])
    expect((parse(read(`charts/${chart}/Chart.yaml`)) as { version: string }).version).toBe(version);
});
