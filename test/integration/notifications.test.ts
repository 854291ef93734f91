/** The whole product tells a receiver of a key's limit, as docs/billing.md says (rules 9.7, 9.8). */
import { readFileSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { join, resolve } from "node:path";
import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import { startUpstream } from "../fakes/upstream/server.ts";
import { text } from "../fakes/upstream/script.ts";
import { fetchServed, readKeys, startProduct, temporaryFolder, writeManifests } from "./product.ts";

const SECRET = `whsec_${Buffer.alloc(24, 9).toString("base64")}`;
const page = readFileSync(resolve(import.meta.dirname, "../../docs/billing.md"), "utf8");
/** The page's message. */
const example = JSON.parse(
  /```json\n(\{\n {2}"type": "credit.threshold"[\s\S]*?)```/.exec(page)?.[1] ?? "null",
) as { readonly data: Readonly<Record<string, unknown>> };

test("a key's spent limit is told once for each threshold, as the page says", async () => {
  using folder = temporaryFolder();
  const upstream = await startUpstream();
  upstream.model("upstream-chat", text("fine", { input: 1_000, output: 100 }));
  const came: { readonly headers: IncomingHttpHeaders; readonly body: string }[] = [];
  const receiver = createServer((incoming, response) => {
    let body = "";
    incoming.setEncoding("utf8").on("data", (piece: string) => (body += piece));
    incoming.on("end", () => {
      came.push({ headers: incoming.headers, body });
      // It is not well at first.
      response.writeHead(came.length === 1 ? 503 : 204).end();
    });
  });
  receiver.listen(0, "127.0.0.1");
  await once(receiver, "listening");
  const { port } = receiver.address() as AddressInfo;
  const [manifests, data] = [join(folder.path, "manifests"), join(folder.path, "data")];
  writeManifests(manifests, upstream.url);
  const file = join(manifests, "rest.yaml");
  writeFileSync(
    file,
    readFileSync(file, "utf8")
      .replace(
        "  apiKeys: [{name: ci,",
        `  hold: Typical
  notifications:
  - url: http://127.0.0.1:${port}/credit
    secretRef: {name: hooks, key: secret}
    allowCIDRs: [127.0.0.0/8]
    allowPorts: [${port}]
  apiKeys: [{name: ci, limits: {credits: {amount: "1", per: Month}},`,
      )
      .concat(
        `---\napiVersion: v1\nkind: Secret\nmetadata: {name: hooks}\nstringData: {secret: "${SECRET}"}\n`,
      ),
  );
  const product = await startProduct({ manifests, data });
  try {
    const { inference } = readKeys(data);
    // A thousand tokens at 96 micro-credits and a hundred at 480 make 0.144.
    const ask = async () => {
      const answer = await fetchServed(`${product.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${inference}`, "content-type": "application/json" },
        body: JSON.stringify({ model: "m-chat", messages: [{ role: "user", content: "Hello" }] }),
      });
      await answer.text();
      return answer.status;
    };
    for (let request = 0; request < 4; request += 1) expect(await ask()).toBe(200);
    await expect.poll(() => came.length, { timeout: 10_000 }).toBe(1);
    for (let request = 0; request < 3; request += 1) expect(await ask()).toBe(200);
    expect(await ask()).toBe(402);
    const messages = () =>
      came.map(({ headers, body }) => new Webhook(SECRET).verify(body, headers as Record<string, string>));
    await expect.poll(() => came.length, { timeout: 30_000 }).toBe(4);
    const told = messages() as (typeof example)[];
    expect(told.map(({ data }) => Number(data["threshold"])).toSorted((one, other) => one - other)).toEqual([
      50, 50, 80, 100,
    ]);
    expect(new Set(came.map(({ headers }) => headers["webhook-id"])).size).toBe(3);
    const half = told.find(({ data: { threshold } }) => threshold === 50);
    expect(half).toEqual({
      ...example,
      timestamp: expect.stringMatching(/Z$/),
      data: {
        ...example.data,
        id: expect.stringMatching(/^apikey_/),
        amount: "1",
        spent: "0.576",
        begins_anew_at: expect.stringMatching(/-01T00:00:00Z$/),
      },
    });
  } finally {
    await product.stop();
    receiver.closeAllConnections();
    receiver.close();
    await upstream.close();
  }
}, 240_000);
