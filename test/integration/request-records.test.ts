/** What became of requests, as a tenant and as an on-call person find it (rules 14.1, 14.2). */
import { afterAll, beforeAll, expect, test } from "vitest";
import { findRequest } from "../../dataplane/requests/read-records.ts";
import { whyLines } from "../../dataplane/requests/why-command.ts";
import { registry } from "../../dataplane/telemetry/metrics.ts";
import { withFaults } from "../fakes/upstream/server.ts";
import { text } from "../fakes/upstream/script.ts";
import { AdminWorld, type Tenant } from "./admin-world.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
});
afterAll(async () => {
  await world?.close();
});

const listPath = "/v1/organization/requests";
interface Listed {
  readonly id: string;
  readonly [field: string]: unknown;
}

/** Grants nothing: the organizations have credit from the world's defaults, or are refused. */
async function ask(tenant: Tenant, model: string, more: object = {}) {
  const answer = await world.call(tenant.inference, "POST", "/v1/messages", {
    body: { model, max_tokens: 50, messages: [{ role: "user", content: "Hello" }], ...more },
    raw: true,
  });
  return { id: answer.headers.get("request-id") ?? "", status: answer.status, raw: answer.raw };
}

async function list(tenant: Tenant, query = ""): Promise<Listed[]> {
  await world.plane.records.store();
  const answer = await world.call(tenant.admin, "GET", `${listPath}${query}`);
  expect([query, answer.status]).toEqual([query, 200]);
  return answer.body["data"] as Listed[];
}

test("every request is listed and found by its id: answered, failed, refused", async () => {
  const { a } = world;
  world.upstream.model("upstream-model", text("fine", { input: 11, output: 7 }));
  const fine = await ask(a, "m-messages");
  const streamed = await ask(a, "m-messages", { stream: true });
  const unknown = await ask(a, "m-nowhere");
  const malformed = await ask(a, "m-messages", { messages: "no" });
  expect([fine.status, streamed.status, unknown.status, malformed.status]).toEqual([200, 200, 404, 400]);
  const found = await list(a);
  expect(found.slice(0, 4).map(({ id }) => id)).toEqual(
    [malformed, unknown, streamed, fine].map(({ id }) => id),
  );
  const [bad, none, stream, whole] = found;
  expect(whole).toMatchObject({
    object: "organization.request",
    dialect: "messages",
    path: "relay",
    model: "m-messages",
    status: 200,
    error_code: null,
    streamed: false,
    tries: [{ status: 200, reason: null, ms: expect.any(Number) }],
    tool_calls: 0,
    batch_id: null,
    tags: {},
  });
  expect(Number(whole?.["credits"])).toBeGreaterThan(0);
  expect(Number(whole?.["input_tokens"])).toBeGreaterThan(0);
  expect(stream).toMatchObject({ streamed: true, status: 200 });
  expect(none).toMatchObject({
    status: 404,
    error_code: "model_not_found",
    model: "m-nowhere",
    tries: [],
    credits: "0",
  });
  expect(bad).toMatchObject({ status: 400, model: "m-messages" });
  // What asks for no inference is found by its id alone.
  const models = await world.call(a.inference, "GET", "/v1/models");
  const id = models.headers.get("request-id") ?? "";
  expect((await list(a)).map((one) => one.id)).not.toContain(id);
  const one = await world.call(a.admin, "GET", `${listPath}/${id}`);
  expect([one.status, one.body["dialect"]]).toEqual([200, null]);
  // The list and the object say the same.
  expect((await world.call(a.admin, "GET", `${listPath}/${fine.id}`)).body).toEqual(whole);
});

test("a tenant learns that a provider failed and how, an operator which one and what it said", async () => {
  const { a } = world;
  world.upstream.model("upstream-model", {
    error: { status: 401, message: "invalid x-api-key sk-ant-0123456789" },
  });
  const refused = await ask(a, "m-messages");
  world.upstream.model("upstream-model", withFaults(text("x"), { html: true }));
  const page = await ask(a, "m-messages");
  world.upstream.model("upstream-model", text("fine"));
  const [html, account] = await list(a, "?code=upstream_error");
  expect([html?.id, account?.id]).toEqual([page.id, refused.id]);
  expect(account).toMatchObject({ status: 502, tries: [{ status: 401, reason: "account" }] });
  expect(html).toMatchObject({ status: 502, tries: [{ status: 200, reason: "garbage" }] });
  const kept = await findRequest(world.pool, refused.id);
  if (kept === null) throw new Error("it was not kept");
  const { upstream } = kept;
  expect(upstream).not.toBe(null);
  for (const secret of [String(upstream), "x-api-key", "sk-ant", "authentication_error"]) {
    expect(refused.raw).not.toContain(secret);
    expect(JSON.stringify([html, account]).replace('"error_code":"upstream_error"', "")).not.toContain(
      `"${secret}"`,
    );
  }
  const lines = whyLines(kept, false);
  expect(lines).toContain("status: 502");
  expect(lines.at(-1)).toMatch(
    new RegExp(
      `^try 1: ${upstream}, 401, account, authentication_error, .* ms: "invalid x-api-key \\[key\\]"$`,
    ),
  );
  const [json = ""] = whyLines(kept, true);
  expect(JSON.parse(json)).toMatchObject({
    id: refused.id,
    error: "upstream_error",
    organizationId: "org_a",
    method: "POST",
    url: "/v1/messages",
  });
});

test("filters and pages; bad ones are named", async () => {
  const { a } = world;
  const all = await list(a, "?limit=1000");
  expect(await list(a, "?status=404")).toEqual(all.filter(({ status }) => status === 404));
  expect(await list(a, "?model=m-messages&limit=1000")).toEqual(
    all.filter(({ model }) => model === "m-messages"),
  );
  const [first, second] = all;
  expect(await list(a, `?limit=1&after=${first?.id}`)).toEqual([second]);
  expect(await list(a, "?project_id=default&limit=1000")).toEqual(all);
  expect(await list(a, `?api_key_id=${String(first?.["api_key_id"])}&limit=1000`)).toEqual(all);
  expect(await list(a, "?from=0&to=1000")).toEqual([]);
  expect(await list(a, "?model=m%00")).toEqual([]);
  // Of what asked for no inference, and so is in no list.
  const { headers } = await world.call(a.inference, "GET", "/v1/models");
  await list(a);
  for (const [query, param] of [
    [`after=${headers.get("request-id")}`, "after"],
    ["status=1", "status"],
    ["status=no", "status"],
    ["from=yesterday", "from"],
    ["from=20&to=10", "to"],
    ["limit=1001", "limit"],
    ["after=req_none", "after"],
    ["model=a&model=b", "model"],
  ]) {
    const answer = await world.call(a.admin, "GET", `${listPath}?${query}`);
    expect([query, answer.status, (answer.body["error"] as { param?: string }).param]).toEqual([
      query,
      400,
      param,
    ]);
  }
});

test("rule 14.1: a request that is refused before its route is looked for is found by the model it named", async () => {
  const { a } = world;
  const stateful = await ask(a, "m-messages", { container: "c", stream: true });
  const { headers } = await world.call(a.inference, "POST", "/v1/messages", {
    body: { model: "m-messages", max_tokens: 5, messages: [{ role: "user", content: "x" }] },
    headers: { "x-gapura-tags": "none" },
    raw: true,
  });
  const found = await list(a, "?model=m-messages&status=400&limit=2");
  expect(found).toMatchObject([
    { id: headers.get("request-id"), error_code: "invalid_value", streamed: false },
    { id: stateful.id, error_code: "unsupported_parameter", streamed: true },
  ]);
});

test("rule 14.1: a request whose body is refused is found by the model that it named, as far as that can be read", async () => {
  const { a } = world;
  const ask = async (path: string, body: unknown, tags = "team=ml") => {
    const headers = { "x-gapura-tags": tags };
    const answer = await world.call(a.inference, "POST", path, { body, headers, raw: true });
    expect(answer.status).toBe(400);
    return answer.headers.get("request-id") ?? "";
  };
  const messages = [{ role: "user", content: "x" }];
  const asked: (readonly [id: string, tags: Readonly<Record<string, string>>])[] = [];
  for (const [path, body, tags] of [
    ["/v1/messages", { model: "m-messages", max_tokens: 5 }],
    ["/v1/messages", { model: "m-messages", max_tokens: "5", messages }],
    ["/v1/messages", { messages, stream: "yes", model: "m-messages" }],
    ["/v1/chat/completions", { model: "m-messages", messages: [], n: 0 }],
    ["/v1/responses", { model: "m-messages" }, "none"],
    ["/v1/messages", '{"model": "m-messages", "messages": ['],
    ["/v1/messages", { model: "m-messages", max_tokens: 5, messages: [], system: "x".repeat(200_000) }],
  ] as const)
    asked.unshift([await ask(path, body, tags), tags === undefined ? { team: "ml" } : {}]);
  const listed = await list(a, "?model=m-messages&status=400&limit=7");
  expect(listed.map(({ id, tags }) => [id, tags])).toEqual(asked);
  const count = await world.call(a.inference, "POST", "/v1/messages/count_tokens", {
    body: { model: "m-messages" },
  });
  await world.plane.records.store();
  const counted = await world.call(a.admin, "GET", `${listPath}/${count.headers.get("request-id")}`);
  expect(counted.body).toMatchObject({ status: 400, model: "m-messages" });
});

test("rule 14.1: what a good key of the wrong kind asked for is found by its id, and is its organization's", async () => {
  const { a, b } = world;
  const inference = await world.call(a.admin, "POST", "/v1/chat/completions", { body: {} });
  const reading = await world.call(a.inference, "GET", "/v1/organizations/me");
  const [listed] = await list(a, "?limit=1");
  expect(listed).toMatchObject({
    id: inference.headers.get("request-id"),
    dialect: "chat",
    status: 401,
    error_code: "invalid_api_key",
    tries: [],
  });
  const path = `${listPath}/${reading.headers.get("request-id")}`;
  const own = await world.call(a.admin, "GET", path);
  const keys = await world.call(a.admin, "GET", "/v1/organizations/api_keys");
  const [key] = keys.body["data"] as { id: string; workspace_id: string }[];
  expect([own.status, own.body]).toMatchObject([
    200,
    { status: 401, api_key_id: key?.id, project_id: key?.workspace_id, dialect: null },
  ]);
  expect((await world.call(b.admin, "GET", path)).status).toBe(404);
});

test.each([
  ["POST", "/v1/embeddings", 404],
  ["GET", "/v1/messages", 405],
])(
  "rule 14.1: %s %s, which nothing serves, is found by its id and is its organization's",
  async (method, url, status) => {
    const { a, b } = world;
    const found: unknown[] = [];
    for (const key of [a.inference, a.admin, "sk-svc-nobody"]) {
      const answer = await world.call(key, method, url);
      const id = answer.headers.get("request-id") ?? "";
      await world.plane.records.store();
      const { organizationId, keyId } = (await findRequest(world.pool, id)) ?? {};
      const [own, others] = await Promise.all(
        [a, b].map(({ admin }) => world.call(admin, "GET", `${listPath}/${id}`)),
      );
      found.push([answer.status, organizationId, typeof keyId, own?.status, others?.status]);
      if (own?.status === 200) expect(own.body).toMatchObject({ status, dialect: null, tries: [] });
    }
    const known = [status, "org_a", "string", 200, 404];
    expect(found).toEqual([known, known, [status, null, "object", 404, 404]]);
  },
);

test("another organization's requests are nobody's business", async () => {
  const { a, b } = world;
  const theirs = await ask(b, "m-messages");
  const mine = await list(a, "?limit=1000");
  expect(mine.map(({ id }) => id)).not.toContain(theirs.id);
  expect((await list(b)).map(({ id }) => id)).toContain(theirs.id);
  expect((await world.call(a.admin, "GET", `${listPath}/${theirs.id}`)).status).toBe(404);
  const [key] = await list(b);
  expect(await list(a, `?api_key_id=${String(key?.["api_key_id"])}`)).toEqual([]);
  expect(await list(a, `?project_id=${String(key?.["project_id"])}`)).toEqual([]);
  expect((await world.call(a.inference, "GET", listPath)).status).toBe(401);
});

test("callers without a key are found by the operator alone", async () => {
  const answer = await world.call("sk-svc-nobody", "POST", "/v1/messages", { body: {} });
  expect(answer.status).toBe(401);
  const id = answer.headers.get("request-id") ?? "";
  await world.plane.records.store();
  expect(await findRequest(world.pool, id)).toMatchObject({
    organizationId: null,
    status: 401,
    errorCode: "invalid_api_key",
  });
  expect((await world.call(world.a.admin, "GET", `${listPath}/${id}`)).status).toBe(404);
});

test("a name that is no model, or that the key hides, is found as the client wrote it, and is no label", async () => {
  const { a } = world;
  const misspelt = await ask(a, "m-mesages");
  const long = `m-${"\u{1f600}".repeat(300)}`;
  const odd = [await ask(a, long), await ask(a, "m\0-line\nbreak\u001b[31m"), await ask(a, "m-\ud800")];
  expect((await list(a, "?model=m-mesages")).map(({ id }) => id)).toEqual([misspelt.id]);
  expect((await list(a, `?model=${encodeURIComponent(long)}`)).map(({ id }) => id)).toEqual([odd[0]?.id]);
  const kept = await Promise.all(odd.map(({ id }) => findRequest(world.pool, id)));
  expect(kept.map((one) => one?.model?.length)).toEqual([200, 17, 3]);
  for (const one of kept) {
    if (one === null) throw new Error("it was not kept");
    // oxlint-disable-next-line no-control-regex -- what must not reach a terminal
    for (const line of whyLines(one, false)) expect(line).not.toMatch(/[\u0000-\u001f]/);
  }
  const made = await world.call(a.admin, "POST", "/v1/organizations/api_keys", {
    body: { name: "narrow", limits: { models: ["other-*"] } },
  });
  const narrow = { ...a, inference: String(made.body["key"]) };
  await expect.poll(async () => (await ask(narrow, "m-messages")).status).toBe(404);
  const hidden = await list(a, "?model=m-messages&status=404");
  expect(hidden[0]).toMatchObject({ model: "m-messages", path: null, error_code: "model_not_found" });
  const labels = await registry.metrics();
  expect(labels).not.toContain("m-mesages");
  expect(labels).not.toContain("[31m");
});
