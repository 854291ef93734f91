/**
 * Upstreams as they stand in other people's networks, declared in YAML and asked by the running product: the
 * addresses, queries and headers of Azure, Gemini and vLLM, TLS under a private authority, and three of which one
 * fails and one stalls, with nothing left behind in the product or its stores.
 */
import { appendFileSync, writeFileSync } from "node:fs";
import { connect, type AddressInfo } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createServer, type Server } from "node:tls";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { privateAuthority, type Certificate } from "../fakes/certificate.ts";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../fakes/upstream/server.ts";
import {
  fetchServed,
  readKeys,
  startProduct,
  temporaryFolder,
  writeManifests,
  type Product,
} from "./product.ts";

const folder = temporaryFolder();
const manifests = join(folder.path, "manifests");
const data = join(folder.path, "data");
let upstream: FakeUpstream;
let product: Product;
const tls: Server[] = [];
/** One that answers, one that fails every second time, one that accepts and says nothing. */
let trio: FakeUpstream[] = [];

/** HTTPS in front of the upstream. @returns its origin. */
async function terminate({ key, cert }: Certificate): Promise<string> {
  const server = createServer({ key, cert }, (client) => {
    const behind = connect(upstream.port, "127.0.0.1");
    for (const socket of [client, behind])
      socket.on("error", () => client.destroy().on("close", () => behind.destroy()));
    client.pipe(behind).pipe(client);
  });
  server.on("tlsClientError", () => {});
  tls.push(server);
  await new Promise<void>((listening) => void server.listen(0, "127.0.0.1", listening));
  return `https://localhost:${(server.address() as AddressInfo).port}`;
}

/** Each model's only upstream, as in the YAML of a ModelRoute. */
const declared = (secure: string, foreign: string, misnamed: string): Record<string, string> => ({
  trio: trio.map(({ url }, n) => `{name: u${n}, dialect: ChatCompletions, baseURL: "${url}"}`).join(", "),
  azure: `{name: azure, dialect: ChatCompletions, baseURL: "${upstream.url}/", model: gpt,
    path: /openai/deployments/prod-1/chat/completions, query: {api-version: "2026-06-01", "a b": "c&d"},
    credentials: {secretKeyRef: {name: upstream, key: api-key}, header: Api-Key}, headers: {X-Team: ml}}`,
  gemini: `{name: gemini, dialect: ChatCompletions, baseURL: "${upstream.url}", model: gemini-pro,
    path: /v1beta/openai/chat/completions, credentials: {secretKeyRef: {name: upstream, key: api-key}}}`,
  vllm: `{name: vllm, dialect: ChatCompletions, baseURL: "${upstream.url}", model: org/served-name}`,
  proxied: `{name: proxied, dialect: Messages, baseURL: "${upstream.url}/anthropic", model: opus,
    credentials: {secretKeyRef: {name: upstream, key: api-key}, header: Authorization},
    headers: {Anthropic-Version: "2027-01-01", User-Agent: acme/1, Accept: application/x-acme}}`,
  trusted: `{name: trusted, dialect: ChatCompletions, baseURL: "${secure}"}`,
  foreign: `{name: foreign, dialect: ChatCompletions, baseURL: "${foreign}"}`,
  misnamed: `{name: misnamed, dialect: ChatCompletions, baseURL: "${misnamed}"}`,
});

function writeRoutes(upstreams: Readonly<Record<string, string>>): void {
  const route = (model: string, entry: string) => `---
apiVersion: gapura.dev/v1alpha1
kind: ModelRoute
metadata: {name: ${model}}
spec:
  limits: {contextTokens: 100000, maxOutputTokens: 4096}
  priceTableRef: {name: addresses}
  upstreams: [${entry}]
  timeouts: {firstByte: 2s}
  retries: {attempts: 3}
`;
  const prices = `---
apiVersion: gapura.dev/v1alpha1
kind: PriceTable
metadata: {name: addresses}
spec:
  unit: Credit
  models: [${Object.keys(upstreams)
    .map((model) => `{model: ${model}, input: "3", output: "15"}`)
    .join(", ")}]
`;
  writeFileSync(join(manifests, "addresses.yaml"), prices);
  for (const [model, entry] of Object.entries(upstreams))
    appendFileSync(join(manifests, "addresses.yaml"), route(model, entry));
}

beforeAll(async () => {
  upstream = await startUpstream();
  let turn = 0;
  const answer = text("one two three", { input: 10, output: 3 });
  trio = await Promise.all([
    startUpstream({ fallback: () => answer }),
    startUpstream({ fallback: () => (turn++ % 2 === 0 ? { error: { status: 500 } } : answer) }),
    startUpstream({ fallback: () => withFaults(answer, { hang: true }) }),
  ]);
  const own = privateAuthority("Acme Internal CA");
  const bundle = join(folder.path, "acme-ca.pem");
  writeFileSync(bundle, own.cert);
  writeManifests(manifests, upstream.url);
  writeRoutes(
    declared(
      await terminate(own.issue(["localhost"])),
      await terminate(privateAuthority("Somebody else").issue(["localhost"])),
      await terminate(own.issue(["elsewhere.acme.test"])),
    ),
  );
  product = await startProduct({ manifests, data, environment: { NODE_EXTRA_CA_CERTS: bundle } });
});
afterAll(async () => {
  await product?.stop();
  for (const server of tls) server.close();
  await Promise.all([upstream, ...trio].map((one) => one.close()));
  folder[Symbol.dispose]();
});

const ask = (model: string, more: object = {}) =>
  fetchServed(`${product.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${readKeys(data).inference}`, "content-type": "application/json" },
    body: JSON.stringify({ model, messages: [{ role: "user", content: "hi" }], ...more }),
  });

describe("an upstream is asked at exactly the address that is declared for it", () => {
  test.each([
    [
      "azure",
      "/openai/deployments/prod-1/chat/completions?api-version=2026-06-01&a+b=c%26d",
      "gpt",
      { "api-key": "provider-key-of-acme", "x-team": "ml", authorization: undefined },
    ],
    [
      "gemini",
      "/v1beta/openai/chat/completions",
      "gemini-pro",
      { authorization: "Bearer provider-key-of-acme" },
    ],
    ["vllm", "/v1/chat/completions", "org/served-name", { authorization: undefined, "x-api-key": undefined }],
    [
      "proxied",
      "/anthropic/v1/messages",
      "opus",
      {
        authorization: "Bearer provider-key-of-acme",
        "x-api-key": undefined,
        "anthropic-version": "2027-01-01",
        "user-agent": "acme/1",
        accept: "application/x-acme",
      },
    ],
  ])("%s", async (model, path, name, headers) => {
    for (const stream of [false, true]) {
      upstream.reset();
      const answer = await ask(model, { stream });
      expect([answer.status, (await answer.text()).includes(`"model":"${model}"`)]).toEqual([200, true]);
      const request = await upstream.arrived(1);
      expect(request).toMatchObject({ path, method: "POST" });
      expect(request.json()).toMatchObject({ model: name });
      for (const [header, value] of Object.entries(headers)) expect(request.headers[header]).toBe(value);
    }
  });
});

describe("TLS", () => {
  test("an authority named in NODE_EXTRA_CA_CERTS is trusted", async () => {
    upstream.reset();
    const answer = await ask("trusted");
    expect(answer.status).toBe(200);
    await answer.arrayBuffer();
    expect(upstream.requests).toHaveLength(1);
  });

  test.each(["foreign", "misnamed"])(
    "a certificate that does not hold (%s) is a Connect fault: nothing is sent, the client hears no detail",
    async (model) => {
      upstream.reset();
      const answer = await ask(model);
      const body = await answer.text();
      expect([answer.status, body.includes("upstream_error")]).toEqual([502, true]);
      expect(body).not.toMatch(/localhost|certificate|acme/i);
      expect(upstream.requests).toHaveLength(0);
      const metrics = await (await fetch(`${product.opsUrl}/metrics`)).text();
      const line = `gapura_upstream_requests_total{model="${model}",upstream="${model}",status="connect"} 3`;
      expect(metrics).toContain(line);
    },
  );
});

test("with one upstream failing and one stalling every client is served, paid for once, and nothing is left behind", async () => {
  const requests = 200;
  const perSecond = 50;
  const ended: Promise<string>[] = [];
  for (let n = 0; n < requests; n += 1) {
    const stream = n % 2 === 0;
    // A conversation of its own each, so that they spread over the three.
    const asked = ask("trio", { stream, messages: [{ role: "user", content: `question ${n}` }] });
    ended.push(
      asked.then(async (answer) => {
        const body = await answer.text();
        const whole = stream ? /"finish_reason":"stop"[^]*\[DONE\]/ : /"completion_tokens":3/;
        return answer.status === 200 && whole.test(body) ? "whole" : `${answer.status} ${body.slice(-200)}`;
      }),
    );
    await sleep(1_000 / perSecond);
  }
  expect(new Set(await Promise.all(ended))).toEqual(new Set(["whole"]));
  const metric = async (name: string) => {
    const lines = (await (await fetch(`${product.opsUrl}/metrics`)).text()).split("\n");
    return lines.filter((line) => line.startsWith(name)).map((line) => Number(line.split(" ").at(-1)));
  };
  await expect.poll(() => metric("gapura_holds ")).toEqual([0]);
  await expect.poll(() => metric('gapura_upstream_active_requests{model="trio"')).toEqual([0, 0, 0]);
  await expect.poll(() => trio[2]?.connections().open).toBe(0);
  const tokens = await metric('gapura_tokens_total{model="trio",kind="output"}');
  expect(tokens).toEqual([3 * requests]);
  const credits = await fetch(`${product.url}/v1/organization/credits`, {
    headers: { authorization: `Bearer ${readKeys(data).admin}` },
  });
  expect(await credits.json()).toMatchObject({ held: expect.stringMatching(/^0(\.0+)?$/) as string });
});
