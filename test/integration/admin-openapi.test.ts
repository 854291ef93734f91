/** The OpenAPI document against the server it describes: every route is in it, and answers are what it says. */
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterAll, beforeAll, expect, test } from "vitest";
import { documentPath, type ApiDocument } from "../../dataplane/http/openapi/document.ts";
import { isObject } from "../../dataplane/lib/json-object.ts";
import { AdminWorld } from "./admin-world.ts";

let world: AdminWorld;
let document: ApiDocument;
beforeAll(async () => {
  world = await AdminWorld.open();
  const answer = await world.plane.server.fetch("/openapi.json", { headers: { authorization: "none" } });
  expect(answer.headers.get("content-type")).toContain("application/json");
  document = (await answer.json()) as ApiDocument;
});
afterAll(async () => {
  await world?.close();
});

test("the document has exactly the routes that are served, and asks for a key where they do", () => {
  const served = world.plane.server.server.routes.filter(({ method }) => method !== "HEAD");
  const described = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { security }]) => [
      `${method.toUpperCase()} ${path}`,
      (security as object[]).length > 0,
    ]),
  );
  expect(described.map(String).toSorted()).toEqual(
    served
      .map(({ method, url, access }) => String([`${method} ${documentPath(url)}`, access !== "none"]))
      .toSorted(),
  );
});

/** Of these the document has what the contract shows; the vendors' types judge all of each answer (test/vendor). */
const DIALECTS = ["Message", "ChatCompletion", "Response"];

/** The same with no field that it does not name, in an object of which it names any. */
function closed<Value>(value: Value): Value {
  if (Array.isArray(value)) return value.map(closed) as Value;
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.fromEntries(Object.entries(value).map(([name, field]) => [name, closed(field)]));
  const others = fields["additionalProperties"];
  const isOpen = isObject(fields["properties"]) && !(isObject(others) && Object.keys(others).length > 0);
  return { ...fields, ...(isOpen ? { additionalProperties: false } : {}) } as Value;
}

test("real answers are as the document says", async () => {
  const { schemas } = document["components"] as { schemas: Record<string, object> };
  const dialects = Object.fromEntries(DIALECTS.map((name) => [name, schemas[name]]));
  const strict = { ...document, components: { schemas: { ...closed(schemas), ...dialects } } };
  const ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true });
  ajv.addSchema({ $id: "https://gapura.test/document", ...strict });
  const { a } = world;
  const { body: made } = await world.call(a.admin, "POST", "/v1/organizations/api_keys", {
    body: { name: "x" },
  });
  const { body: other } = await world.call(a.admin, "POST", "/v1/organization/projects/default/api_keys", {
    body: { name: "y" },
  });
  const { body: batch } = await world.call(a.inference, "POST", "/v1/messages/batches", {
    body: { requests: [{ custom_id: "a", params: {} }] },
  });
  const question = [{ role: "user", content: "Hello" }];
  const answers: [string, string, string, unknown][] = [
    ["Organization", a.admin, "GET /v1/organizations/me", undefined],
    ["ApiKeyList", a.admin, "GET /v1/organizations/api_keys", undefined],
    ["NewApiKey", a.admin, "POST /v1/organizations/api_keys", { name: "z" }],
    ["ApiKey", a.admin, `GET /v1/organizations/api_keys/${String(made["id"])}`, undefined],
    ["ApiKey", a.admin, `POST /v1/organizations/api_keys/${String(made["id"])}`, { name: "w" }],
    ["ConfigurationList", a.admin, "GET /v1/organization/configuration", undefined],
    ["UserList", a.admin, "GET /v1/organization/users", undefined],
    ["ProjectList", a.admin, "GET /v1/organization/projects", undefined],
    ["ProjectApiKeyList", a.admin, "GET /v1/organization/projects/default/api_keys", undefined],
    ["NewProjectApiKey", a.admin, "POST /v1/organization/projects/default/api_keys", { name: "v" }],
    [
      "ProjectApiKey",
      a.admin,
      `GET /v1/organization/projects/default/api_keys/${String(other["id"])}`,
      undefined,
    ],
    [
      "DeletedProjectApiKey",
      a.admin,
      `DELETE /v1/organization/projects/default/api_keys/${String(other["id"])}`,
      undefined,
    ],
    ["Key", a.inference, "GET /v1/key", undefined],
    ["Project", a.admin, "POST /v1/organization/projects/default", {}],
    ["Credits", a.admin, "GET /v1/organization/credits", undefined],
    ["Message", a.inference, "POST /v1/messages", { model: "m-messages", max_tokens: 9, messages: question }],
    ["ChatCompletion", a.inference, "POST /v1/chat/completions", { model: "m-chat", messages: question }],
    ["Response", a.inference, "POST /v1/responses", { model: "m-responses", input: "Hello" }],
    [
      "TokenCount",
      a.inference,
      "POST /v1/messages/count_tokens",
      { model: "m-messages", messages: question },
    ],
    ["ModelList", a.inference, "GET /v1/models", undefined],
    ["Model", a.inference, "GET /v1/models/m-chat", undefined],
    ["FileList", a.inference, "GET /v1/files", undefined],
    ["MessageBatchList", a.inference, "GET /v1/messages/batches", undefined],
    ["MessageBatch", a.inference, `GET /v1/messages/batches/${String(batch["id"])}`, undefined],
    ["BatchList", a.inference, "GET /v1/batches", undefined],
  ];
  const faults: string[] = [];
  const check = async (
    [schema, key, operation, body]: (typeof answers)[number],
    headers: Record<string, string> = {},
  ) => {
    const [method = "", path = ""] = operation.split(" ");
    const answer = await world.call(key, method, path, {
      headers,
      ...(body === undefined ? {} : { body }),
    });
    const valid = ajv.validate(
      { $ref: `https://gapura.test/document#/components/schemas/${schema}` },
      answer.body,
    );
    const words = (ajv.errors ?? []).map(
      ({ instancePath, message: what, params }) => `${instancePath} ${what} ${JSON.stringify(params)}`,
    );
    if (!valid) faults.push(`${operation} ${schema}: ${words.join("; ")}`);
  };
  for (const answer of answers) await check(answer);
  await check(["ModelList", a.inference, "GET /v1/models", undefined], { "anthropic-version": "2023-06-01" });
  await world.plane.records.store();
  const { body: requests } = await world.call(a.admin, "GET", "/v1/organization/requests");
  const [{ id = "" } = {}] = requests["data"] as { id?: string }[];
  await check(["RequestList", a.admin, "GET /v1/organization/requests", undefined]);
  await check(["Request", a.admin, `GET /v1/organization/requests/${id}`, undefined]);
  // By now the charges are in the reports.
  const counted = async () => (await world.call(a.admin, "GET", "/v1/organization/usage/completions")).raw;
  await expect.poll(counted, { timeout: 3000 }).toContain('"num_model_requests":3');
  for (const [schema, path] of [
    ["MessagesUsageReport", "/v1/organizations/usage_report/messages?group_by=model,context_window"],
    ["CostReport", "/v1/organizations/cost_report?group_by=description"],
    ["CompletionsUsage", "/v1/organization/usage/completions?group_by=batch"],
    ["Costs", "/v1/organization/costs"],
  ] as const) {
    await check([schema, a.admin, `GET ${path}`, undefined]);
  }
  await check(["MessagesError", a.admin, "GET /v1/organizations/api_keys/none", undefined]);
  await check(["OpenAIError", a.admin, "GET /v1/organization/projects/none/api_keys", undefined]);
  expect(faults).toEqual([]);
});
