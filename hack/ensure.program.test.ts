import { spawn } from "node:child_process";
import * as fs from "node:fs";
import { constants, tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { isRunning } from "./processes.ts";

let folder = "";
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "gapura-ensure-"));
  fs.mkdirSync(join(folder, "hack"));
  fs.mkdirSync(join(folder, "bin"));
  fs.copyFileSync(resolve(import.meta.dirname, "ensure.mjs"), join(folder, "hack/ensure.mjs"));
  fs.writeFileSync(join(folder, "package-lock.json"), "{}");
  // An npm that counts its runs, and takes a moment, or as long as `slow` stands there; `deaf` to what it is asked.
  const npm = `#!/bin/sh
test -e deaf && trap '' TERM INT HUP
echo $$ > npm-pid
echo run >> runs
sleep 0.3
while test -e slow; do sleep 0.05; done
mkdir -p node_modules
`;
  fs.writeFileSync(join(folder, "bin/npm"), npm, { mode: 0o755 });
});
afterEach(() => fs.rmSync(folder, { recursive: true, force: true }));

const turn = () => join(folder, ".installing");
const npmPid = () => Number(fs.readFileSync(join(folder, "npm-pid"), "utf8"));
const runs = () => fs.readFileSync(join(folder, "runs"), "utf8").split("\n").length - 1;

interface Run {
  readonly args?: readonly string[];
  readonly nodeOptions?: readonly string[];
  /** Called when it says something. */
  readonly onWord?: () => void;
  /** Called with its process id when it was started. */
  readonly onStart?: (pid: number) => void;
}

/** Runs the program to its end, or ends it after 20 s. */
async function ensure({
  args = [],
  nodeOptions = [],
  onWord = () => {},
  onStart = () => {},
}: Run = {}): Promise<{
  readonly code: number | null;
  readonly said: string;
}> {
  const child = spawn(process.execPath, [...nodeOptions, join(folder, "hack/ensure.mjs"), ...args], {
    env: { ...process.env, PATH: [join(folder, "bin"), process.env["PATH"]].join(delimiter) },
    stdio: ["ignore", "ignore", "pipe"],
    timeout: 20_000,
    killSignal: "SIGKILL",
  });
  onStart(child.pid ?? 0);
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said += text;
    onWord();
  });
  const code = await new Promise<number | null>((done) => child.once("close", done));
  return { code, said };
}

test("a turn that a killed installation left is taken, whoever has its process id now", async () => {
  // This process is alive, and installs nothing.
  fs.writeFileSync(turn(), String(process.pid));
  expect(await ensure()).toMatchObject({ code: 0 });
  expect(runs()).toBe(1);
  expect(fs.existsSync(turn())).toBe(false);
});

test("a turn without a process id, as a full disk leaves it, is taken after a moment", async () => {
  fs.writeFileSync(turn(), "");
  expect(await ensure()).toMatchObject({ code: 0 });
  expect(runs()).toBe(1);
});

test("so is one from before the clock was set back", async () => {
  fs.writeFileSync(turn(), "");
  const later = Date.now() / 1000 + 3_600;
  fs.utimesSync(turn(), later, later);
  expect(await ensure()).toMatchObject({ code: 0 });
  expect(runs()).toBe(1);
});

test("of two installations into one folder the second waits, says so, and finds all installed", async () => {
  fs.writeFileSync(join(folder, "slow"), "");
  const first = ensure();
  await vi.waitFor(() => expect(runs()).toBe(1), 10_000);
  const holder = fs.readFileSync(turn(), "utf8");
  expect(await ensure({ onWord: () => fs.rmSync(join(folder, "slow"), { force: true }) })).toEqual({
    code: 0,
    said: `gapura: waiting for another installation into this folder (process ${holder}) to end\n`,
  });
  expect((await first).code).toBe(0);
  expect(runs()).toBe(1);
});

test("of many who see at once that a turn is over one installs, on a slow disk too", async () => {
  fs.writeFileSync(turn(), String(process.pid));
  fs.writeFileSync(
    join(folder, "slow-disk.mjs"),
    `import fs from "node:fs";
    import { syncBuiltinESMExports } from "node:module";
    for (const name of ["rmSync", "renameSync"]) {
      const act = fs[name];
      fs[name] = (...args) => {
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Math.random() * 200);
        return act(...args);
      };
    }
    syncBuiltinESMExports();`,
  );
  const nodeOptions = [`--import=${pathToFileURL(join(folder, "slow-disk.mjs")).href}`];
  const ended = await Promise.all(Array.from({ length: 6 }, () => ensure({ nodeOptions })));
  expect(ended.map(({ code }) => code)).toEqual([0, 0, 0, 0, 0, 0]);
  expect(runs()).toBe(1);
  expect(fs.readdirSync(folder).filter((name) => name.startsWith(".installing"))).toEqual([]);
});

test("the turn of another installation is left alone at the end of what was run", async () => {
  const program = `require("node:fs").writeFileSync(${JSON.stringify(turn())}, "1")`;
  fs.writeFileSync(join(folder, "program.cjs"), program);
  expect(await ensure({ args: [join(folder, "program.cjs")] })).toMatchObject({ code: 0 });
  expect(fs.readFileSync(turn(), "utf8")).toBe("1");
});

test.for(["SIGTERM", "SIGINT", "SIGHUP"] as const)(
  "an installation that is ended by %s takes npm with it, and the next start installs anew",
  async (signal) => {
    fs.writeFileSync(join(folder, "slow"), "");
    let pid = 0;
    const first = ensure({ onStart: (started) => (pid = started) });
    await vi.waitFor(() => expect(runs()).toBe(1), 10_000);
    process.kill(pid, signal);
    const { code, said } = await first;
    expect(code).toBe(128 + constants.signals[signal]);
    expect(said).not.toContain("could not be installed");
    expect(isRunning(npmPid())).toBe(false);
    expect(fs.existsSync(turn())).toBe(false);

    fs.rmSync(join(folder, "slow"));
    expect(await ensure()).toMatchObject({ code: 0 });
    expect(runs()).toBe(2);
  },
);

test("so is one that is ended as soon as npm runs", async () => {
  fs.writeFileSync(join(folder, "slow"), "");
  fs.writeFileSync(
    join(folder, "slow-start.mjs"),
    `import processes from "node:child_process";
    import { syncBuiltinESMExports } from "node:module";
    const { spawn } = processes;
    processes.spawn = (...all) => {
      const child = spawn(...all);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
      return child;
    };
    syncBuiltinESMExports();`,
  );
  const nodeOptions = [`--import=${pathToFileURL(join(folder, "slow-start.mjs")).href}`];
  let pid = 0;
  const first = ensure({ nodeOptions, onStart: (started) => (pid = started) });
  await vi.waitFor(() => expect(runs()).toBe(1), 10_000);
  process.kill(pid, "SIGTERM");
  await expect.poll(() => isRunning(npmPid()), { timeout: 10_000 }).toBe(false);
  expect(await first).toMatchObject({ code: 143 });
});

test("an npm that does not end when it is asked to is killed", async () => {
  for (const name of ["slow", "deaf"]) fs.writeFileSync(join(folder, name), "");
  let pid = 0;
  const first = ensure({ onStart: (started) => (pid = started) });
  await vi.waitFor(() => expect(runs()).toBe(1), 10_000);
  process.kill(pid, "SIGTERM");
  expect(await first).toMatchObject({ code: 143 });
  expect(isRunning(npmPid())).toBe(false);
});

test("packages that npm began to take away are not taken for installed, whichever lockfile is there later", async () => {
  expect(await ensure()).toMatchObject({ code: 0 });
  fs.writeFileSync(join(folder, "package-lock.json"), '{"another": true}');
  fs.writeFileSync(join(folder, "slow"), "");
  let pid = 0;
  const broken = ensure({ onStart: (started) => (pid = started) });
  await vi.waitFor(() => expect(runs()).toBe(2), 10_000);
  process.kill(pid, "SIGTERM");
  await broken;

  fs.rmSync(join(folder, "slow"));
  fs.writeFileSync(join(folder, "package-lock.json"), "{}");
  expect(await ensure()).toMatchObject({ code: 0 });
  expect(runs()).toBe(3);
});
