/** A Redis Cluster that speaks TLS alone (rule 12.1): each node is checked against the name that the cluster tells. */
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../../hack/free-port.ts";
import { stopProcess } from "../../hack/processes.ts";
import { findRedis } from "../../hack/redis.ts";
import { waitFor } from "../bench/wait-for.ts";
import { privateAuthority } from "../fakes/certificate.ts";
import { freshDatabase, type TestDatabase } from "./stores.ts";

const main = resolve(import.meta.dirname, "../../dataplane/main.ts");
const stops = new AsyncDisposableStack();
let database: TestDatabase;
let url: string;
let authorityFile: string;

beforeAll(async () => {
  database = await freshDatabase();
  stops.defer(() => database.drop());
  const folder = await mkdtemp(join(tmpdir(), "gapura-redis-tls-"));
  stops.defer(() => rm(folder, { recursive: true, force: true }));
  const authority = privateAuthority("tests");
  // Of no address: whoever goes to 127.0.0.1 instead of the name is refused.
  const certificate = authority.issue(["localhost"]);
  const files = { "ca.crt": authority.cert, "node.crt": certificate.cert, "node.key": certificate.key };
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  authorityFile = join(folder, "ca.crt");
  const program = await findRedis(() => {});
  const nodes: Redis[] = [];
  for (const slots of [
    [0, 8_191],
    [8_192, 16_383],
  ]) {
    let port = await freePort();
    while (port > 55_000) port = await freePort();
    const settings = {
      port: "0",
      bind: "127.0.0.1",
      "tls-port": String(port),
      "tls-cluster": "yes",
      "tls-cert-file": join(folder, "node.crt"),
      "tls-key-file": join(folder, "node.key"),
      "tls-ca-cert-file": authorityFile,
      "tls-auth-clients": "no",
      "cluster-enabled": "yes",
      "cluster-config-file": `nodes-${port}.conf`,
      "cluster-announce-hostname": "localhost",
      "cluster-preferred-endpoint-type": "hostname",
      dir: folder,
      save: "",
    };
    const child = spawn(
      program.path,
      Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]),
      { env: { ...process.env, ...program.environment }, stdio: "ignore" },
    );
    child.on("error", () => {});
    stops.defer(() => stopProcess(child, "SIGKILL", 5_000));
    const node = new Redis({
      port,
      host: "localhost",
      family: 4,
      tls: { ca: authority.cert },
      retryStrategy: () => 50,
      maxRetriesPerRequest: null,
    });
    node.on("error", () => {});
    stops.defer(() => node.disconnect());
    await node.call("CLUSTER", "ADDSLOTSRANGE", ...slots);
    nodes.push(node);
    if (nodes.length > 1) await nodes[0]!.cluster("MEET", "127.0.0.1", port);
    url = `rediss-cluster://localhost:${port}`;
  }
  const isWhole = async (node: Redis) =>
    (await node.cluster("INFO")).includes("cluster_state:ok") &&
    (await node.cluster("SLOTS")).length === nodes.length;
  await waitFor("a cluster of two", async () => (await Promise.all(nodes.map(isWhole))).every(Boolean));
}, 60_000);
afterAll(() => stops.disposeAsync());

/** Asks every shard on both nodes. */
async function reconcile(environment: Record<string, string>): Promise<[code: number | null, said: string]> {
  const child = spawn(process.execPath, [main, "reconcile"], {
    env: { DATABASE_URL: database.url, REDIS_URL: url, ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (bytes: Buffer) => (said += bytes.toString()));
  const code = await new Promise<number | null>((done) => child.once("close", done));
  return [code, said];
}

test("with the authority's certificate every shard is read, by the nodes' names", async () => {
  const [code, said] = await reconcile({ NODE_EXTRA_CA_CERTS: authorityFile });
  expect(said).toContain("exact: 0 accounts");
  expect(code).toBe(0);
}, 60_000);

test("without it no node is believed", async () => {
  const [code, said] = await reconcile({});
  expect(said).toContain("Redis is not reachable");
  expect(code).toBe(2);
}, 60_000);
