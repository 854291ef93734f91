import { expect, test } from "vitest";
import { sampleKeys } from "../../test/fakes/sample-snapshot.ts";
import { startTestServer } from "../../test/fakes/test-server.ts";
import { loggedId } from "./logged-id.ts";
import { modelRoutes } from "./routes/models.ts";

test.each(["a", "task-1", "risk-7:b.c_d", "3b0f6a52-1c9e-4a2b-9d35-0c9f", "x".repeat(128)])(
  "the id %j is logged",
  (id) => {
    expect(loggedId(id)).toBe(id);
  },
);

test.each([
  "",
  "x".repeat(129),
  "a b",
  "a/b",
  "a\nb",
  "ä",
  "{}",
  "sk-svc-abc",
  "xsk-svc-abc",
  "a.sk-adm-svc-1",
  "SK-SVC-abc",
  "sk-proj-1234",
  "sk-1",
  "id:sk-ant-1",
])("%j is not logged", (id) => {
  expect(loggedId(id)).toBeUndefined();
});

test("a key that comes as x-client-request-id is in no line of the log", async () => {
  await using server = await startTestServer([modelRoutes]);
  for (const id of [sampleKeys.inference, sampleKeys.admin, "sk-ant-abcdefgh", "run-17"])
    await server.fetch("/v1/models", { headers: { "x-client-request-id": id } });
  await expect.poll(() => server.logged.length).toBe(4);
  expect(server.logged.map(({ client }) => client)).toEqual([undefined, undefined, undefined, "run-17"]);
  expect(JSON.stringify(server.logged)).not.toContain("sk-");
});

test("a key of any service in a path is neither logged nor repeated", async () => {
  await using server = await startTestServer([modelRoutes]);
  const foreign = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz";
  const texts = await Promise.all(
    [foreign, sampleKeys.inference, "task-1234567890123456789012345"].map(async (id) =>
      (await server.fetch(`/v1/models/${id}`)).text(),
    ),
  );
  await expect.poll(() => server.logged.length).toBe(3);
  const all = texts.join("\n") + JSON.stringify(server.logged);
  expect(all).not.toContain("abcdefgh");
  expect(all).not.toContain(sampleKeys.inference.slice(7));
  expect(all).toContain("/v1/models/task-1234567890123456789012345");
});
