/** A Redis Cluster that speaks TLS alone (rule 12.1): each node is checked against the name that the cluster tells. */
import type { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../../hack/free-port.ts";
import { waitFor } from "../bench/wait-for.ts";
import { reconcile, tlsServers } from "./redis-tls.ts";
import { freshDatabase, type TestDatabase } from "./stores.ts";

const stops = new AsyncDisposableStack();
let database: TestDatabase;
let url: string;
let authorityFile: string;

beforeAll(async () => {
  database = await freshDatabase();
  stops.defer(() => database.drop());
  const servers = await tlsServers(stops);
  ({ authorityFile } = servers);
  const nodes: Redis[] = [];
  for (const slots of [
    [0, 8_191],
    [8_192, 16_383],
  ]) {
    const [port, busPort] = [await freePort(), await freePort()];
    servers.start({
      ...servers.settings,
      "tls-port": String(port),
      "cluster-port": String(busPort),
      "tls-cluster": "yes",
      "cluster-enabled": "yes",
      "cluster-config-file": `nodes-${port}.conf`,
      "cluster-announce-hostname": "localhost",
      "cluster-preferred-endpoint-type": "hostname",
      save: "",
    });
    const node = servers.client(port);
    await node.call("CLUSTER", "ADDSLOTSRANGE", ...slots);
    nodes.push(node);
    if (nodes.length > 1) await nodes[0]!.cluster("MEET", "127.0.0.1", port, busPort);
    url = `rediss-cluster://localhost:${port}`;
  }
  const isWhole = async (node: Redis) =>
    (await node.cluster("INFO")).includes("cluster_state:ok") &&
    (await node.cluster("SLOTS")).length === nodes.length;
  await waitFor("a cluster of two", async () => (await Promise.all(nodes.map(isWhole))).every(Boolean));
}, 60_000);
afterAll(() => stops.disposeAsync());

const stores = () => ({ DATABASE_URL: database.url, REDIS_URL: url });

test("with the authority's certificate every shard is read, by the nodes' names", async () => {
  const [code, said] = await reconcile({ ...stores(), NODE_EXTRA_CA_CERTS: authorityFile });
  expect(said).toContain("exact: 0 accounts");
  expect(code).toBe(0);
}, 60_000);

test("without it no node is believed", async () => {
  const [code, said] = await reconcile(stores());
  expect(said).toContain("Redis is not reachable");
  expect(code).toBe(2);
}, 60_000);
