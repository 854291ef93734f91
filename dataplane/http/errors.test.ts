import { ConnectionError } from "slonik";
import { describe, expect, test } from "vitest";
import { sampleKeys } from "../../test/fakes/sample-snapshot.ts";
import { startTestServer } from "../../test/fakes/test-server.ts";
import { ApiError, errorKinds, type ErrorCode } from "../lib/api-error.ts";
import { absence } from "./absent.ts";
import { errorStyle } from "./error-style.ts";
import { modelRoutes } from "./routes/models.ts";
import type { Routes } from "./route.ts";

/** Below a path of each style, a resource that answers with the error it is asked for. */
const failing: Routes = (app) => {
  for (const prefix of ["/v1/messages", "/v1/chat/completions", "/v1/files", "/v1/elsewhere"]) {
    app.get<{ Params: { code: ErrorCode } }>(
      `${prefix}/fail/:code`,
      { config: { access: "none" } },
      (request) => {
        const { code } = request.params;
        throw new ApiError(
          code,
          `This is ${code}.`,
          code.startsWith("invalid") ? { param: "tools[0].type" } : {},
        );
      },
    );
  }
  app.get("/v1/bug", { config: { access: "none" } }, () => {
    throw new TypeError("a secret inside");
  });
  app.get("/v1/away", { config: { access: "none" } }, () => {
    throw new ConnectionError("connect ECONNREFUSED 10.1.2.3:5432");
  });
};

const version = { "anthropic-version": "2023-06-01" };
const styles: [string, string, Record<string, string>][] = [
  ["messages", "/v1/messages", {}],
  ["openai", "/v1/chat/completions", version],
  ["shared", "/v1/files", {}],
  ["shared, version header", "/v1/files", version],
];

test("every error in every style is as the golden table says (dialects.md §A2)", async () => {
  await using server = await startTestServer([failing]);
  const table: Record<string, unknown> = {};
  for (const code of Object.keys(errorKinds)) {
    for (const [style, prefix, headers] of styles) {
      const response = await server.fetch(`${prefix}/fail/${code}`, { headers });
      const body = (await response.json()) as Record<string, unknown>;
      const id = response.headers.get("request-id");
      if (body["request_id"] === id) body["request_id"] = "(the header's)";
      table[`${code} · ${style}`] = {
        status: response.status,
        type: response.headers.get("content-type"),
        retry: response.headers.get("x-should-retry"),
        after: response.headers.get("retry-after"),
        body,
      };
    }
  }
  await expect(`${JSON.stringify(table, null, 1)}\n`).toMatchFileSnapshot(
    "../../test/golden/http/errors.json",
  );
});

test("a bug is a 500 that says nothing of itself", async () => {
  await using server = await startTestServer([failing]);
  const response = await server.fetch("/v1/bug");
  expect(response.status).toBe(500);
  expect(await response.text()).not.toContain("secret");
});

test("a store that is away is a 503 that says when to come again, and nothing of itself", async () => {
  await using server = await startTestServer([failing]);
  const response = await server.fetch("/v1/away");
  expect([response.status, response.headers.get("retry-after")]).toEqual([503, "1"]);
  expect(await response.text()).not.toMatch(/ECONN|10\.1\.2\.3/);
});

describe("style by path and header (rule 1.4, dialects.md §A2)", () => {
  const cases: [string, string | undefined, string, boolean][] = [
    ["/v1/messages", undefined, "messages", false],
    ["/v1/messages/batches/x", undefined, "messages", false],
    ["/v1/organizations/me", undefined, "messages", false],
    ["/v1/skills", undefined, "messages", false],
    ["/v1/chat/completions", "x", "openai", false],
    ["/v1/responses", "x", "openai", false],
    ["/v1/batches/b", "x", "openai", false],
    ["/v1/organization/costs", "x", "openai", false],
    ["/v1/files", undefined, "openai", true],
    ["/v1/files/f", "any value", "messages", true],
    ["/v1/models", "x", "messages", true],
    ["/v1/messagesx", undefined, "openai", true],
    ["/", "x", "messages", true],
  ];
  test.each(cases)("%s with version %s", (path, header, family, union) => {
    expect(errorStyle(path, header)).toEqual({ family, union });
  });
});

describe("what is not there", () => {
  test("an unknown path is 404, a wrong method 405 with allow, both with request ids (rule 1.4)", async () => {
    await using server = await startTestServer([modelRoutes, failing]);
    const unknown = await server.fetch("/v1/nonsense", { method: "POST", body: "{}" });
    expect([unknown.status, unknown.headers.get("x-should-retry")]).toEqual([404, "false"]);
    expect(unknown.headers.get("request-id")).toMatch(/^req_/);
    const wrong = await server.fetch("/v1/models", { method: "DELETE" });
    expect([wrong.status, wrong.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
    const below = await server.fetch("/v1/models/a/b", { method: "PUT" });
    expect([below.status, below.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
  });

  test.each([
    ["a content type that is none", "POST", { "content-type": "x" }],
    ["a method that needs a content type, without one", "QUERY", { "content-type": "" }],
  ])("also with %s", async (_, method, headers) => {
    await using server = await startTestServer([modelRoutes, failing]);
    const unknown = await server.fetch("/v1/nonsense", { method, headers });
    const wrong = await server.fetch("/v1/models", { method, headers });
    expect([unknown.status, wrong.status, wrong.headers.get("allow")]).toEqual([404, 405, "GET, HEAD"]);
  });

  test.each([
    ["POST", "/v1/embeddings", /not offered/],
    ["POST", "/v1/images/generations", /not offered/],
    ["POST", "/v1/audio/speech", /not offered/],
    ["POST", "/v1/moderations", /not offered/],
    ["GET", "/v1/responses/resp_1", /not stored/],
    ["POST", "/v1/responses/compact", /not compacted/],
    ["POST", "/v1/responses/input_tokens", /count_tokens/],
    ["POST", "/v1/completions", /not offered/],
    ["GET", "/v1/skills", /planned/],
    ["POST", "/v1/skills/s/versions", /planned/],
    ["GET", "/v1/whatever", /There is no GET \/v1\/whatever here\.$/],
    ["POST", "/v1/v1/messages", /There is no POST \/v1\/v1\/messages here: .*one \/v1/],
    ["GET", "/v1/v1", /one \/v1/],
    ["GET", "/v1/v1beta", /here\.$/],
    ["POST", "/chat/completions", /There is no POST \/chat\/completions here: .*begin with \/v1/],
    ["GET", "/", /begin with \/v1/],
    ["POST", "/v1beta/models", /begin with \/v1/],
  ])("%s %s says so", (method, path, words) => {
    expect(absence(method, path)).toMatch(words);
  });

  test("/v1/skills is 404 in Messages style, whatever the headers (rule 1.16)", async () => {
    await using server = await startTestServer([]);
    const response = await server.fetch("/v1/skills", { method: "POST", body: "{}" });
    expect(response.status).toBe(404);
    expect(await response.json()).toMatchObject({ type: "error", error: { type: "not_found_error" } });
  });

  test("a WebSocket on /v1/responses gets 426 at once; h2c on a POST is ignored (rule 1.4)", async () => {
    await using server = await startTestServer([failing]);
    const { request } = await import("node:http");
    const status = (method: string, path: string, upgrade: string) =>
      new Promise<number | undefined>((resolve, reject) => {
        const headers = { connection: "Upgrade", upgrade };
        const sent = request(server.url + path, { method, headers }, (response) => {
          response.resume();
          resolve(response.statusCode);
        });
        sent.on("error", reject);
        sent.end();
      });
    expect(await status("GET", "/v1/responses", "websocket")).toBe(426);
    expect(await status("GET", "/v1/responses?x=1", "other")).toBe(426);
    expect(await status("POST", "/v1/nowhere", "h2c")).toBe(404);
  });

  test("an id that cannot be decoded, or is very long, is unknown", async () => {
    await using server = await startTestServer([modelRoutes]);
    for (const id of ["%zz", "%", "%ff%41", "x".repeat(5_000)]) {
      const response = await server.fetch(`/v1/models/${id}?a=%41`);
      expect([id, response.status, response.headers.has("request-id")]).toEqual([id, 404, true]);
      const keyless = await fetch(`${server.url}/v1/models/${id}`);
      expect([id, keyless.status]).toEqual([id, 401]);
    }
  });

  test("a key in a path is repeated by neither the answer nor the log (rule 5.8)", async () => {
    await using server = await startTestServer([modelRoutes]);
    const keys = [
      [sampleKeys.inference, "/v1/nowhere/[key removed]/more"],
      // What follows may be a piece of it.
      [sampleKeys.admin, "/v1/nowhere/[key removed]"],
    ] as const;
    for (const [key, path] of keys) {
      const response = await server.fetch(`/v1/nowhere/${key}/more`);
      expect(response.status).toBe(404);
      expect(await response.text()).toContain(`${path} `);
    }
    await expect
      .poll(() => server.logged.filter(({ status }) => status === 404).map(({ path }) => path))
      .toEqual(keys.map(([, path]) => path));
  });

  test("nor any piece of one that is base64, wherever its slashes stand", async () => {
    await using server = await startTestServer([modelRoutes]);
    const secrets = [
      "q+Zx0/9c1rTn4mUe2sYb7hVw8kLd5gPj6fXa3oCiQ1E=",
      "q+Zx09c1rTn4mUe2/sYb7hVw8kL/d5gPj6fXa3oCiQ1E=",
    ];
    for (const secret of secrets) {
      const response = await server.fetch(`/v1/nowhere/sk-adm-svc-${secret}`);
      expect(response.status).toBe(404);
      expect(await response.text()).not.toMatch(/q\+Zx0|Tn4mUe2|sYb7hVw8kL|Xa3oCiQ1E/);
    }
    await expect
      .poll(() => server.logged.filter(({ status }) => status === 404).map(({ path }) => path))
      .toEqual(Array(2).fill("/v1/nowhere/[key removed]"));
  });
});

describe("keys (dialects.md §A1, rule 5.8)", () => {
  const get = async (headers: Record<string, string>) => {
    await using server = await startTestServer([modelRoutes]);
    const response = await fetch(`${server.url}/v1/models`, { headers });
    return {
      status: response.status,
      retry: response.headers.get("x-should-retry"),
      text: await response.text(),
    };
  };

  test("either header works, x-api-key first", async () => {
    expect((await get({ "x-api-key": sampleKeys.inference })).status).toBe(200);
    expect((await get({ authorization: `Bearer ${sampleKeys.inference}` })).status).toBe(200);
    expect((await get({ authorization: `bearer   ${sampleKeys.inference}` })).status).toBe(200);
    const both = { "x-api-key": sampleKeys.inference, authorization: "Bearer nonsense" };
    expect((await get(both)).status).toBe(200);
    const reversed = { "x-api-key": "nonsense", authorization: `Bearer ${sampleKeys.inference}` };
    expect((await get(reversed)).status).toBe(401);
    const empty = { "x-api-key": "", authorization: `Bearer ${sampleKeys.inference}` };
    expect((await get(empty)).status).toBe(200);
  });

  const refused: [string, Record<string, string>][] = [
    ["no key", {}],
    ["another scheme", { authorization: `Basic ${sampleKeys.inference}` }],
    ["a malformed key", { "x-api-key": "sk-svc-short" }],
    ["an unknown key", { "x-api-key": `sk-svc-${"z".repeat(40)}` }],
    ["a key with something behind it", { "x-api-key": `${sampleKeys.inference}x` }],
    ["a suspended organization's key", { "x-api-key": sampleKeys.suspended }],
    ["an admin key", { "x-api-key": sampleKeys.admin }],
  ];
  test.each(refused)("%s is 401, must not be retried, and is not repeated", async (_, headers) => {
    const { status, retry, text } = await get(headers);
    expect([status, retry]).toEqual([401, "false"]);
    for (const value of Object.values(headers)) expect(text).not.toContain(value.split(" ").at(-1));
    expect(JSON.parse(text)).toMatchObject({ error: { code: "invalid_api_key" } });
  });

  test("a key of the wrong kind names the kind that is needed, with either header", async () => {
    expect((await get({ "x-api-key": sampleKeys.admin })).text).toMatch(/needs an inference key \(sk-svc-/);
    expect((await get({ authorization: `Bearer ${sampleKeys.admin}` })).text).toMatch(/an inference key/);
    const admin: Routes = (app) =>
      app.get("/v1/organizations/me", { config: { access: "admin" } }, () => "{}");
    await using server = await startTestServer([admin]);
    const response = await server.fetch("/v1/organizations/me");
    expect(response.status).toBe(401);
    expect(await response.text()).toMatch(/needs an admin key \(sk-adm-svc-/);
  });

  test.each([
    ["unknown", `sk-svc-${"z".repeat(40)}`],
    ["of a suspended organization", sampleKeys.suspended],
  ])("a key that is %s is told what may have become of it", async (_, key) => {
    const { message } = (JSON.parse((await get({ "x-api-key": key })).text) as { error: { message: string } })
      .error;
    expect(message).toMatch(/^invalid x-api-key: .*expired.*switched off.*suspended/);
  });

  test("a route that does not say which key it needs cannot be added", async () => {
    const careless: Routes = (app) => app.get("/v1/open", () => "{}");
    await expect(startTestServer([careless])).rejects.toThrow(/does not say which key/);
  });
});
