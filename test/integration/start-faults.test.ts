/** What `npm start` says and does when it cannot go on, or may not take its time. */
import { execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { findProgram } from "../../hack/debian.ts";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { readKeys, startProduct, temporaryFolder, writeManifests } from "./product.ts";

const root = resolve(import.meta.dirname, "../..");
const folder = temporaryFolder();
let upstream: FakeUpstream;
beforeAll(async () => {
  upstream = await startUpstream();
});
afterAll(async () => {
  await upstream.close();
  folder[Symbol.dispose]();
});

test("a data folder that cannot be written: one sentence, at once", async () => {
  const data = join("/dev/null", "data");
  const start = execFile(process.execPath, [join(root, "hack/start.ts"), "--data", data], {
    timeout: 20_000,
  });
  let output = "";
  for (const stream of [start.stdout, start.stderr]) stream?.on("data", (text: string) => (output += text));
  expect(await once(start, "exit")).toEqual([1, null]);
  expect(output).toBe(
    `gapura: ${data} cannot be written (ENOTDIR): choose a folder of your own with --data\n`,
  );
});

test.each([
  ["--manifests", "package.json", 2, "--manifests package.json: is no folder"],
  ["--manifests", "nowhere", 2, "--manifests nowhere: there is no such folder"],
  ["--manifests", "", 2, "--manifests is empty"],
  ["--data", "", 2, "--data is empty"],
  [
    "--data",
    "hack/demo",
    2,
    "--data hack/demo is the folder of the manifests: choose another one, which may lie in it",
  ],
  ["--host", " ", 2, "--host is empty"],
  // Digits alone, as a data plane reads its port.
  ["--port", "0x1F90", 2, "--port must be a port, 0 for any free one; it is 0x1F90"],
  ["--ops-port", "8080", 2, "--ops-port must be another port than --port; both are 8080"],
  // Of a network that is nobody's (RFC 5737).
  [
    "--host",
    "192.0.2.1",
    1,
    "--host 192.0.2.1 cannot be listened on (EADDRNOTAVAIL): choose an address of this machine",
  ],
])("%s %s: one sentence, before anything is started", (flag, value, code, sentence) => {
  const given = { "--data": join(folder.path, "unused"), "--port": "0", "--ops-port": "0", [flag]: value };
  if (flag === "--ops-port") given["--port"] = value;
  const { status, stderr } = spawnSync(
    process.execPath,
    [join(root, "hack/start.ts"), ...Object.entries(given).flat()],
    { cwd: root, encoding: "utf8", timeout: 60_000, env: { ...process.env, INIT_CWD: root } },
  );
  expect(stderr).toContain(`gapura: ${sentence}\n`);
  expect(stderr).not.toContain("starting");
  expect(status).toBe(code);
});

/** Whether we may mount: a namespace of users and mounts of our own, which some systems forbid. */
const mayMount =
  spawnSync("unshare", ["--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).status === 0;

test.skipIf(!mayMount)("a full disk: one sentence, at once", () => {
  const disk = join(folder.path, "disk");
  fs.mkdirSync(disk);
  const fill = 'head --bytes 100000 /dev/zero > "$1/fill" 2> /dev/null';
  const script = `mount -t tmpfs -o size=64k none "$1" && mkdir "$1/data" && { ${fill}; exec "$2" "$3" --data "$1/data"; }`;
  const { status, stderr } = spawnSync(
    "unshare",
    [
      "--map-root-user",
      "--mount",
      "sh",
      "-c",
      script,
      "sh",
      disk,
      process.execPath,
      join(root, "hack/start.ts"),
    ],
    { encoding: "utf8", timeout: 20_000 },
  );
  expect({ status, stderr }).toEqual({
    status: 1,
    stderr: `gapura: the disk of ${disk}/data is full (ENOSPC): free some, or choose another folder with --data\n`,
  });
});

test("a setting that the data plane refuses: npm start says so, and starts none", async () => {
  const [manifests, data] = [join(folder.path, "refused", "manifests"), join(folder.path, "refused", "data")];
  writeManifests(manifests, upstream.url);
  const flags = ["--manifests", manifests, "--data", data, "--port=0", "--ops-port=0", "--no-console"];
  const start = spawn(process.execPath, [join(root, "hack/start.ts"), ...flags], {
    cwd: root,
    env: { ...process.env, BODY_BUDGET: "much" },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let output = "";
  start.stderr.on("data", (text: Buffer) => (output += text.toString()));
  expect(await once(start, "exit")).toEqual([1, null]);
  expect(output).toContain(
    "\n  BODY_BUDGET: must be a number of bytes, or one with Mi or Gi\ngapura: stopped\n",
  );
  expect(output).not.toContain("starting the data plane");
}, 60_000);

/** A product with a stream that has begun and would go on for a minute. */
async function productWithStream(name: string) {
  const [manifests, data] = [join(folder.path, name, "manifests"), join(folder.path, name, "data")];
  writeManifests(manifests, upstream.url);
  const product = await startProduct({ manifests, data });
  upstream.next({ ...text("one two three"), faults: { delayAtEvent: { event: 4, ms: 60_000 } } });
  const answer = await fetch(`${product.url}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": readKeys(data).inference,
      "content-type": "application/json",
      "anthropic-version": "2023-06-01",
    },
    body: JSON.stringify({
      model: "m-messages",
      max_tokens: 50,
      stream: true,
      messages: [{ role: "user", content: "count" }],
    }),
  });
  expect(answer.status).toBe(200);
  const streamed = answer.text().catch(() => "cut");
  return { product, data, streamed, ended: once(product.process, "exit") };
}
/** The event that tells a client that its stream ends too early. */
const ERROR_AT_END = /event: error\ndata: \{[^\n]*\}\n\n$/;

test("rule 14.7: a second Ctrl-C ends all of it within ten seconds, a running answer in its error", async () => {
  const { product, data, streamed, ended } = await productWithStream("twice");
  // As a terminal does: everybody in the group hears it.
  const ctrlC = () => process.kill(-(product.process.pid ?? 0), "SIGINT");
  ctrlC();
  await expect.poll(() => product.output(), { timeout: 10_000 }).toContain("Ctrl-C again: at once");
  await new Promise((done) => setTimeout(done, 1_000));
  expect(product.process.exitCode).toBeNull();
  const asked = Date.now();
  ctrlC();
  await ended;
  expect(Date.now() - asked).toBeLessThan(10_000);
  expect(product.output()).toContain("cutting off what still runs");
  expect(await streamed).toMatch(ERROR_AT_END);
  // Nothing of it is left to be in the way of the next start.
  const again = spawn("npm", ["run", "--silent", "reconcile", "--", "--data", data], { cwd: root });
  expect((await once(again, "exit"))[0]).toBe(2);
}, 120_000);

test("a terminal that goes away ends all of it soon, a running answer in its error", async () => {
  const { product, streamed, ended } = await productWithStream("gone");
  process.kill(-(product.process.pid ?? 0), "SIGHUP");
  expect(await streamed).toMatch(ERROR_AT_END);
  await ended;
}, 60_000);

/** A checkout of which only the way to its packages matters: one that runs, one for tests. */
function writeCheckout(
  path: string,
  lock: object,
  packages: { readonly needed: string; readonly tool: string },
) {
  fs.mkdirSync(join(path, "hack"), { recursive: true });
  fs.copyFileSync(join(root, "hack/ensure.mjs"), join(path, "hack/ensure.mjs"));
  const { needed, tool } = packages;
  const head = { name: "checkout", version: "1.0.0" };
  const declared = { dependencies: { needed }, devDependencies: { tool } };
  fs.writeFileSync(join(path, "package.json"), JSON.stringify({ ...head, ...declared }));
  fs.writeFileSync(
    join(path, "package-lock.json"),
    JSON.stringify({ ...head, lockfileVersion: 3, packages: { "": { ...head, ...declared }, ...lock } }),
  );
}
const environment = (more: NodeJS.ProcessEnv): NodeJS.ProcessEnv => ({
  PATH: process.env["PATH"],
  HOME: folder.path,
  npm_config_cache: join(folder.path, "npm-cache"),
  npm_config_audit: "false",
  ...more,
});

test("a mirror that swallows packets: npm and apt give up within a minute, with a sentence", async () => {
  // The kernel accepts; nobody answers.
  const mirror = createServer(() => {});
  mirror.listen(0, "127.0.0.1");
  await once(mirror, "listening");
  const address = `http://127.0.0.1:${(mirror.address() as AddressInfo).port}/`;
  const checkout = join(folder.path, "swallowed");
  writeCheckout(
    checkout,
    { "node_modules/needed": { version: "1.0.0", integrity: `sha512-${"A".repeat(86)}==` } },
    { needed: "1.0.0", tool: "1.0.0" },
  );
  const apt = join(folder.path, "apt");
  fs.mkdirSync(apt);
  fs.writeFileSync(join(apt, "sources.list"), `deb [trusted=yes] ${address} ./\n`);
  fs.writeFileSync(
    join(apt, "apt.conf"),
    `Dir::Etc::sourcelist "${apt}/sources.list"; Dir::Etc::sourceparts "-"; Dir::State::lists "${apt}/none";\n`,
  );
  const before = { cache: process.env["XDG_CACHE_HOME"], apt: process.env["APT_CONFIG"] };
  const asked = performance.now();
  try {
    const install = spawn(process.execPath, ["hack/ensure.mjs"], {
      cwd: checkout,
      env: environment({ npm_config_registry: address }),
      stdio: ["ignore", "ignore", "pipe"],
    });
    let said = "";
    install.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
    const ended = once(install, "exit");

    process.env["XDG_CACHE_HOME"] = join(folder.path, "cache");
    process.env["APT_CONFIG"] = join(apt, "apt.conf");
    const choices = [{ program: "gapura-no-such-program", debianPackage: "gapura-no-such-package" }];
    await expect(findProgram({ folder: "none", choices }, () => {})).rejects.toThrow(
      /^Debian's mirror does not answer \(E: .+\)$/,
    );
    await ended;
    expect(said.trim().split("\n").at(-1)).toBe(
      "gapura: the packages could not be installed (npm ci: exit 1); does `npm ping` reach your registry, and is there room on the disk?",
    );
  } finally {
    for (const [name, value] of [
      ["XDG_CACHE_HOME", before.cache],
      ["APT_CONFIG", before.apt],
    ] as const) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    mirror.close();
  }
  expect(performance.now() - asked).toBeLessThan(90_000);
}, 120_000);

test("npm start installs what the product needs; tools and tests install the rest", () => {
  const checkout = join(folder.path, "fresh");
  const local = (name: string) => {
    fs.mkdirSync(join(checkout, name), { recursive: true });
    fs.writeFileSync(join(checkout, name, "package.json"), JSON.stringify({ name, version: "1.0.0" }));
    return `file:${name}`;
  };
  const link = (name: string, dev: boolean) => ({
    [name]: { version: "1.0.0", ...(dev ? { dev } : {}) },
    [`node_modules/${name}`]: { resolved: name, link: true, ...(dev ? { dev } : {}) },
  });
  const packages = { needed: local("needed"), tool: local("tool") };
  writeCheckout(checkout, { ...link("needed", false), ...link("tool", true) }, packages);
  const ensure = (...args: string[]) =>
    spawnSync(process.execPath, ["hack/ensure.mjs", ...args], {
      cwd: checkout,
      env: environment({ npm_config_offline: "true" }),
      encoding: "utf8",
    });
  const installed = () =>
    fs.readdirSync(join(checkout, "node_modules")).filter((name) => !name.startsWith("."));
  fs.writeFileSync(join(checkout, "hack/start.ts"), "console.log('started')");
  fs.writeFileSync(join(checkout, "hack/test.ts"), "console.log('tested')");

  expect(ensure("hack/start.ts")).toMatchObject({ status: 0, stdout: "started\n" });
  expect(installed()).toEqual(["needed"]);
  // Nothing is installed twice.
  expect(ensure("hack/start.ts").stderr).toBe("");
  expect(ensure("hack/test.ts")).toMatchObject({ status: 0, stdout: "tested\n" });
  expect(installed()).toEqual(["needed", "tool"]);
  expect(ensure("hack/start.ts").stderr).toBe("");
  expect(installed()).toEqual(["needed", "tool"]);
});
