/**
 * A rolling update as the chart makes it: a new pod becomes ready, an old one is taken out of service and ends. Under
 * load over kept-alive connections, through a network that takes its time, no request and no long stream fails.
 */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Agent, request } from "undici";
import { render } from "../charts/helm.ts";
import { stores as values } from "../charts/matrix.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { ChartPod, storeSecrets, writeSnapshot } from "../integration/chart-pod.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "../integration/stores.ts";

/** One way through the network. */
const DELAY_MS = 15;
/** A second instead of ten: everything else that the chart counts on is shortened alike. */
const SCALE = 0.1;
/** How long after its end was decided a pod still gets connections; the pre-stop pause is there to outlast it. */
const ENDPOINTS_LAG_MS = 500;
const LONG_STREAM_EVENTS = 60;

/** A Service: each connection goes to one ready pod and stays there. */
class Service {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  endpoints: readonly number[] = [];
  #turn = 0;

  constructor() {
    this.#server = createServer((client) => this.#forward(client));
  }

  async start(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #forward(client: Socket): void {
    this.#turn += 1;
    const port = this.endpoints[this.#turn % this.endpoints.length];
    if (port === undefined) return void client.resetAndDestroy();
    const pod = connect({ host: "127.0.0.1", port });
    for (const [from, to] of [
      [client, pod],
      [pod, client],
    ] as const) {
      this.#sockets.add(from);
      from.setNoDelay(true);
      from.on("data", (chunk: Buffer) => setTimeout(() => to.writable && to.write(chunk), DELAY_MS));
      from.on("end", () => setTimeout(() => to.end(), DELAY_MS));
      from.on("error", () => setTimeout(() => to.destroy(), DELAY_MS));
      from.on("close", () => this.#sockets.delete(from));
    }
  }
}

let folder: string;
let upstream: FakeUpstream;
let database: TestDatabase;
let redis: TestStore;
const service = new Service();
const pods = new Set<ChartPod>();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "gapura-rolling-"));
  [database, redis] = await Promise.all([freshDatabase(), freshRedis()]);
  upstream = await startUpstream({
    fallback: ({ question }) => ({
      answer: {
        parts: [{ type: "text", text: "word ".repeat(question === "long" ? LONG_STREAM_EVENTS : 3) }],
      },
      faults: { delayBetweenEventsMs: question === "long" ? 50 : 2 },
    }),
  });
  await writeSnapshot(join(folder, "snapshot"), upstream.url);
});
afterAll(async () => {
  service.stop();
  for (const pod of pods) await pod.kill();
  await upstream?.close();
  await redis?.[Symbol.asyncDispose]();
  await database?.drop();
  await rm(folder, { recursive: true, force: true });
});

test("two pods are replaced one after the other, and no request fails", async () => {
  const rendered = await render(values);
  const start = async () => {
    const pod = await ChartPod.start({
      rendered,
      secrets: storeSecrets(database.url, redis.url),
      snapshot: join(folder, "snapshot"),
      temporary: folder,
    });
    pods.add(pod);
    await pod.ready();
    return pod;
  };
  let running: readonly ChartPod[] = await Promise.all([start(), start()]);
  const serve = () => (service.endpoints = running.map(({ ports }) => ports["http"] ?? 0));
  serve();
  const url = await service.start();
  const tally = { short: 0, long: 0, failures: [] as string[] };
  const stop = new AbortController();
  const load = [
    ...Array.from({ length: 4 }, (_, n) => work(url, n % 2 === 0 ? "whole" : "stream", tally, stop.signal)),
    ...Array.from({ length: 3 }, () => work(url, "long", tally, stop.signal)),
  ];
  await sleep(500);
  const exits: (number | null)[] = [];
  for (const old of running) {
    const fresh = await start();
    running = [...running.filter((pod) => pod !== old), fresh];
    void sleep(ENDPOINTS_LAG_MS).then(serve);
    exits.push(await old.terminate(SCALE));
  }
  await sleep(500);
  stop.abort();
  await Promise.all(load);
  expect(tally.failures).toEqual([]);
  expect(exits).toEqual([0, 0]);
  expect(tally.short).toBeGreaterThan(20);
  expect(tally.long).toBeGreaterThan(3);
  // Every pod has served: the old ones until their end, the new ones from then on.
  for (const pod of pods) expect(pod.output()).toMatch(/"status":200/);
}, 240_000);

interface Tally {
  short: number;
  long: number;
  readonly failures: string[];
}

/** Sends one request after the other over one kept-alive connection, with the pauses of a client that thinks. */
async function work(url: string, kind: Kind, tally: Tally, stopped: AbortSignal): Promise<void> {
  const agent = new Agent({ connections: 1, keepAliveTimeout: 60_000 });
  try {
    while (!stopped.aborted) {
      const failure = await askAgain(agent, url, kind).catch(
        (error: unknown) => `${kind}: ${error instanceof Error ? error.message : String(error)}`,
      );
      if (failure !== null) tally.failures.push(failure);
      else if (kind === "long") tally.long += 1;
      else tally.short += 1;
      await sleep(Math.random() * 150);
    }
  } finally {
    await agent.destroy();
  }
}

/** A starved machine makes a data plane say "come back in a second": a client does, as its library would. */
async function askAgain(agent: Agent, url: string, kind: Kind): Promise<string | null> {
  for (let attempt = 1; ; attempt += 1) {
    const failure = await ask(agent, url, kind);
    if (attempt === 30 || failure?.includes("503") !== true || !failure.includes("overloaded"))
      return failure;
    await sleep(1000);
  }
}

type Kind = "whole" | "stream" | "long";

/** @returns what was wrong with the answer; null: nothing. */
async function ask(agent: Agent, url: string, kind: Kind): Promise<string | null> {
  const answer = await request(`${url}/v1/messages`, {
    dispatcher: agent,
    method: "POST",
    headers: { "x-api-key": sampleKeys.inference, "content-type": "application/json" },
    body: JSON.stringify({
      model: "m",
      max_tokens: 100,
      stream: kind !== "whole",
      messages: [{ role: "user", content: kind === "long" ? "long" : "hello" }],
    }),
  });
  const text = await answer.body.text();
  if (answer.statusCode !== 200) return `${kind}: ${answer.statusCode} ${text.slice(0, 200)}`;
  const words = text.match(/word/g)?.length ?? 0;
  const complete = kind === "whole" ? text.endsWith("}") : text.includes("event: message_stop");
  const wanted = kind === "long" ? LONG_STREAM_EVENTS : 3;
  return complete && words === wanted ? null : `${kind}: cut after ${words} words`;
}
