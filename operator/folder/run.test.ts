import { createHash } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import * as fs from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { decodeSlots } from "../plan/shards.ts";
import { listenOnBarredPort } from "../../test/fakes/barred-port.ts";
import { TRUSTED } from "../plan/tenancy.ts";
import { runFolder } from "./run.ts";
import { SnapshotFolder } from "./snapshot-folder.ts";

let folder: string;
let lines: string[];
let stop: AbortController;
let running: Promise<void>;

const path = (...parts: string[]) => join(folder, ...parts);
const start = (ack: string | null = null) => {
  stop = new AbortController();
  running = runFolder(
    {
      manifests: path("manifests"),
      out: path("out"),
      data: path("data"),
      ack,
      tenancy: TRUSTED,
      print: (line) => lines.push(line),
      now: () => Date.now(),
    },
    stop.signal,
  );
};
const end = async () => {
  stop.abort();
  await running;
};
const write = async (name: string, text: string) => {
  await fs.mkdir(join(path("manifests", name), ".."), { recursive: true });
  await fs.writeFile(path("manifests", name), text);
};
const newest = async () => {
  const slots = decodeSlots(await new SnapshotFolder(path("out")).read());
  return slots
    .filter(({ published }) => published !== null)
    .sort((one, other) => (other.serial ?? 0) - (one.serial ?? 0))[0];
};
const firstUrl = async () => (await newest())?.published?.routing.routes[0]?.upstreams[0]?.url;
const models = async () => (await newest())?.published?.routing.routes.map(({ model }) => model).join(" ");

async function expectSoon<Value>(what: () => Promise<Value>, wanted: Value): Promise<void> {
  await expect.poll(what, { timeout: 8_000, interval: 20 }).toBe(wanted);
}

/** Timers run by a clock that only `expectWithinASecond` moves, and no busy machine. */
const holdClock = () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "Date"] });
  onTestFinished(() => void vi.useRealTimers());
};

/** Looks for 8 s, in which 0.8 s of that clock pass. `expect.poll` would let it run. */
async function expectWithinASecond<Value>(what: () => Promise<Value>, wanted: Value): Promise<void> {
  for (let look = 0; look < 400 && (await what()) !== wanted; look += 1) {
    vi.advanceTimersByTime(2);
    await sleep(20);
  }
  expect(await what()).toBe(wanted);
}

const route = (name: string, url = "https://a.example") => `apiVersion: gapura.dev/v1alpha1
kind: ModelRoute
metadata: {name: ${name}}
spec:
  limits: {contextTokens: 10, maxOutputTokens: 10}
  upstreams: [{name: one, dialect: Messages, baseURL: "${url}"}]
`;
const prices = (...names: string[]) => `apiVersion: gapura.dev/v1alpha1
kind: PriceTable
metadata: {name: default}
spec:
  unit: USD
  models:
${names.map((name) => `  - {model: ${name}, input: "1", output: "2"}`).join("\n")}
`;
const organization = `apiVersion: gapura.dev/v1alpha1
kind: Organization
metadata: {name: acme}
spec:
  apiKeys: [{name: ci, secretKeyRef: {name: keys, key: api-key}}]
  adminKeys: [{name: root, secretKeyRef: {name: keys, key: admin-key}}]
`;

beforeEach(async () => {
  folder = await fs.mkdtemp(join(tmpdir(), "gapura-folder-"));
  lines = [];
  await write("prices.yaml", prices("m", "n", "k"));
});
afterEach(async () => {
  await end();
  await fs.rm(folder, { recursive: true, force: true });
});

describe("watching", () => {
  test("an edit, a rename over a file, a new nested folder and a deletion are published within a second", async () => {
    holdClock();
    await write("routes/one.yaml", route("m"));
    start();
    await expectWithinASecond(models, "m");
    await write("routes/deep/er/two.json", JSON.stringify(parseRoute("n")));
    await expectWithinASecond(models, "m n");
    // Editors write beside the file and rename over it.
    await fs.writeFile(path("manifests", "routes", ".one.yaml.swp"), route("k"));
    await fs.rename(path("manifests", "routes", ".one.yaml.swp"), path("manifests", "routes", "one.yaml"));
    await expectWithinASecond(models, "k n");
    await fs.rm(path("manifests", "routes", "deep"), { recursive: true });
    await expectWithinASecond(models, "k");
  });

  test("rule 1.12: broken YAML keeps its file's objects, is named with its line, and heals", async () => {
    await write("one.yaml", route("m"));
    start();
    await expectSoon(models, "m");
    const uid = (await newest())?.published?.routing.routes[0]?.source.uid;
    await write("one.yaml", `${route("m")}\n  bad: [`);
    await expectSoon(
      async () => lines.some((line) => line.startsWith(`${path("manifests", "one.yaml")}:`)),
      true,
    );
    await expectSoon(
      async () => lines.some((line) => line.startsWith("ModelRoute default/m Unreadable")),
      true,
    );
    expect(await models()).toBe("m");
    await write("one.yaml", route("m", "https://b.example"));
    await expectSoon(firstUrl, "https://b.example/v1/messages");
    const source = (await newest())?.published?.routing.routes[0]?.source;
    expect([source?.uid, source?.generation]).toEqual([uid, 2]);
  });

  test("rule 1.12: a file that is not UTF-8 keeps its objects and Secrets, and is named with the line", async () => {
    const file = (name: string, value: string) =>
      `apiVersion: v1\nkind: Secret\nmetadata: {name: up}\nstringData: {key: ${value}}\n---\n${route("m")
        .replace("spec:", `spec:\n  displayName: ${name}`)
        .replace('a.example"', 'a.example", credentials: {secretKeyRef: {name: up, key: key}}')}`;
    await write("one.yaml", file("before", "value"));
    start();
    await expectSoon(models, "m");
    await fs.writeFile(path("manifests", "one.yaml"), Buffer.from(file("café", "other"), "latin1"));
    const said = `${path("manifests", "one.yaml")}:10 Unreadable: is not UTF-8 text`;
    await expectSoon(async () => lines.includes(said), true);
    const published = (await newest())?.published;
    expect(published?.routing.routes.map(({ displayName }) => displayName)).toEqual(["before"]);
    expect(published?.credentials).toEqual({ "default/up/key": "value" });
    await write("one.yaml", `\uFEFF${file("café", "value")}`);
    await expectSoon(async () => (await newest())?.published?.routing.routes[0]?.displayName, "café");
  });

  test("an alias inside of what it names holds up nothing but its file, and is named with its path", async () => {
    await write("one.yaml", route("m"));
    start();
    await expectSoon(models, "m");
    await write(
      "one.yaml",
      route("m").replace("maxOutputTokens: 10}", "maxOutputTokens: *all}").replace("{c", "&all {c"),
    );
    await write("two.yaml", route("n"));
    await expectSoon(models, "m n");
    expect(lines).toContain(
      `${path("manifests", "one.yaml")}:5 spec.limits.maxOutputTokens: Unreadable: holds itself through an alias`,
    );
    // Each alias goes as deep again as the parser goes by itself.
    const steps = Array.from({ length: 10 }, (_, step) => {
      const inner = step === 0 ? "" : `*d${step - 1}`;
      return `  a${step}: &d${step} ${"[".repeat(400)}${inner}${"]".repeat(400)}\n`;
    });
    await write("three.yaml", `${route("deep")}${steps.join("")}---\n${route("k")}`);
    await expectSoon(models, "k m n");
    expect(lines.join("\n")).toMatch(/three\.yaml:\d+ spec\.a2\S* Unreadable: is nested too deeply/);
  });

  test("rule 1.13: an unknown field of a Secret is told, its values count, and nothing of its file is held up", async () => {
    const secret =
      "apiVersion: v1\nkind: Secret\nmetadata: {name: up, lables: {}}\nstringData: {key: value}\n";
    const keyed = route("m").replace(
      'a.example"',
      'a.example", credentials: {secretKeyRef: {name: up, key: key}}',
    );
    await write("one.yaml", `${secret}---\n${keyed}---\n${route("n")}`);
    start();
    await expectSoon(models, "m n");
    expect((await newest())?.published?.credentials).toEqual({ "default/up/key": "value" });
    expect(lines).toContain(
      `${path("manifests", "one.yaml")}:3 Secret default/up metadata.lables: Invalid: is not a known field`,
    );
    await write("one.yaml", `${secret}---\n${keyed}`);
    await expectSoon(models, "m");
  });

  test("rule 1.13: what stands in a generated key's place holds up nothing, and is named", async () => {
    const organization = (name: string, ...keys: string[]) =>
      `apiVersion: gapura.dev/v1alpha1\nkind: Organization\nmetadata: {name: ${name}}\nspec:\n  apiKeys: [${keys.map((key) => `{name: ${key}, secretKeyRef: {name: ${key}, key: api-key}}`).join(", ")}]\n`;
    const keysServed = async () =>
      (await newest())?.published?.routing.organizations
        .map(({ id, apiKeys }) => `${id}: ${apiKeys.map(({ name }) => name).join(",")}`)
        .join(" ");
    // A file in a Secret's place, a folder in a key's, before there is anything.
    await fs.mkdir(path("data", "secrets", "default", "folder", "api-key"), { recursive: true });
    await fs.writeFile(path("data", "secrets", "default", "file"), "");
    await fs.mkdir(path("data", "secrets", "default", "link"));
    await fs.symlink(path("nowhere"), path("data", "secrets", "default", "link", "api-key"));
    await write("acme.yaml", organization("acme", "file", "folder", "good", "link"));
    start();
    await expectSoon(keysServed, "org_default_acme: good");
    const told = lines.join("\n");
    expect(told).toContain(
      `${path("data", "secrets", "default", "folder", "api-key")}:1 Secret default/folder Unreadable: cannot be read: EISDIR`,
    );
    expect(told).toContain(
      `${path("data", "secrets", "default", "link", "api-key")}:1 Secret default/link Unreadable: cannot be read: it is a link to what is not there`,
    );
    expect(told).toMatch(
      /Organization default\/acme spec\.apiKeys\[0\]\S* SecretNotFound: .* the key cannot be made there: E(EXIST|NOTDIR)/,
    );
    expect(told.match(/generated a key/g)?.length).toBe(1);
    // And in the place of one that is served.
    const file = path("data", "secrets", "default", "good", "api-key");
    await fs.rm(file);
    await fs.mkdir(file);
    await write("other.yaml", organization("other", "second"));
    await expectSoon(keysServed, "org_default_acme: good org_default_other: second");
    expect(lines.join("\n")).not.toContain("could not be compiled");
  });

  test("uid and generation survive a restart; nothing is published anew when nothing changed", async () => {
    await write("one.yaml", route("m"));
    start();
    await expectSoon(models, "m");
    const before = await newest();
    await end();
    start();
    await expectSoon(async () => lines.filter((line) => line.startsWith("ModelRoute default/m")).length, 2);
    expect((await newest())?.published?.routing).toEqual(before?.published?.routing);
  });

  test("500 edits one after the other end in the last one", async () => {
    start();
    for (let edit = 1; edit <= 500; edit += 1)
      await write("one.yaml", route("m", `https://e${edit}.example`));
    await expectSoon(firstUrl, "https://e500.example/v1/messages");
  });
});

describe("failures", () => {
  test("a folder that goes away leaves everything served, is told once, and is read again when it is back", async () => {
    await write("one.yaml", route("m"));
    start();
    await expectSoon(models, "m");
    await fs.rename(path("manifests"), path("elsewhere"));
    await expectSoon(
      async () => lines.filter((line) => line.startsWith("the folder could not be")).length,
      1,
    );
    expect(await models()).toBe("m");
    await fs.rename(path("elsewhere"), path("manifests"));
    await write("one.yaml", route("n"));
    await expectSoon(models, "n");
    expect(lines.filter((line) => line.startsWith("the folder could not be"))).toHaveLength(1);
  });
});

test("a file or folder that cannot be looked at keeps what it declared, is told, and holds up nothing else", async () => {
  await fs.mkdir(path("team"));
  const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: up}\nstringData: {key: value}\n";
  await fs.writeFile(path("team", "one.yaml"), `${route("m")}---\n${secret}`);
  await fs.symlink(path("team"), path("manifests", "team"));
  await write("two.yaml", route("n"));
  start();
  await expectSoon(models, "m n");
  for (const name of ["team", "two.yaml"]) {
    await fs.symlink(name, path("manifests", ".loop"));
    await fs.rename(path("manifests", ".loop"), path("manifests", name));
  }
  const credentials = "credentials: {secretKeyRef: {name: up, key: key}}";
  await write("three.yaml", route("k").replace('a.example"', `a.example", ${credentials}`));
  await expectSoon(models, "k m n");
  for (const name of ["team", "two.yaml"])
    expect(lines).toContain(`${path("manifests", name)}:1 Unreadable: cannot be read: ELOOP`);
  await end();
  start();
  await write("three.yaml", route("k", "https://b.example"));
  await expectSoon(firstUrl, "https://b.example/v1/messages");
  expect(await models()).toBe("k m n");
});

test("a data folder below the manifests is neither read nor watched", async () => {
  await write("one.yaml", route("m"));
  await fs.symlink(path("manifests", "data"), path("data"));
  await fs.mkdir(path("manifests", "data"), { recursive: true });
  await write("data/stores.json", "{}");
  start();
  await expectSoon(models, "m");
  await write("data/two.yaml", route("n"));
  await write("three.yaml", route("k"));
  await expectSoon(models, "k m");
  expect(lines.filter((line) => line.includes("/data/"))).toEqual([]);
});

test("a link whose target goes away keeps what it declared, is told, and is read again when it is back", async () => {
  await fs.writeFile(path("one.yaml"), route("m"));
  await fs.symlink(path("one.yaml"), path("manifests", "one.yaml"));
  await fs.mkdir(path("team"));
  await fs.writeFile(path("team", "two.yaml"), route("n"));
  await fs.symlink(path("team"), path("manifests", "team"));
  start();
  await expectSoon(models, "m n");
  await fs.rename(path("one.yaml"), path("away.yaml"));
  await fs.rename(path("team"), path("away"));
  // Neither of these would be read if it led anywhere.
  await fs.symlink(path("nowhere"), path("manifests", "README.md"));
  await fs.symlink(path("nowhere"), path("manifests", ".#one.yaml"));
  const said = (name: string) =>
    `${path("manifests", name)}:1 Unreadable: cannot be read: it is a link to what is not there`;
  for (const name of ["one.yaml", "team"]) await expectSoon(async () => lines.includes(said(name)), true);
  await write("three.yaml", route("k"));
  await expectSoon(models, "k m n");
  await end();
  start();
  await write("three.yaml", route("k", "https://b.example"));
  await expectSoon(firstUrl, "https://b.example/v1/messages");
  expect(await models()).toBe("k m n");
  for (const name of ["one.yaml", "team"])
    expect(lines.filter((line) => line === said(name))).toHaveLength(2);
  await fs.writeFile(path("one.yaml"), route("m", "https://c.example"));
  await expectSoon(
    async () => (await newest())?.published?.routing.routes[1]?.upstreams[0]?.url,
    "https://c.example/v1/messages",
  );
  await fs.rm(path("manifests", "team"));
  await expectSoon(models, "k m");
});

describe("keys", () => {
  test("a missing key is generated, mode 0600, printed by place and never by value, and stays", async () => {
    await write("organization.yaml", organization);
    start();
    await expectSoon(async () => (await newest())?.published?.routing.organizations[0]?.apiKeys.length, 1);
    const file = path("data", "secrets", "default", "keys", "api-key");
    const value = (await fs.readFile(file, "utf8")).trim();
    expect(value).toMatch(/^sk-svc-[A-Za-z0-9]{40}$/);
    expect((await fs.stat(file)).mode & 0o777).toBe(0o600);
    expect(await fs.readFile(path("data", "secrets", "default", "keys", "admin-key"), "utf8")).toMatch(
      /^sk-adm-svc-/,
    );
    expect(lines.filter((line) => line.includes(file))).toHaveLength(1);
    const digest = createHash("sha256").update(value).digest("hex");
    expect((await newest())?.published?.routing.organizations[0]?.apiKeys[0]?.sha256).toBe(digest);
    await end();
    start();
    await expectSoon(
      async () => lines.filter((line) => line.startsWith("Organization default/acme Ready")).length,
      2,
    );
    expect((await fs.readFile(file, "utf8")).trim()).toBe(value);
  });

  test("a key whose name begins with a dot is none of the files that are being written", async () => {
    await write("organization.yaml", organization.replaceAll("api-key", ".draft-key"));
    start();
    await expectSoon(async () => (await newest())?.published?.routing.organizations[0]?.apiKeys.length, 1);
  });

  test("a generated key's file that is changed, taken away and put back is seen like an edit of a manifest", async () => {
    holdClock();
    await write("org.yaml", organization);
    start();
    const file = path("data", "secrets", "default", "keys", "api-key");
    const hash = async () => (await newest())?.published?.routing.organizations[0]?.apiKeys[0]?.sha256;
    const told = (text: string) => async () => lines.some((line) => line.includes(text));
    await expectWithinASecond(async () => (await hash()) !== undefined, true);
    const value = `sk-svc-${"n".repeat(40)}`;
    await fs.writeFile(file, `${value}\n`);
    await expectWithinASecond(hash, createHash("sha256").update(value).digest("hex"));
    await fs.rm(file);
    await expectWithinASecond(
      told('SecretNotFound: Secret "keys" has no value under the key "api-key"'),
      true,
    );
    // It keeps its last good hash.
    expect(await hash()).toBe(createHash("sha256").update(value).digest("hex"));
    const other = `sk-svc-${"o".repeat(40)}`;
    await fs.writeFile(file, `${other}\n`);
    await expectWithinASecond(hash, createHash("sha256").update(other).digest("hex"));
  });

  test("rule 6.9: a value of the wrong form is never overwritten and does not authenticate", async () => {
    await write("organization.yaml", organization);
    await write(
      "keys.yaml",
      "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {api-key: hunter2}\n",
    );
    start();
    await expectSoon(async () => (await newest())?.published?.routing.organizations[0]?.adminKeys.length, 1);
    expect((await newest())?.published?.routing.organizations[0]?.apiKeys).toEqual([]);
    expect(lines.join("\n")).toContain("spec.apiKeys[0].secretKeyRef: SecretInvalid");
    expect(lines.join("\n")).not.toContain("hunter2");
    await expect(fs.stat(path("data", "secrets", "default", "keys", "api-key"))).rejects.toThrow("ENOENT");
  });

  test("an empty value in a manifest's Secret does not hide the key that is generated in its place", async () => {
    await write("organization.yaml", organization);
    await write("keys.yaml", 'apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\ndata: {api-key: ""}\n');
    start();
    await expectSoon(async () => (await newest())?.published?.routing.organizations[0]?.apiKeys.length, 1);
    const value = (await fs.readFile(path("data", "secrets", "default", "keys", "api-key"), "utf8")).trim();
    expect((await newest())?.published?.routing.organizations[0]?.apiKeys[0]?.sha256).toBe(
      createHash("sha256").update(value).digest("hex"),
    );
    // A value that is filled in later is the key from then on.
    const imported = `sk-svc-${"i".repeat(40)}`;
    await write(
      "keys.yaml",
      `apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {api-key: ${imported}}\n`,
    );
    await expectSoon(
      async () => (await newest())?.published?.routing.organizations[0]?.apiKeys[0]?.sha256,
      createHash("sha256").update(imported).digest("hex"),
    );
  });

  test("an object that a faulty file may hide is told the fault's place and field", async () => {
    await write("organization.yaml", organization);
    start();
    await expectSoon(async () => lines.some((line) => line.startsWith("Organization default/acme")), true);
    await write("organization.yaml", "apiVersion: gapura.dev/v1alpha1\nmetadata: {name: acme}\n");
    const told = `Organization default/acme Unreadable: ${path("manifests", "organization.yaml")}:1 kind: is required`;
    await expectSoon(async () => lines.some((line) => line.startsWith(told)), true);
  });

  test("nothing that is published, kept or printed holds a key or a credential, but for the credentials part", async () => {
    const values = {
      imported: `sk-svc-${"0123456789".repeat(4)}`,
      upstream: "upstream-credential-value",
    };
    await write("organization.yaml", organization);
    await write(
      "secrets.yaml",
      `apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {api-key: ${values.imported}}\n---\n` +
        `apiVersion: v1\nkind: Secret\nmetadata: {name: up}\nstringData: {key: ${values.upstream}}\n`,
    );
    await write(
      "one.yaml",
      route("m").replace('a.example"', 'a.example", credentials: {secretKeyRef: {name: up, key: key}}'),
    );
    start();
    await expectSoon(models, "m");
    const generated = (
      await fs.readFile(path("data", "secrets", "default", "keys", "admin-key"), "utf8")
    ).trim();
    const published = (await newest())?.published;
    expect(published?.credentials).toEqual({ "default/up/key": values.upstream });
    const kept = await fs.readFile(path("data", "operator.json"), "utf8");
    const seen = [JSON.stringify(published?.routing), kept, ...lines].join("\n");
    for (const value of [...Object.values(values), generated]) expect(seen).not.toContain(value);
  });
});

describe("acknowledgement", () => {
  let server: Server;
  let answer: () => unknown;
  beforeEach(async () => {
    server = createServer((_request, response) => response.end(JSON.stringify(answer())));
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  });
  afterEach(() => server.close());
  const url = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}/config/status`;

  test("Programmed tells what the data plane really holds, and the other slot is emptied", async () => {
    let serial: number | null = null;
    let objects: object[] = [];
    answer = () => ({ hash: null, serial, podUid: "p", accepts: [1], rejected: null, objects });
    const take = async () => {
      const slot = await newest();
      serial = slot?.serial ?? null;
      objects = (slot?.published?.routing.objects ?? []).map((source) => ({ ...source, notes: [] }));
    };
    await write("one.yaml", route("m"));
    start(url());
    await expectSoon(models, "m");
    await expectSoon(
      async () => lines.some((line) => line === "ModelRoute default/m Ready=False Pending: 0/1 pods"),
      true,
    );
    await take();
    await expectSoon(
      async () => lines.some((line) => line === "ModelRoute default/m Ready=True Ready: 1/1 pods"),
      true,
    );
    await write("one.yaml", route("m", "https://b.example"));
    const slots = async () =>
      (await fs.readdir(path("out"))).filter((name) => name.endsWith("index.json")).length;
    await expectSoon(slots, 2);
    await take();
    await expectSoon(slots, 1);
  });

  test("a data plane is asked at ports that browsers bar, too", async () => {
    await new Promise((done) => server.close(done));
    await listenOnBarredPort(server);
    answer = () => ({ hash: null, serial: null, podUid: "p", accepts: [1], rejected: null, objects: [] });
    await write("one.yaml", route("m"));
    start(url());
    await expectSoon(
      async () => lines.some((line) => line === "ModelRoute default/m Ready=False Pending: 0/1 pods"),
      true,
    );
  });

  test("rule 6.1: a data plane that hangs holds up no edit", async () => {
    // For ever: what waited for its answer would not come.
    const timeout = vi.spyOn(AbortSignal, "timeout").mockReturnValue(new AbortController().signal);
    onTestFinished(() => timeout.mockRestore());
    server.removeAllListeners("request");
    let asked = 0;
    server.on("request", () => (asked += 1));
    await write("one.yaml", route("m"));
    start(url());
    await expectSoon(async () => asked > 0, true);
    for (const name of ["n", "k"]) {
      await write("one.yaml", route(name));
      await expectSoon(models, name);
    }
    expect(asked).toBe(1);
    server.closeAllConnections();
  });

  test("rule 6.1: an answer that is no status counts as none", async () => {
    answer = () => ({ serial: "seven" });
    await write("one.yaml", route("m"));
    start(url());
    await expectSoon(
      async () => lines.some((line) => line.includes("ModelRoute default/m Ready=False NoPods: 0/0 pods")),
      true,
    );
  });
});

function parseRoute(name: string): object {
  return {
    apiVersion: "gapura.dev/v1alpha1",
    kind: "ModelRoute",
    metadata: { name },
    spec: {
      limits: { contextTokens: 10, maxOutputTokens: 10 },
      upstreams: [{ name: "one", dialect: "Messages", baseURL: "https://a.example" }],
    },
  };
}
