import { createServer, type Server } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { routeTo, snapshotOf, upstreamOf } from "../../../test/fakes/inference.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { ByteBudget } from "../../lib/byte-budget.ts";
import { Upstreams } from "../../upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../../upstream/dispatcher.ts";
import { askModelOf } from "./ask-model.ts";

const asked: { path: string; body: unknown; key: string | undefined; version: string | undefined }[] = [];
let status = 200;
let answerText = "";
let server: Server;
let baseUrl = "";
const budget = new ByteBudget(4 * 1024 * 1024);
const dispatcher = newUpstreamDispatcher();

beforeAll(async () => {
  server = createServer((request, response) => {
    void json(request).then((body) => {
      const { "x-api-key": key, "anthropic-version": version } = request.headers;
      asked.push({ path: request.url ?? "", body, key: key?.toString(), version: version?.toString() });
      response.writeHead(status, { "content-type": "application/json" }).end(answerText);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  await dispatcher.destroy();
  server.close();
});

function ask(
  dialect: Dialect,
  model = "public-model",
  lease = budget.lease("org_a"),
): Promise<{ dialect: Dialect; body: unknown }> {
  const upstream = upstreamOf(baseUrl, dialect, { credential: { id: "k", header: "x-api-key" } });
  const snapshot = snapshotOf([routeTo([upstream])], ["*"], { k: "s3cret" });
  const askModel = askModelOf(snapshot, new Upstreams(dispatcher), lease, "org_a");
  return askModel(model, (to) => ({ model: "never sent", spoken: to }), AbortSignal.timeout(5_000));
}

describe("the Model engine's question", () => {
  test.each<[Dialect, string, string | undefined]>([
    ["messages", "/v1/messages", "2023-06-01"],
    ["chat", "/v1/chat/completions", undefined],
    ["responses", "/v1/responses", undefined],
  ])(
    "goes to a %s upstream in its own dialect, under the route's model and key",
    async (dialect, path, version) => {
      answerText = '{"content": []}';
      expect(await ask(dialect)).toEqual({ dialect, body: { content: [] } });
      expect(asked.at(-1)).toEqual({
        path,
        body: { model: "upstream-model", spoken: dialect },
        key: "s3cret",
        version,
      });
    },
  );

  test("its answer is counted as it comes, and fails without room, or with too many values", async () => {
    answerText = JSON.stringify({ content: [], filler: "a".repeat(1_000_000) });
    const lease = budget.lease("org_a");
    const receive = vi.spyOn(lease, "receive");
    await expect(ask("chat", "public-model", lease)).resolves.toMatchObject({ body: { content: [] } });
    const counted = receive.mock.calls.reduce((sum, [bytes]) => sum + bytes, 0);
    expect(counted).toBeGreaterThan(900_000);
    expect(budget.used).toBe(0);
    const others = budget.lease("org_other");
    others.take(3_500_000);
    await expect(ask("chat")).rejects.toThrow("exhausted");
    expect(budget.used).toBe(3_500_000);
    others.release();
    answerText = `{"content":[${"0,".repeat(20_000)}0]}`;
    await expect(ask("chat")).rejects.toThrow("JSON of more than 10000 values");
  });

  test("a model that is not served, an upstream that fails and one that does not speak JSON are errors", async () => {
    await expect(ask("chat", "unknown")).rejects.toThrow("not served");
    answerText = "<html>";
    await expect(ask("chat")).rejects.toThrow(/JSON/);
    status = 500;
    await expect(ask("chat")).rejects.toThrow(/provider/);
    status = 200;
  });
});
