/** Rule 14.4: an organization's own tags, from the request into its reports, and nowhere else. */
import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { wrongHours } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { registry } from "../../dataplane/telemetry/metrics.ts";
import { text } from "../fakes/upstream/script.ts";
import { AdminWorld, type Tenant } from "./admin-world.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
  world.upstream.model("upstream-model", text("fine", { input: 10, output: 5 }));
});
afterAll(async () => {
  await world?.close();
});

const bodies = {
  "/v1/messages": {
    model: "m-messages",
    max_tokens: 50,
    messages: [{ role: "user", content: "Hello" }],
  },
  "/v1/chat/completions": { model: "m-chat", messages: [{ role: "user", content: "Hello" }] },
  "/v1/responses": { model: "m-responses", input: "Hello" },
};

async function ask(
  tenant: Tenant,
  path: keyof typeof bodies,
  { tags, metadata }: { readonly tags?: string; readonly metadata?: object } = {},
) {
  return await world.call(tenant.inference, "POST", path, {
    body: { ...bodies[path], ...(metadata === undefined ? {} : { metadata }) },
    headers: tags === undefined ? {} : { "x-gapura-tags": tags },
  });
}

interface Result extends Readonly<Record<string, unknown>> {
  readonly credits: string;
  readonly tag: { readonly name: string; readonly value: string } | null;
}
async function costs(query: string, { admin }: Tenant = world.a): Promise<readonly Result[]> {
  const answer = await world.call(admin, "GET", `/v1/organization/costs?${query}`);
  expect([query, answer.status]).toEqual([query, 200]);
  return answer.body["results"] as readonly Result[];
}
const valueOf = ({ tag }: Result) => tag?.value ?? null;

test("all dialects' requests count under their tags, those of one organization for it alone", async () => {
  const { a, b } = world;
  expect((await ask(a, "/v1/messages", { tags: "team=ml, feature=search" })).status).toBe(200);
  expect((await ask(a, "/v1/messages", { tags: "feature=search,team=ml" })).status).toBe(200);
  expect((await ask(a, "/v1/chat/completions", { metadata: { tags: "team=ml" } })).status).toBe(200);
  // The header goes before metadata.
  const both = { tags: "team=web", metadata: { tags: "team=ml" } };
  expect((await ask(a, "/v1/responses", both)).status).toBe(200);
  expect((await ask(a, "/v1/messages")).status).toBe(200);
  expect((await ask(b, "/v1/messages", { tags: "team=ml,secret=theirs" })).status).toBe(200);

  await expect.poll(async () => (await costs("group_by[]=tag:team")).length, { timeout: 2000 }).toBe(3);
  const usage = async (path: string, query: string, tenant: Tenant) => {
    const answer = await world.call(tenant.admin, "GET", `${path}?${query}`);
    const data = answer.body["data"] as { results: Readonly<Record<string, unknown>>[] }[];
    return data.flatMap(({ results }) => results);
  };
  const completions = "/v1/organization/usage/completions";
  expect(
    (await usage(completions, "group_by[]=tag:team", a)).map(({ tag, num_model_requests: requests }) => [
      tag,
      requests,
    ]),
  ).toEqual([
    [{ name: "team", value: "ml" }, 3],
    [{ name: "team", value: "web" }, 1],
    [null, 1],
  ]);
  const filtered = await usage(completions, "tags[team]=ml&group_by=model", a);
  expect(filtered.map(({ model, num_model_requests: requests, tag }) => [model, requests, tag])).toEqual([
    ["m-chat", 1, null],
    ["m-messages", 2, null],
  ]);
  const messages = await usage(
    "/v1/organizations/usage_report/messages",
    "group_by=tag:feature&tags[team]=ml",
    a,
  );
  expect(messages.map(({ tag }) => tag)).toEqual([{ name: "feature", value: "search" }, null]);
  const report = await world.call(a.admin, "GET", "/v1/organizations/cost_report?group_by=tag:team");
  expect(new Set((report.body["results"] as Result[]).map(valueOf))).toEqual(new Set(["ml", null, "web"]));

  // A name that only the other organization uses, and one that begins as another does.
  expect((await costs("group_by=tag:secret")).map(valueOf)).toEqual([null]);
  expect((await costs("group_by=tag:eam")).map(valueOf)).toEqual([null]);
  expect((await costs("tags[secret]=theirs"))[0]?.credits).toBe("0");
  expect((await costs("tags[team]=m"))[0]?.credits).toBe("0");
  await expect
    .poll(async () => (await costs("group_by=tag:team", b)).map(valueOf), { timeout: 2000 })
    .toEqual(["ml"]);

  // What the groups sum to is the whole; and the dearest is first.
  const [whole] = await costs("");
  const groups = await costs("group_by=tag:team,line_item");
  const sum = groups.reduce((micros, { credits }) => micros + Math.round(Number(credits) * 1e6), 0);
  expect(sum).toBe(Math.round(Number(whole?.credits) * 1e6));
  const amounts = groups.map(({ credits }) => Number(credits));
  expect(amounts).toEqual(amounts.toSorted((one, other) => other - one));
  const keys = await world.call(a.admin, "GET", `${completions}?group_by=api_key_id,tag:team`);
  const spenders = keys.body["results"] as Result[];
  const spent = spenders.map(({ credits }) => Number(credits));
  expect([valueOf(spenders[0] as Result), spent]).toEqual([
    "ml",
    spent.toSorted((one, other) => other - one),
  ]);
  expect(spenders.every(({ api_key_id: key }) => typeof key === "string")).toBe(true);

  expect(await wrongHours(world.pool)).toEqual([]);
  expect(await registry.metrics()).not.toMatch(/theirs|team/);
});

test("the header never goes upstream, metadata does as it came", async () => {
  const { a } = world;
  world.upstream.requests.length = 0;
  await ask(a, "/v1/chat/completions", { tags: "team=hidden" });
  await ask(a, "/v1/chat/completions", { metadata: { tags: "team=shown", run: "7" } });
  const [hidden, shown] = world.upstream.requests;
  expect(JSON.stringify(hidden?.headers) + String(hidden?.body)).not.toContain("hidden");
  expect(String(shown?.body)).toContain("team=shown");
});

test("records show them to their own organization", async () => {
  const { a, b } = world;
  const answer = await ask(a, "/v1/messages", { tags: "team=ml,__proto__=x" });
  await world.plane.records.store();
  const path = `/v1/organization/requests/${answer.headers.get("request-id")}`;
  const { body } = await world.call(a.admin, "GET", path);
  expect(Object.entries(body["tags"] as object)).toEqual([
    ["__proto__", "x"],
    ["team", "ml"],
  ]);
  expect((await world.call(b.admin, "GET", path)).status).toBe(404);
});

test("tags that are none are a 400 that names where they stand; nothing is charged", async () => {
  const { a } = world;
  const rows = () =>
    world.pool.oneFirst(sql.type(z.object({ count: z.bigint() }))`select count(*) from usage`);
  // All of the tests before.
  await expect.poll(rows, { timeout: 2000 }).toBe(9n);
  const many = Array.from({ length: 9 }, (_, at) => `t${at}=x`).join(",");
  for (const tags of ["team", `team=${"x".repeat(60)}`, many, "a=1,a=2"]) {
    const answer = await ask(a, "/v1/chat/completions", { tags });
    expect([tags, answer.status, (answer.body["error"] as { param: string }).param]).toEqual([
      tags,
      400,
      "x-gapura-tags",
    ]);
    const message = await ask(a, "/v1/messages", { tags });
    expect([message.status, message.raw]).toEqual([400, expect.stringContaining("x-gapura-tags")]);
  }
  for (const tags of ["team", ["team=ml"], 7]) {
    const answer = await ask(a, "/v1/responses", { metadata: { tags } });
    expect([answer.status, (answer.body["error"] as { param: string }).param]).toEqual([
      400,
      "metadata.tags",
    ]);
  }
  expect((await ask(a, "/v1/chat/completions", { metadata: { tags: null } })).status).toBe(200);
  await expect.poll(rows, { timeout: 2000 }).toBe(10n);
});

test("a batch's items have its header, else their own metadata", async () => {
  const { a } = world;
  const requests = [{ custom_id: "one", params: bodies["/v1/messages"] }];
  const refused = await world.call(a.inference, "POST", "/v1/messages/batches", {
    body: { requests },
    headers: { "x-gapura-tags": "team" },
  });
  expect([refused.status, refused.raw]).toEqual([400, expect.stringContaining("x-gapura-tags")]);
  const made = await world.call(a.inference, "POST", "/v1/messages/batches", {
    body: { requests },
    headers: { "x-gapura-tags": "team=night" },
  });
  expect(made.status).toBe(200);
  const headers = await world.pool.oneFirst(sql.type(z.object({ headers: z.string() }))`
    select headers from batches where id = ${String(made.body["id"])}
  `);
  expect(JSON.parse(headers)).toMatchObject({ "x-gapura-tags": "team=night" });
});
