/** Sentinels and data nodes that speak TLS alone (rule 12.1): each is checked against the name that the sentinels announce. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../../hack/free-port.ts";
import { waitFor } from "../bench/wait-for.ts";
import { reconcile, tlsServers } from "./redis-tls.ts";
import { freshDatabase, type TestDatabase } from "./stores.ts";

const stops = new AsyncDisposableStack();
let database: TestDatabase;
let environment: Record<string, string>;
let authorityFile: string;
let sentinel: Redis;
let kill: () => Promise<void>;
let ports: readonly [master: number, replica: number];

beforeAll(async () => {
  database = await freshDatabase();
  stops.defer(() => database.drop());
  const servers = await tlsServers(stops);
  ({ authorityFile } = servers);
  ports = [await freePort(), await freePort()];
  const [first, second] = ports;
  const nodeOn = (port: number, more: Record<string, string>) =>
    servers.start({
      ...servers.settings,
      "tls-port": String(port),
      "tls-replication": "yes",
      "replica-announce-ip": "localhost",
      requirepass: "of-data",
      masterauth: "of-data",
      save: "",
      ...more,
    });
  kill = nodeOn(first, {});
  nodeOn(second, { replicaof: `localhost ${first}` });
  const port = await freePort();
  const file = join(servers.folder, "sentinel.conf");
  const lines = Object.entries({ ...servers.settings, "tls-port": String(port), "tls-replication": "yes" });
  await writeFile(
    file,
    [
      ...lines.map(([name, value]) => `${name} ${value}`),
      "sentinel resolve-hostnames yes",
      "sentinel announce-hostnames yes",
      `sentinel monitor main localhost ${first} 1`,
      "sentinel auth-pass main of-data",
      "sentinel down-after-milliseconds main 1000",
    ].join("\n"),
  );
  servers.start({}, [file, "--sentinel"]);
  sentinel = servers.client(port);
  environment = {
    DATABASE_URL: database.url,
    REDIS_URL: `rediss-sentinel://:of-data@localhost:${port}/main`,
  };
  await waitFor("a replica that may become master", async () => {
    const [replica = []] = (await sentinel.call("SENTINEL", "REPLICAS", "main")) as string[][];
    return replica[replica.indexOf("master-link-status") + 1] === "ok";
  });
}, 60_000);
afterAll(() => stops.disposeAsync());

const expectExact = async () => {
  const [code, said] = await reconcile({ ...environment, NODE_EXTRA_CA_CERTS: authorityFile });
  expect(said).toContain("exact: 0 accounts");
  expect(code).toBe(0);
};

test("with the authority's certificate the master is asked by its name, and after a failover the next one", async () => {
  await expectExact();
  await kill();
  await waitFor("another master", async () => {
    const [, port] = (await sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")) as string[];
    return Number(port) === ports[1];
  });
  await expectExact();
}, 120_000);

test("without it nobody is believed", async () => {
  const [code, said] = await reconcile(environment);
  expect(said).toContain("Redis is not reachable");
  expect(code).toBe(2);
}, 60_000);
