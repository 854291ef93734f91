/** A real Prometheus scrapes a running data plane: every alert and every panel of the dashboard finds what it asks for. */
import { spawn, type ChildProcess } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { stringify } from "yaml";
import { z } from "zod";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePort } from "../../hack/free-port.ts";
import { stopProcess } from "../../hack/processes.ts";
import { prometheusTools } from "../../hack/prometheus.ts";
import { endWithUs } from "../../hack/reaper.ts";
import { alerts, alertsOf, dashboardQueries, metricsIn } from "../charts/queries.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import type { Step } from "../fakes/upstream/script.ts";
import { readKeys, startProduct, temporaryFolder, writeManifests, type Product } from "./product.ts";
import { freshDatabase, type TestDatabase } from "./stores.ts";

const say = (line: string) => process.stderr.write(`prometheus: ${line}\n`);
const tools = await prometheusTools(say).catch((error: unknown) => {
  say(`there is none (${String(error)}); these tests are skipped (apt-get install prometheus)`);
  return null;
});

/** Of these there is no series: nothing here calls a server tool, is refused or overloaded, and the operator is not scraped. */
const ABSENT = /gapura_(tool_calls|refused_requests|shed_requests|operator_)/;
const hello = [{ role: "user", content: "hello" }];
const scripted = (step: Step) => [{ role: "user", content: `{{script: ${JSON.stringify(step)}}}` }];

describe.skipIf(tools === null)("Prometheus beside a data plane", () => {
  const folder = temporaryFolder();
  const data = join(folder.path, "data");
  let upstream: FakeUpstream;
  let database: TestDatabase;
  let product: Product;
  let prometheus: ChildProcess;
  let address: string;

  const get = async (path: string, parameters: Record<string, string> = {}): Promise<unknown> => {
    const answer = await fetch(`${address}${path}?${new URLSearchParams(parameters)}`);
    return (await answer.json()) as unknown;
  };
  const post = async (path: string, body: object) => {
    const answer = await fetch(`${product.url}${path}`, {
      method: "POST",
      headers: { "x-api-key": readKeys(data).inference, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    await answer.text().catch(() => "");
    return answer.status;
  };
  const traffic = async () => {
    await post("/v1/messages", { model: "m-messages", max_tokens: 50, stream: true, messages: hello });
    await post("/v1/chat/completions", { model: "m-chat", messages: hello });
    await post("/v1/messages", { model: "m-responses", max_tokens: 50, messages: hello });
    const cut = scripted({
      answer: { parts: [{ type: "text", text: "a b c d" }] },
      faults: { cutAtEvent: 3 },
    });
    await post("/v1/messages", { model: "m-messages", max_tokens: 50, stream: true, messages: cut });
    const broken = scripted({ error: { status: 500, message: "no" } });
    await post("/v1/messages", { model: "m-responses", max_tokens: 50, messages: broken });
  };

  beforeAll(async () => {
    if (tools === null) return;
    upstream = await startUpstream();
    database = await freshDatabase();
    const manifests = join(folder.path, "manifests");
    writeManifests(manifests, upstream.url);
    product = await startProduct({
      manifests,
      data,
      environment: { DATABASE_URL: database.url, METRICS_ORGANIZATIONS: "true" },
    });
    await post("/v1/messages/batches", {
      requests: [{ custom_id: "a", params: { model: "m-chat", max_tokens: 50, messages: hello } }],
    });
    await traffic();
    const config = join(folder.path, "prometheus.yaml");
    const target = { targets: [new URL(product.opsUrl).host], labels: { namespace: "gw" } };
    const rules = join(folder.path, "alerts.yaml");
    writeFileSync(rules, alertsOf("gw", "gapura-ops"));
    writeFileSync(
      config,
      stringify({
        global: { scrape_interval: "1s", evaluation_interval: "1s" },
        rule_files: [rules],
        scrape_configs: [{ job_name: "gapura-ops", static_configs: [target] }],
      }),
    );
    const port = await freePort();
    address = `http://127.0.0.1:${port}`;
    prometheus = spawn(
      tools.prometheus.path,
      [
        `--config.file=${config}`,
        `--storage.tsdb.path=${join(folder.path, "tsdb")}`,
        `--web.listen-address=127.0.0.1:${port}`,
      ],
      { env: { ...process.env, ...tools.prometheus.environment }, stdio: "ignore" },
    );
    endWithUs(prometheus, "SIGTERM");
    await untilReady(address);
    // Something moves between the scrapes.
    for (let n = 0; n < 4; n += 1) {
      await traffic();
      await sleep(1000);
    }
  });
  afterAll(async () => {
    if (prometheus !== undefined) await stopProcess(prometheus, "SIGTERM", 10_000);
    await product?.stop();
    await database?.drop();
    await upstream?.close();
    folder[Symbol.dispose]();
  });

  test("rule 14.6: tells the balance and the spend of each organization, where that is wanted", async () => {
    const resultSchema = z.object({
      data: z.object({
        result: z.array(
          z.object({ metric: z.record(z.string(), z.string()), value: z.tuple([z.number(), z.string()]) }),
        ),
      }),
    });
    const query =
      'sum by (organization) ({__name__=~"gapura_organization_(balance_credits|spend_credits_total)"})';
    const sums = async () => {
      const { data: found } = resultSchema.parse(await get("/api/v1/query", { query }));
      return found.result.map(({ metric, value }) => [
        metric["organization"],
        Math.round(Number(value[1]) * 1e6),
      ]);
    };
    // All of its charges were made by this one process, so both together are what it was granted.
    await expect.poll(sums, { timeout: 40_000, interval: 500 }).toEqual([["default/acme", 1_000_000_000]]);
    const spent = resultSchema.parse(
      await get("/api/v1/query", { query: "gapura_organization_spend_credits_total > 0" }),
    );
    expect(spent.data.result).toHaveLength(1);
  }, 60_000);

  test("evaluates every alert without an error", async () => {
    const rulesSchema = z.object({
      data: z.object({
        groups: z.array(
          z.object({
            rules: z.array(
              z.object({ name: z.string(), health: z.string(), lastError: z.string().optional() }),
            ),
          }),
        ),
      }),
    });
    const rules = async () =>
      rulesSchema.parse(await get("/api/v1/rules")).data.groups.flatMap((group) => group.rules);
    const sound = alerts().map(({ alert }) => ({ name: alert, health: "ok" }));
    await expect.poll(rules, { timeout: 20_000 }).toEqual(sound);
  });

  test("knows every metric that the data plane's alerts and panels ask for", async () => {
    const asked = [...alerts(), ...dashboardQueries()].flatMap(({ expr }) => metricsIn(expr));
    const ours = asked.filter((name) => !name.startsWith("gapura_operator_"));
    const metadataSchema = z.object({ data: z.record(z.string(), z.unknown()) });
    const missing = async () => {
      const { data: known } = metadataSchema.parse(await get("/api/v1/metadata"));
      // It scrapes OpenMetrics, whose counters are families without the suffix of their samples.
      return ours.filter((name) => !Object.hasOwn(known, name.replace(/_total$/, "")));
    };
    await expect.poll(missing, { timeout: 20_000 }).toEqual([]);
  });

  test.each(dashboardQueries())("$panel: $expr", async ({ expr }) => {
    const resultSchema = z.object({ status: z.string(), data: z.object({ result: z.array(z.unknown()) }) });
    const ask = async () => {
      const { status, data: found } = resultSchema.parse(await get("/api/v1/query", { query: expr }));
      return `${status}, ${found.result.length > 0 ? "some" : "no"} series`;
    };
    const wanted = `success, ${ABSENT.test(expr) ? "no" : "some"} series`;
    await expect.poll(ask, { timeout: 15_000, interval: 500 }).toBe(wanted);
  });
});

async function untilReady(address: string): Promise<void> {
  const deadline = Date.now() + 30_000;
  while ((await fetch(`${address}/-/ready`).catch(() => null))?.ok !== true) {
    if (Date.now() > deadline) throw new Error("Prometheus does not get ready");
    await sleep(100);
  }
}
