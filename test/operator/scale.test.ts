/**
 * Many routes on a real API server. GAPURA_SCALE_ROUTES sets how many (10,000 for the figures of
 * docs/performance.md); rule 6.11 speaks of 1,000.
 */
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { parseRss, parseStat } from "../bench/proc.ts";
import { ApiProxy } from "./api-proxy.ts";
import { KubeClient, type KubeObject } from "./kube-client.ts";
import { conditionText, type OperatorProcess, startOperator, TestPod } from "./kube-world.ts";
import { Objects, priceSpec, routeSpec } from "./objects.ts";

const access = inject("kube");
const namespace = "operator-scale";
const ROUTES = Number(process.env["GAPURA_SCALE_ROUTES"] ?? "1000");
const TABLE = 200;
/** The goal is 500 MiB for 10,000 routes: 25 KiB for each, beside what an empty operator takes. */
const MOST_RSS_MIB = 250 + ROUTES / 40;
const AT_ONCE = 24;
/** With it figures are printed. */
const say = (line: string) => process.stderr.write(`scale, ${ROUTES} routes: ${line}\n`);

const routeName = (number: number) => `m-${number}`;
const pages = Math.ceil(ROUTES / TABLE);

describe.skipIf(access === null)(`${ROUTES} routes`, () => {
  let client: KubeClient;
  let objects: Objects;
  let proxy: ApiProxy;
  let operator: OperatorProcess;
  let pod: TestPod;

  const cpuMs = () => parseStat(readFileSync(`/proc/${operator.child.pid}/stat`, "utf8")).cpuMicros / 1000;
  const rssMiB = () => parseRss(readFileSync(`/proc/${operator.child.pid}/status`, "utf8")) / 1024 / 1024;
  const statusWrites = () => proxy.writes.filter(({ path }) => path.endsWith("/status")).length;
  const otherWrites = () =>
    proxy.writes.filter(({ path }) => !path.endsWith("/status") && !path.includes("/leases")).length;
  const urlOf = (number: number) =>
    pod.loader.current?.routing.routes.find(({ model }) => model === routeName(number))?.upstreams[0]?.url;
  const spec = (number: number, host: string) => ({
    ...routeSpec(`https://${host}`),
    priceTableRef: { name: `prices-${number % pages}` },
  });
  /** How many routes are Ready in their present generation. */
  const ready = async (): Promise<number> => {
    let count = 0;
    let next = "";
    do {
      const query = `?limit=500${next === "" ? "" : `&continue=${next}`}`;
      const list = (await client.must("GET", `${objects.path("ModelRoute")}${query}`)) as unknown as {
        metadata: { continue?: string };
        items: KubeObject[];
      };
      count += list.items.filter((object) => conditionText(object, "Ready").startsWith("True")).length;
      next = list.metadata.continue ?? "";
    } while (next !== "");
    return count;
  };
  const untilReady = (count: number, timeoutMs: number) =>
    client.until(
      `${count} routes are ready`,
      async () => (await sleep(1000), await ready()) === count,
      timeoutMs,
    );
  const untilQuiet = async () => {
    for (let before = -1; before !== statusWrites();) {
      before = statusWrites();
      await sleep(2000);
    }
  };

  beforeAll(async () => {
    if (access === null) throw new Error("there is no API server");
    client = new KubeClient(access);
    objects = new Objects(client, namespace, () => operator.output());
    await client.makeNamespace(namespace);
    await objects.applySecret("provider", { "api-key": "the-key" });
    for (let page = 0; page < pages; page += 1) {
      const models = Array.from({ length: TABLE }, (_, row) => routeName(row * pages + page));
      await objects.apply("PriceTable", `prices-${page}`, priceSpec(...models));
    }
    const numbers = Array.from({ length: ROUTES }, (_, number) => number).values();
    const declare = async () => {
      for (const number of numbers)
        await objects.apply("ModelRoute", routeName(number), spec(number, "one.example"));
    };
    const startedAt = performance.now();
    await Promise.all(Array.from({ length: AT_ONCE }, declare));
    say(`declared in ${Math.round(performance.now() - startedAt)} ms`);
    proxy = await ApiProxy.open(access);
    pod = new TestPod(client, namespace, "data-plane-0");
    await pod.start();
    await pod.setReady(true);
    operator = startOperator(proxy, namespace, "operator-0");
  }, 900_000);
  afterAll(async () => {
    operator.child.kill("SIGKILL");
    await operator.ended;
    await pod.stop();
    await proxy.close();
    await client.close();
  });

  test("rule 6.11: all of them are Ready in time, for at most four status writes each on average", async () => {
    const startedAt = performance.now();
    await untilReady(ROUTES, 120_000 * Math.max(1, ROUTES / 1000));
    await untilQuiet();
    say(
      `ready after ${Math.round(performance.now() - startedAt)} ms, ${statusWrites()} status writes, ` +
        `${otherWrites()} others, ${proxy.calls.length} calls, CPU ${Math.round(cpuMs())} ms, ` +
        `RSS ${Math.round(rssMiB())} MiB`,
    );
    expect(statusWrites()).toBeLessThanOrEqual(4 * ROUTES);
    expect(rssMiB()).toBeLessThan(MOST_RSS_MIB);
  }, 1_200_000);

  test("an edit of one route is served soon, costs few calls, and no status but its own is written", async () => {
    const [calls, writes, cpu] = [proxy.calls.length, statusWrites(), cpuMs()];
    const times: number[] = [];
    const published: number[] = [];
    const EDITS = 5;
    for (let round = 0; round < EDITS; round += 1) {
      const startedAt = performance.now();
      await objects.apply("ModelRoute", routeName(1), spec(1, `edit-${round}.example`));
      while (urlOf(1)?.includes(`edit-${round}.`) !== true) {
        if (performance.now() - startedAt > 30_000) throw new Error(operator.output().slice(-2000));
        await sleep(10);
      }
      times.push(Math.round(performance.now() - startedAt));
      const last = proxy.writes.findLast(
        ({ path, body }) => path.includes("/secrets/") && body.includes("index.json"),
      );
      published.push(Math.round((last?.answeredAt ?? Infinity) - startedAt));
      await objects.untilCondition("ModelRoute", routeName(1), "Programmed", /^True Programmed: 1\/1 pods$/);
    }
    await untilQuiet();
    const cost = proxy.calls.slice(calls).filter(({ path }) => !path.includes("/leases"));
    say(
      `an edit is published after ${published.join(", ")} ms, served after ${times.join(", ")} ms; ${EDITS} edits cost ${Math.round(cpuMs() - cpu)} ms of CPU ` +
        `and ${cost.length} calls; RSS ${Math.round(rssMiB())} MiB`,
    );
    expect(times.toSorted((one, other) => one - other)[0]).toBeLessThan(10_000);
    expect(statusWrites() - writes).toBeLessThanOrEqual(3 * EDITS);
    // Snapshot Secrets, pokes, statuses; a verification may fall in between.
    expect(cost.length).toBeLessThan(EDITS * 25 + 50);
    expect(rssMiB()).toBeLessThan(MOST_RSS_MIB);
  }, 200_000);

  test("the slot of the last serial is emptied once the next one is acknowledged", async () => {
    const index = async (slot: string) =>
      (await objects.secret(`gapura-${slot}-0`))?.[`${slot}-index.json`] !== undefined;
    const holdOne = async () => (await index("a")) !== (await index("b"));
    await expect.poll(holdOne, { timeout: 40_000 }).toBe(true);
  });
});
