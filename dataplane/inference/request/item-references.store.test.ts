/** Who may refer to what. Libraries that do, over many steps: test/integration/client-libraries.test.ts. */
import type { RedisStore } from "../../store/redis-servers.ts";
import type { Dispatcher } from "undici";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { callOf, routeTo, snapshotOf, upstreamOf } from "../../../test/fakes/inference.ts";
import type { Part, Step } from "../../../test/fakes/upstream/script.ts";
import { startUpstream, type FakeUpstream } from "../../../test/fakes/upstream/server.ts";
import { freshRedis, type TestStore } from "../../../test/integration/stores.ts";
import { dialects } from "../../dialects/dialect.ts";
import { sealing } from "../../lib/seal.ts";
import { openRedis, redisReady } from "../../store/redis.ts";
import { redisToolCache } from "../../tools/cache.ts";
import { Upstreams } from "../../upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../../upstream/dispatcher.ts";
import { withItemReferences } from "./item-references.ts";
import { createServe } from "../serve.ts";
import type { Serve } from "../call.ts";
import { noTools } from "../../../test/fakes/no-tools.ts";

let store: TestStore;
let redis: RedisStore;
let fake: FakeUpstream;
let dispatcher: Dispatcher;
let serve: Serve;
const routes = () =>
  dialects.map((dialect) =>
    routeTo([upstreamOf(fake.url, dialect)], { model: `over-${dialect}`, aliases: [] }),
  );

beforeAll(async () => {
  store = await freshRedis();
  redis = openRedis(store.url, { onError: () => undefined });
  await redisReady(redis, 5_000);
  fake = await startUpstream();
  dispatcher = newUpstreamDispatcher();
  const sealerOf = sealing([{ id: "test", key: Buffer.alloc(32) }]);
  serve = withItemReferences(
    createServe(new Upstreams(dispatcher), sealerOf, noTools),
    redisToolCache(redis),
  );
});
beforeEach(() => fake.reset());
afterAll(async () => {
  await dispatcher.destroy();
  await fake.close();
  redis.disconnect();
  await store.stop();
});

const step = (...parts: Part[]): Step => ({ answer: { parts } });
const ask = (body: object, organizationId = "org_a") => {
  const call = callOf("responses", snapshotOf(routes()), body);
  return { ...call, principal: { ...call.principal, organizationId } };
};

async function itemOf(body: object): Promise<string> {
  fake.next(step({ type: "text", text: "Kept?" }));
  const call = ask({ model: "over-chat", input: "Hi", ...body });
  await serve(call);
  const { output } = JSON.parse(call.sink.text) as { output: { id: string }[] };
  return output[0]?.id ?? "";
}
const referring = (...ids: string[]) => ({
  model: "over-chat",
  input: [...ids.map((id) => ({ type: "item_reference", id })), { role: "user", content: "And?" }],
});

describe("rule 2.16: item_reference", () => {
  test("resolves to the organization's own item", async () => {
    const id = await itemOf({});
    fake.reset();
    fake.next(step({ type: "text", text: "Yes." }));
    await serve(ask(referring(id)));
    expect(JSON.stringify(fake.requests[0]?.json())).toContain("Kept?");
  });

  test.each([false, true])("keeps what the client did not ask to see (stream: %s)", async (stream) => {
    fake.next(step({ type: "thinking", text: "Hm.", signature: "c2ln" }, { type: "text", text: "Kept." }));
    const call = ask({ model: "over-messages", input: "Hi", stream });
    await serve(call);
    expect(call.sink.text).not.toContain("encrypted_content");
    const ids = ["rs", "msg"].map(
      (kind) => new RegExp(`"id":"(${kind}_\\w+)"`).exec(call.sink.text)?.[1] ?? "",
    );
    fake.reset();
    fake.next(step({ type: "text", text: "Yes." }));
    await serve(ask({ ...referring(...ids), model: "over-messages" }));
    expect(fake.requests[0]?.text).toContain('"thinking":"Hm.","signature":"c2ln"');
  });

  test.each([
    ["with store:false", { store: false }],
    ["of another organization", {}],
    ["that never was", {}],
  ])("one %s is refused before any upstream call, naming what to do", async (which, body) => {
    const id = which === "that never was" ? "msg_never" : await itemOf(body);
    fake.reset();
    const call = ask(referring(id), which === "of another organization" ? "org_b" : "org_a");
    await expect(serve(call)).rejects.toMatchObject({
      kind: { status: 400 },
      message: expect.stringMatching(/item_reference.*store: false/) as string,
    });
    expect(fake.requests).toHaveLength(0);
  });
});
