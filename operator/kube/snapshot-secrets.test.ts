import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { KubeApi } from "./client.ts";
import { SnapshotSecrets } from "./snapshot-secrets.ts";

interface Stored {
  version: number;
  labels: Record<string, string>;
  data: Record<string, string>;
}

/** The Secrets of one namespace as an API server holds them. */
const stored = new Map<string, Stored>();
let versions = 100;
let writes = 0;
/** Whose reading fails. */
let broken: string | null = null;
const server = createServer((request, response) => {
  const { pathname } = new URL(request.url ?? "", "http://x");
  const name = pathname.split("/").at(-1) ?? "";
  let text = "";
  request.on("data", (chunk: Buffer) => (text += chunk.toString()));
  request.on("end", () => {
    if (request.method === "PATCH") write(name, JSON.parse(text) as Partial<Stored> & { metadata?: Stored });
    if (name === broken) return response.writeHead(500).end("{}");
    const secret = stored.get(name);
    if (secret === undefined) return response.writeHead(404).end("{}");
    const { version, labels, data } = secret;
    const metadata = { name, namespace: "here", uid: name, resourceVersion: String(version), labels };
    return response.end(JSON.stringify({ metadata, data }));
  });
});

/** A merge, as both kinds of patch are one here. */
function write(
  name: string,
  patch: { data?: Record<string, string | null>; metadata?: Partial<Stored> },
): void {
  writes += 1;
  const before = stored.get(name) ?? { version: 0, labels: {}, data: {} };
  const data = Object.entries({ ...before.data, ...patch.data }).filter(
    (entry): entry is [string, string] => entry[1] !== null,
  );
  const labels = patch.metadata?.labels ?? before.labels;
  stored.set(name, { version: (versions += 1), labels, data: Object.fromEntries(data) });
}

let api: KubeApi;
let secrets: SnapshotSecrets;
const told = (name: string) => secrets.note(`here/${name}`, String(stored.get(name)?.version));

beforeEach(async () => {
  stored.clear();
  broken = null;
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  api = new KubeApi(async () => ({
    url: `http://127.0.0.1:${port}`,
    proxy: null,
    authorization: null,
    tls: {},
    freshForMs: 60_000,
  }));
  secrets = new SnapshotSecrets({ api, namespace: "here", name: "gapura", permit: () => {} });
  await secrets.read();
  await secrets.write("a", [
    { name: "a-credentials-0.gz", bytes: Buffer.from("keys") },
    { name: "a-0.gz", bytes: Buffer.from("routes") },
    { name: "a-index.json", bytes: Buffer.from("index") },
  ]);
});
afterEach(async () => {
  await api.close();
  await new Promise((done) => server.close(done));
});

test("what we wrote ourselves is no tampering, whenever the watch tells of it", () => {
  expect([...stored.keys()].toSorted()).toEqual(["gapura-a-0", "gapura-a-credentials-0"]);
  for (const name of stored.keys()) told(name);
  expect(secrets.isTampered).toBe(false);
  secrets.note("here/gapura-a-0", "99");
  expect(secrets.isTampered).toBe(false);
});

test.for<{ title: string; tamper: () => void; is: boolean }>([
  {
    title: "a newer version",
    tamper: () => {
      write("gapura-a-0", { data: { "a-0.gz": "eA==" } });
      told("gapura-a-0");
    },
    is: true,
  },
  { title: "a deletion", tamper: () => secrets.note("here/gapura-a-credentials-0", null), is: true },
  {
    title: "a slot that was empty",
    tamper: () => {
      write("gapura-b-3", { data: { "b-3.gz": "eA==" } });
      told("gapura-b-3");
    },
    is: true,
  },
  { title: "the deletion of what never was", tamper: () => secrets.note("here/gapura-b-1", null), is: false },
  { title: "a Secret that is no slot", tamper: () => secrets.note("here/gapura-a-9", "999999"), is: false },
  { title: "another namespace", tamper: () => secrets.note("there/gapura-a-0", "999999"), is: false },
])("$title is tampering: $is, until it is read again", async ({ tamper, is }) => {
  tamper();
  expect(secrets.isTampered).toBe(is);
  await secrets.read();
  expect(secrets.isTampered).toBe(false);
});

test("reading removes foreign data keys of Secrets that carry our label, and nothing else", async () => {
  write("gapura-a-0", { data: { foreign: "eA==" } });
  write("gapura-b-0", { data: { theirs: "eA==" } });
  writes = 0;
  const files = await secrets.read();
  expect([...files.keys()].toSorted()).toEqual(["a-0.gz", "a-credentials-0.gz", "a-index.json"]);
  expect(Object.keys(stored.get("gapura-a-0")?.data ?? {}).toSorted()).toEqual(["a-0.gz", "a-index.json"]);
  expect(stored.get("gapura-b-0")?.data).toEqual({ theirs: "eA==" });
  expect(writes).toBe(1);
  told("gapura-a-0");
  expect(secrets.isTampered).toBe(false);
});

test("a slot is emptied wholly, also after a reading that failed", async () => {
  broken = "gapura-a-0";
  await expect(secrets.read()).rejects.toThrow("status 500");
  broken = null;
  await secrets.empty("a");
  expect([...stored.values()].map(({ data }) => data)).toEqual([{}, {}]);
});
