import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { sampleKeys } from "../../test/fakes/sample-snapshot.ts";
import { startTestServer } from "../../test/fakes/test-server.ts";
import type { Serve } from "../inference/call.ts";
import type { Directory, Principal } from "../identity/principal.ts";
import { ApiError } from "../lib/api-error.ts";
import { ByteBudget } from "../lib/byte-budget.ts";
import { inferenceRoutes, type InferenceRoutesNeeds } from "./routes/inference.ts";
import { modelRoutes } from "./routes/models.ts";

const noMeter: InferenceRoutesNeeds["meter"] = {
  open: () => Promise.reject(new Error("not metered here")),
};
const inference = (serve: Serve) => inferenceRoutes({ meter: noMeter, serve });

test("an answer reaches the client with both request id headers and one log line without key or query", async () => {
  await using server = await startTestServer([
    inference(async (call) => {
      call.summary.model = "alpha";
      call.sink.start(200, { "content-type": "application/json" });
      call.sink.write(`{"got":${call.body.length},"id":"${call.id}"}`);
      call.sink.end();
    }),
    modelRoutes,
  ]);
  const response = await server.fetch("/v1/messages?beta=true", {
    method: "POST",
    body: '{"model":"alpha"}',
    headers: { "content-type": "application/json" },
  });
  const id = response.headers.get("request-id");
  expect([response.status, await response.json()]).toEqual([200, { got: 17, id }]);
  expect(id).toMatch(/^req_[0-9A-Za-z]{24}$/);
  expect(response.headers.get("x-request-id")).toBe(id);
  // Longer than any Ingress keeps an idle connection (design.md §4.7): 600 s is the longest known.
  expect(response.headers.get("keep-alive")).toBe("timeout=620");
  await expect.poll(() => server.logged.length).toBe(1);
  expect(server.logged[0]).toMatchObject({
    request_id: id,
    method: "POST",
    path: "/v1/messages",
    status: 200,
    model: "alpha",
  });
  expect(JSON.stringify(server.logged)).not.toMatch(new RegExp(`${sampleKeys.inference}|beta`));
});

test("what no route serves is answered in time and says whose it was, where that is known by then", async () => {
  let isAway = false;
  const never = new Promise<null>(() => {});
  const known = { keyId: "apikey_1", organizationId: "org_1" } as Principal;
  const directory: Directory = {
    knows: () => false,
    find: () => never,
    findQueued: () => (isAway ? never : Promise.resolve(known)),
    findAgain: () => never,
  };
  await using server = await startTestServer([modelRoutes], { services: { directory } });
  for (isAway of [false, true]) expect((await server.fetch("/v1/nothing")).status).toBe(404);
  await expect.poll(() => server.logged.length).toBe(2);
  expect(server.logged.map((line) => line["org"])).toEqual(["org_1", undefined]);
});

test("what a request takes of the bytes of bodies after its client has left is given back when it ends", async () => {
  const bodies = new ByteBudget(1024);
  const [left, ends] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let began = false;
  await using server = await startTestServer(
    [
      (app) =>
        app.get("/v1/work", { config: { access: "inference" } }, async (request) => {
          began = true;
          await left.promise;
          request.bodyLease.take(1000);
          await ends.promise;
          return {};
        }),
    ],
    { services: { bodies } },
  );
  const leaves = new AbortController();
  const asked = server.fetch("/v1/work", { signal: leaves.signal });
  await expect.poll(() => began).toBe(true);
  leaves.abort();
  await expect(asked).rejects.toThrow("aborted");
  await expect.poll(() => server.logged.map(({ status }) => status)).toEqual([499]);
  left.resolve();
  await expect.poll(() => bodies.used).toBe(1000);
  ends.resolve();
  await expect.poll(() => bodies.used).toBe(0);
});

test("what cannot be read as HTTP stands in the log under the id that its sender was told", async () => {
  await using server = await startTestServer([modelRoutes]);
  for (const [sent, status] of [
    ["GET / HTTP/1.1\r\nno header\r\n\r\n", 400],
    [`GET / HTTP/1.1\r\nhost: x\r\nx-long: ${"x".repeat(40_000)}\r\n\r\n`, 431],
  ] as const) {
    const answer = await text(connect(server.port, "127.0.0.1").end(sent));
    const [, id = ""] = /^request-id: (req_\w+)\r$/m.exec(answer) ?? [];
    expect(answer).toContain(`HTTP/1.1 ${status} `);
    expect(server.logged).toContainEqual(expect.objectContaining({ request_id: id, status }));
  }
});

test("answers in OpenAI's dialects say how long they took and their version, errors too; those in Messages do not", async () => {
  await using server = await startTestServer([
    inference(async ({ body, sink }) => {
      if (body.length > 2) throw new ApiError("unavailable", "Not now.");
      sink.start(200, { "content-type": "application/json" });
      sink.end("{}");
    }),
  ]);
  const told = async (path: string, body: string) => {
    const init = { method: "POST", body, headers: { "content-type": "application/json" } };
    const { status, headers } = await server.fetch(path, init);
    return [status, headers.get("openai-processing-ms"), headers.get("openai-version")];
  };
  for (const path of ["/v1/chat/completions", "/v1/responses"]) {
    expect(await told(path, "{}")).toEqual([200, expect.stringMatching(/^\d+$/), "2020-10-01"]);
    expect(await told(path, "{ }")).toEqual([503, expect.stringMatching(/^\d+$/), "2020-10-01"]);
  }
  expect(await told("/v1/messages", "{}")).toEqual([200, null, null]);
  expect(await told("/v1/messages", "{ }")).toEqual([503, null, null]);
});
