import { spawn, type ChildProcess } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { isRunning, signalAll } from "./processes.ts";

let folder = "";
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "gapura-reaper-"));
});
afterEach(() => fs.rmSync(folder, { recursive: true, force: true }));

const reaper = JSON.stringify(pathToFileURL(join(import.meta.dirname, "reaper.ts")).href);

/** A program that starts others and names them with their process ids; `started` awaits as many. */
class Parent {
  readonly process: ChildProcess;
  readonly #pids = new Map<string, number>();

  /**
   * @param code has `start(name, signal, kind)`; each program notes in a file when it was asked to end.
   * @param programs a folder whose programs are found before all others.
   */
  constructor(code: string, programs?: string) {
    const program = `
      process.once(process.argv[2], () => {
        require("node:fs").appendFileSync(${JSON.stringify(join(folder, "ends"))}, process.argv[1] + "\\n");
        if (process.argv[1] !== "deaf") setTimeout(() => process.exit(), 300);
      });
      process.stdout.write("here");
      setInterval(() => {}, 1_000);`;
    const script = `
      import { spawn } from "node:child_process";
      import { once } from "node:events";
      import { endWithUs } from ${reaper};
      async function start(name, signal, kind) {
        const child = spawn(process.execPath, ["-e", ${JSON.stringify(program)}, name, signal], {
          detached: true, stdio: ["ignore", "pipe", "ignore"] });
        endWithUs(child, signal, kind);
        await once(child.stdout, "data");
        child.stdout.destroy();
        console.log(name + "=" + child.pid);
        return child;
      }
      ${code}`;
    this.process = spawn(process.execPath, ["--input-type=module", "-e", script], {
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, PATH: [programs, process.env["PATH"]].filter(Boolean).join(delimiter) },
    });
    this.process.stdout?.setEncoding("utf8").on("data", (text: string) => {
      for (const [, name = "", pid] of text.matchAll(/^(\S+)=(\d+)$/gm)) this.#pids.set(name, Number(pid));
    });
  }

  async started(count: number): Promise<void> {
    await expect.poll(() => this.#pids.size, { timeout: 20_000 }).toBe(count);
  }

  /** Names of those that run. */
  get running(): string[] {
    return [...this.#pids].filter(([, pid]) => isRunning(pid)).map(([name]) => name);
  }

  [Symbol.dispose](): void {
    this.process.kill("SIGKILL");
    signalAll([...this.#pids.values()], "SIGKILL");
  }
}

const ends = () => {
  const file = join(folder, "ends");
  return fs.existsSync(file) ? fs.readFileSync(file, "utf8").trim().split("\n") : [];
};

test.each(["SIGTERM", "SIGINT", "SIGHUP", "SIGKILL"] as const)(
  "what a process killed by %s has started ends with the signal that it understands, stores last",
  async (signal) => {
    using parent = new Parent(`
      await start("postgres", "SIGINT", "store");
      await start("redis", "SIGTERM", "store");
      await start("plane", "SIGTERM");
      await start("operator", "SIGTERM");
      setInterval(() => {}, 1_000);`);
    await parent.started(4);
    parent.process.kill(signal);
    await expect.poll(() => parent.running, { timeout: 10_000 }).toEqual([]);
    expect(ends().slice(0, 2).toSorted()).toEqual(["operator", "plane"]);
    expect(ends().slice(2).toSorted()).toEqual(["postgres", "redis"]);
  },
);

test("one that was stopped, or is deaf to its signal, ends all the same", async () => {
  using parent = new Parent(`
    const stopped = await start("stopped", "SIGTERM");
    stopped.kill("SIGSTOP");
    await start("deaf", "SIGTERM", "store");
    process.kill(process.pid, "SIGKILL");`);
  await parent.started(2);
  await expect.poll(() => parent.running, { timeout: 20_000 }).toEqual([]);
});

// In a container the first process often is a `tail`, which fetches the exit code of nobody.
test("one that has ended is not waited for because nobody fetches its exit code", async () => {
  const pauses = join(folder, "pauses");
  const pause = `#!/bin/sh\necho >>${pauses}\nPATH='${process.env["PATH"]}'\nexec sleep "$1"`;
  fs.writeFileSync(join(folder, "sleep"), pause, { mode: 0o755 });
  using parent = new Parent(
    `
    const hold = "tail -f /dev/null & echo $!; exec tail -f /dev/null";
    const holder = spawn("sh", ["-c", hold], { detached: true, stdio: ["ignore", "pipe", "ignore"] });
    const pid = Number(await once(holder.stdout, "data"));
    endWithUs({ pid, once() {} }, "SIGKILL");
    await start("store", "SIGTERM", "store");
    console.log("holder=" + holder.pid + "\\nheld=" + pid);
    setInterval(() => {}, 1_000);`,
    folder,
  );
  await parent.started(3);
  parent.process.kill("SIGKILL");
  await expect.poll(() => parent.running, { timeout: 20_000 }).toEqual(["holder"]);
  // Some while the store ended; waiting for a program to its end would add fifty.
  expect(fs.readFileSync(pauses, "utf8").length).toBeLessThan(50);
});

/**
 * A checkout with our scripts of npm, in which everything is installed; its vitest does nothing for half a minute. It tells
 * its process id only when whoever started it has had the time, on a busy machine too, to name it to the shell.
 */
function writeCheckout(): void {
  const root = resolve(import.meta.dirname, "..");
  const { scripts } = JSON.parse(fs.readFileSync(join(root, "package.json"), "utf8")) as { scripts: object };
  const bin = join(folder, "node_modules/.bin");
  fs.mkdirSync(bin, { recursive: true });
  fs.mkdirSync(join(folder, "hack"));
  fs.writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module", scripts }));
  fs.writeFileSync(join(folder, "package-lock.json"), "{}");
  const digest = createHash("sha256").update("{}").digest("hex");
  fs.writeFileSync(join(folder, "node_modules/.gapura-installed"), digest);
  fs.copyFileSync(join(root, "hack/ensure.mjs"), join(folder, "hack/ensure.mjs"));
  const program = pathToFileURL(join(root, "hack/test.ts")).href;
  fs.writeFileSync(join(folder, "hack/test.ts"), `import ${JSON.stringify(program)};`);
  fs.writeFileSync(join(bin, "vitest"), "#!/bin/sh\nsleep 0.5\necho $$ > pid\nexec sleep 30", {
    mode: 0o755,
  });
}

test.each([
  ["npm", ["test", "--", "a-pattern"]],
  [process.execPath, ["hack/test.ts", "a-pattern"]],
])("`%s` with its tests ends them, by whatever signal it ends", async (command, args) => {
  writeCheckout();
  for (const signal of ["SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"] as const) {
    const run = spawn(command, args, { cwd: folder, stdio: "ignore" });
    const pid = () => Number(fs.readFileSync(join(folder, "pid"), "utf8"));
    await expect.poll(pid, { timeout: 20_000 }).toBeGreaterThan(1);
    const tool = pid();
    run.kill(signal);
    await expect.poll(() => isRunning(tool), { message: signal, timeout: 10_000 }).toBe(false);
    fs.rmSync(join(folder, "pid"));
  }
});

/** In place of the shell one that only writes down what it is told. @returns where */
function writeShell(): string {
  const told = join(folder, "told");
  fs.writeFileSync(join(folder, "sh"), `#!/bin/sh\nexec cat >${told}`, { mode: 0o755 });
  return told;
}

test("the shell is there before anything is started, and knows of each child as soon as there is one", async () => {
  const told = writeShell();
  using _parent = new Parent("setInterval(() => {}, 1_000);", folder);
  await expect.poll(() => fs.existsSync(told), { timeout: 20_000 }).toBe(true);
});

test("whoever has ended what it started ends by itself, and leaves no process id, which may be another's, to the shell", async () => {
  const told = writeShell();
  using parent = new Parent(
    `
    const child = await start("plane", "SIGTERM");
    child.kill("SIGTERM");
    await once(child, "exit");
    const store = await start("store", "SIGINT", "store");
    store.kill("SIGINT");
    await once(store, "exit");`,
    folder,
  );
  await parent.started(2);
  if (parent.process.exitCode === null) await once(parent.process, "exit");
  expect([parent.process.exitCode, parent.running, ends()]).toEqual([0, [], ["plane", "store"]]);
  await expect
    .poll(() => fs.readFileSync(told, "utf8").replaceAll(/\d+/g, "N"))
    .toBe("TERM:N \n \n INT:N\n \n");
});
