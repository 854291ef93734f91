/** What can be proved of hack/kind/ without a container engine: its scripts are sound and its demo is what it says. */
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { arch, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { z } from "zod";
import { findProgram } from "../../hack/debian.ts";
import { freePort } from "../../hack/free-port.ts";
import { stopProcess } from "../../hack/processes.ts";
import { endWithUs } from "../../hack/reaper.ts";
import { startUpstream } from "../fakes/upstream/server.ts";

const root = resolve(import.meta.dirname, "../..");
const read = (path: string) => readFileSync(join(root, path), "utf8");
const say = (line: string) => process.stderr.write(`charts: ${line}\n`);
const choices = [{ program: "shellcheck", debianPackage: "shellcheck" }];
const shellcheck = await findProgram({ folder: `shellcheck-${arch()}`, choices }, say).catch(
  (error: unknown) => {
    say(`no shellcheck (${String(error)}); its test is skipped (apt-get install shellcheck)`);
    return null;
  },
);
const run = (...args: string[]) =>
  spawnSync(join(root, "hack/kind/run.sh"), args, { encoding: "utf8", env: { PATH: process.env["PATH"] } });

test.skipIf(shellcheck === null)("shellcheck has nothing to say against any script", () => {
  const scripts = ["hack/lock.sh", "hack/kind/run.sh"];
  const env = { ...process.env, ...shellcheck?.environment };
  const { status, stdout } = spawnSync(shellcheck?.path ?? "", scripts, { cwd: root, env, encoding: "utf8" });
  expect({ status, stdout }).toEqual({ status: 0, stdout: "" });
});

describe("the demo of the cluster", () => {
  test("its manifests are valid and name nothing of one machine", () => {
    const { status, stdout } = run("manifests");
    expect(status).toBe(0);
    expect(stdout).not.toMatch(/127\.0\.0\.1|localhost/);
    const folder = mkdtempSync(join(tmpdir(), "gapura-kind-"));
    try {
      writeFileSync(join(folder, "demo.yaml"), stdout);
      const validate = spawnSync(process.execPath, ["operator/validate.ts", folder], {
        cwd: root,
        encoding: "utf8",
      });
      expect({ status: validate.status, faults: validate.stdout.match(/^.*demo\.yaml:.*$/gm) }).toEqual({
        status: 0,
        faults: null,
      });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
    const kinds = parseAllDocuments(stdout).flatMap(
      (document) => (document.toJSON() as { kind: string } | null)?.kind ?? [],
    );
    expect(new Set(kinds)).toEqual(
      new Set(["ModelRoute", "Secret", "Organization", "PriceTable", "ToolPolicy"]),
    );
  });

  test("its upstream answers on the port that its Service names, and its load tells a failure", async () => {
    const objects = parseAllDocuments(read("hack/kind/demo.yaml")).map((document): unknown =>
      document.toJSON(),
    );
    expect(JSON.stringify(objects).match(/"(?:port|containerPort)":9400/g)).toHaveLength(3);
    const port = await freePort();
    const demo = spawn(process.execPath, ["hack/kind/demo.ts"], {
      cwd: root,
      env: { PORT: String(port) },
      stdio: "ignore",
    });
    endWithUs(demo, "SIGTERM");
    const load = (url: string) =>
      spawnSync(process.execPath, ["hack/kind/load.ts", url, "1"], { cwd: root, encoding: "utf8" });
    try {
      const page = () =>
        fetch(`http://127.0.0.1:${port}/pages/gapura`).then(
          (answer) => answer.status,
          () => 0,
        );
      await expect.poll(page, { timeout: 20_000 }).toBe(200);
      const { status, stdout } = load(`http://127.0.0.1:${port}`);
      expect({ status, stdout }).toMatchObject({
        status: 0,
        stdout: expect.stringMatching(/^\d+ requests, 0 failed/) as string,
      });
    } finally {
      await stopProcess(demo, "SIGTERM", 5000);
    }
    const cut = await startUpstream({
      fallback: () => ({ answer: { parts: [] }, faults: { cutAtEvent: 1 } }),
    });
    try {
      const child = spawn(process.execPath, ["hack/kind/load.ts", cut.url, "1"], {
        cwd: root,
        stdio: "ignore",
      });
      expect(await new Promise((done) => child.once("exit", done))).toBe(1);
    } finally {
      await cut.close();
    }
  });

  test("the job's steps call the script as it wants to be called", () => {
    const jobSchema = z.object({
      jobs: z.record(z.string(), z.object({ steps: z.array(z.object({ run: z.string().optional() })) })),
    });
    const { jobs } = jobSchema.parse(parse(read(".github/workflows/kind.yaml")));
    const calls = Object.values(jobs).flatMap(({ steps }) =>
      steps.flatMap((step) => /run\.sh (\S+)$/.exec(step.run ?? "")?.[1] ?? []),
    );
    expect(calls).toEqual(["up", "check", "down"]);
    const usage = run().stderr;
    for (const call of calls) expect(usage).toContain(`run.sh ${call}`);
    expect(run("else").status).toBe(2);
    expect(readdirSync(join(root, "hack/kind"))).toContain("demo.Dockerfile.dockerignore");
  });
});
