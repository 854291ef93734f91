/** Walks every route of the server with one organization's credentials and another's ids (rules 4.16, 5.7). */
import { sql } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import type { ServedRoute } from "../../dataplane/http/route.ts";
import { AdminWorld, identityOf, type Tenant, tenantEntry } from "./admin-world.ts";

let world: AdminWorld;
/** Ids that belong to one organization. */
interface Ids {
  readonly file: string;
  readonly key: string;
  readonly project: string;
  readonly messageBatch: string;
  readonly batch: string;
  readonly request: string;
  /** Of whom makes requests: a key, or a person. */
  readonly principal: string;
}
let theirs: Ids;
let a: Tenant;
let b: Tenant;

async function makeIds(owner: Tenant): Promise<Ids> {
  const { body: made } = await world.call(owner.admin, "POST", "/v1/organizations/api_keys", {
    body: { name: "own" },
  });
  const item = {
    custom_id: "a",
    method: "POST",
    url: "/v1/chat/completions",
    body: { model: "m-chat", messages: [] },
  };
  const file = await upload(owner, `${JSON.stringify(item)}\n`);
  const { body: messageBatch } = await world.call(owner.inference, "POST", "/v1/messages/batches", {
    body: { requests: [{ custom_id: "a", params: {} }] },
  });
  const { body: batch } = await world.call(owner.inference, "POST", "/v1/batches", {
    body: { input_file_id: file, endpoint: item.url, completion_window: "24h" },
  });
  const asked = await world.call(owner.inference, "POST", "/v1/chat/completions", {
    body: { model: "m-chat", messages: [{ role: "user", content: "Hello" }] },
  });
  await world.plane.records.store();
  return {
    request: asked.headers.get("request-id") ?? "",
    principal: String((await world.call(owner.inference, "GET", "/v1/key")).body["id"]),
    messageBatch: String(messageBatch["id"]),
    batch: String(batch["id"]),
    file,
    key: String(made["id"]),
    project: String(made["workspace_id"]),
  };
}

async function upload(owner: Tenant, contents: string): Promise<string> {
  const form = new FormData();
  form.append("purpose", "batch");
  form.append("file", new File([contents], "a.jsonl", { type: "application/jsonl" }));
  const uploaded = await world.plane.server.fetch("/v1/files", {
    method: "POST",
    body: form,
    headers: { authorization: `Bearer ${owner.inference}` },
  });
  return ((await uploaded.json()) as { id: string }).id;
}

const keyFor = ({ access }: ServedRoute, tenant: Tenant) =>
  access === "admin" ? tenant.admin : tenant.inference;

/** What a list's path does not answer without; raw: it is no JSON. */
const needed: Readonly<Record<string, { readonly query: string; readonly raw: boolean }>> = {
  "/v1/organization/costs/export": {
    query: `format=focus-csv&month=${new Date().toISOString().slice(0, 7)}`,
    raw: true,
  },
};

/** Parameters of lists that name something. */
const naming = ["after", "after_id", "before_id", "api_key_id", "workspace_id", "project_ids", "ids"];

const nobody: Ids = {
  file: "file_000000000000000000000000",
  key: "apikey_0000",
  project: "proj_0000",
  request: "req_0000",
  principal: "usr_0000",
  messageBatch: "msgbatch_0000",
  batch: "batch_0000",
};

const withoutIds = (text: string) =>
  text.replaceAll(/(file|apikey|proj|req|batch|msgbatch|usr)_\w+|a\\+u0000b/g, "ID");

/** Every way to put the other organization's ids, and ids of nobody, into a route's path. */
function paths(url: string): string[] {
  const ofNobody = [...Object.values(nobody), "a%00b"];
  const filled = (project: string, id: string) => url.replace(":project", project).replace(/:id\b/, id);
  const all = [
    ...[...Object.values(theirs), ...ofNobody].map((id) => filled("default", id)),
    ...Object.values(theirs).map((id) => filled(theirs.project, id)),
    ...ofNobody.map((id) => filled(nobody.project, id)),
  ];
  // The own project and its own keys are no one else's.
  return all.filter((path) => !/\/projects\/default(\/api_keys)?$/.test(path));
}

const stateOf = () =>
  world.pool.anyFirst(sql.type(z.object({ text: z.string() }))`
    select text from (
      select id, organization_id, api_keys.name || status || coalesce(deleted_at::text, '') as text from api_keys
      union all select id, organization_id, filename || state from files
      union all select id, organization_id, state || coalesce(cancel_initiated_at::text, '') from batches
    ) as things where organization_id = 'org_b' order by id
  `);

/** The same organizations' people, of one issuer, instead of their keys. */
async function asPeople(): Promise<void> {
  await world.declare(
    [world.a, world.b].map((tenant) => tenantEntry(tenant, { identity: identityOf(world.issuer, tenant) })),
  );
  const [first, second] = [world.a, world.b].map((tenant) => ({
    id: tenant.id,
    inference: world.token(tenant, "ml"),
    admin: world.token(tenant, "owners"),
  }));
  if (first === undefined || second === undefined) throw new Error("there are two tenants");
  [a, b] = [first, second];
}

describe.each([
  ["keys", async () => {}],
  ["tokens of one issuer", asPeople],
])("another organization's ids, with %s", (_, prepare) => {
  beforeAll(async () => {
    world = await AdminWorld.open();
    ({ a, b } = world);
    await prepare();
    theirs = await makeIds(b);
    await makeIds(a);
  });
  afterAll(async () => {
    await world?.close();
  });

  test("every route with an id in its path answers for them as for ids of nobody, and changes nothing", async () => {
    const before = await stateOf();
    const walked: string[] = [];
    for (const route of world.plane.server.server.routes) {
      // Models are for everybody; HEAD is GET without the body.
      if (!route.url.includes(":") || route.method === "HEAD") continue;
      walked.push(`${route.method} ${route.url}`);
      // An own project says that the key is unknown, another project that the project is.
      const answers = new Map<boolean, Set<string>>();
      for (const path of paths(route.url)) {
        const change = route.url.endsWith("/projects/:project") ? { limits: null } : { name: "taken over" };
        const body = route.method === "POST" ? { body: change } : {};
        const answer = await world.call(keyFor(route, a), route.method, path, body);
        expect([route.method, path, answer.status]).toEqual([route.method, path, 404]);
        const own = path.includes("/projects/default/");
        const words = withoutIds(answer.raw);
        answers.set(own, (answers.get(own) ?? new Set()).add(words));
      }
      for (const words of answers.values()) expect([route.url, words.size]).toEqual([route.url, 1]);
    }
    expect(walked).toContain("DELETE /v1/files/:id");
    expect(walked).toContain("GET /v1/messages/batches/:id/results");
    expect(walked).toContain("POST /v1/batches/:id/cancel");
    expect(walked).toContain("DELETE /v1/organization/projects/:project/api_keys/:id");
    expect(await stateOf()).toEqual(before);
  });

  test("no list shows them, no cursor of theirs is taken, no filter by them finds anything", async () => {
    for (const route of world.plane.server.server.routes) {
      if (route.method !== "GET" || route.url.includes("*") || /:id\b/.test(route.url)) continue;
      const { query, raw } = needed[route.url] ?? { query: "", raw: false };
      const path = `${route.url.replace(":project", "default")}?${query}`;
      const own = await world.call(keyFor(route, a), "GET", path, { raw });
      expect([path, own.status]).toEqual([path, 200]);
      for (const [kind, id] of Object.entries(theirs)) {
        expect(own.raw).not.toContain(id);
        const question = async (parameter: string) => {
          const ask = (given: string) =>
            world.call(keyFor(route, a), "GET", `${path}&${parameter}=${given}`, { raw });
          const asked = await ask(id);
          expect(asked.raw.replaceAll(/"message":"[^"]*"/g, "")).not.toContain(`"${id}"`);
          expect([200, 400]).toContain(asked.status);
          // Refused, or as without it: the list does not know the parameter.
          if (asked.status === 400 || asked.raw === own.raw) return;
          const unknown = await ask(nobody[kind as keyof Ids]);
          const answers = [asked, unknown].map(({ status, raw: text }) => [status, withoutIds(text)]);
          expect([path, parameter, kind, answers[0]]).toEqual([path, parameter, kind, answers[1]]);
        };
        await Promise.all(naming.map(question));
      }
    }
  });

  test("a file of theirs is no input of a batch", async () => {
    const wanted = (file: string) => ({
      input_file_id: file,
      endpoint: "/v1/responses",
      completion_window: "24h",
    });
    const answers = [];
    for (const file of [theirs.file, "file_000000000000000000000000"]) {
      const answer = await world.call(a.inference, "POST", "/v1/batches", { body: wanted(file) });
      expect(answer.status).toBe(400);
      answers.push(answer.raw.replaceAll(file, "ID"));
    }
    expect(new Set(answers).size).toBe(1);
  });

  test("a file of theirs in a request is unknown, before anything goes upstream", async () => {
    const asked = world.upstream.requests.length;
    const answer = await world.call(a.inference, "POST", "/v1/messages", {
      body: {
        model: "m-messages",
        max_tokens: 10,
        messages: [
          { role: "user", content: [{ type: "document", source: { type: "file", file_id: theirs.file } }] },
        ],
      },
    });
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect(answer.raw).not.toContain("custom_id");
    expect(world.upstream.requests).toHaveLength(asked);
  });

  test("no route is open to a key of the wrong kind, or to nobody", async () => {
    for (const route of world.plane.server.server.routes) {
      if (route.access === "none" || route.method === "HEAD") continue;
      const path = route.url
        .replace(":project", "default")
        .replace(":id", theirs.file)
        .replace("*", "m-chat");
      const wrong = route.access === "admin" ? a.inference : a.admin;
      for (const key of [wrong, "", `${a.admin}x`, `${a.inference}x`]) {
        const answer = await world.call(key, route.method, path, route.method === "POST" ? { body: {} } : {});
        expect([route.method, path, answer.status]).toEqual([route.method, path, 401]);
        expect(answer.headers.get("x-should-retry")).toBe("false");
      }
    }
  });
});
