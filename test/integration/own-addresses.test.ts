/** Rule 8.6 on one machine: no policy opens a listener of the product to web_fetch. */
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { startProduct, temporaryFolder, type Product } from "./product.ts";

const folder = temporaryFolder();
const data = join(folder.path, "data");
const manifests = join(folder.path, "manifests");
let product: Product;
let ports: { readonly api: string; readonly ops: string; readonly demo: string };
beforeAll(async () => {
  cpSync(resolve(import.meta.dirname, "../../hack/demo"), manifests, { recursive: true });
  product = await startProduct({ manifests, data });
  const [demo = "9400"] = /(?<=demo's models are at http:\/\/127\.0\.0\.1:)\d+/.exec(product.output()) ?? [];
  ports = { api: new URL(product.url).port, ops: new URL(product.opsUrl).port, demo };
  const file = join(manifests, "tools.yaml");
  const opened = `{ allowCIDRs: [127.0.0.0/8], allowPorts: [9400, ${ports.api}, ${ports.ops}] }`;
  const text = readFileSync(file, "utf8");
  const changed = text.replace("{ allowCIDRs: [127.0.0.1/32], allowPorts: [9400] }", opened);
  expect(changed).not.toBe(text);
  // Where the port is taken, a copy is served, in which the port stands alone in its list.
  writeFileSync(file, changed.replace("[9400, ", `[${ports.demo}, `));
  await vi.waitFor(async () => {
    const dump = await (await fetch(`${product.opsUrl}/config/dump`)).text();
    expect(dump).toContain(`"allowPorts":[${ports.demo},${ports.api},${ports.ops}]`);
  }, 20_000);
});
afterAll(async () => {
  await product?.stop();
  folder[Symbol.dispose]();
});

async function open(url: string): Promise<unknown> {
  const apiKey = readFileSync(join(data, "secrets", "default", "demo-key", "api-key"), "utf8").trim();
  const anthropic = new Anthropic({ baseURL: product.url, apiKey, maxRetries: 2 });
  const message = await anthropic.messages.create({
    model: "demo-chat",
    max_tokens: 1_000,
    messages: [{ role: "user", content: `Open ${url}` }],
    tools: [{ type: "web_fetch_20250910", name: "web_fetch" }],
  });
  return message.content.find(({ type }) => type === "web_fetch_tool_result");
}

test("the finding: with loopback and the port allowed, the ops port's /config/dump stays closed", async () => {
  const refused = { content: { error_code: "url_not_accessible" } };
  expect(await open(`http://127.0.0.1:${ports.ops}/config/dump`)).toMatchObject(refused);
  expect(await open(`http://127.0.0.1:${ports.api}/v1/models`)).toMatchObject(refused);
  // The policy itself is in force.
  expect(await open(`http://127.0.0.1:${ports.demo}/pages/gapura`)).toMatchObject({
    content: { type: "web_fetch_result" },
  });
});
