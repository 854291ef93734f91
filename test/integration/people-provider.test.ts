/** The whole product beside a real OpenID provider: discovery, keys over TLS, official SDKs with tokens from a helper. */
import { writeFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startProvider, type RunningProvider } from "../fakes/provider/provider.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { startProduct, temporaryFolder, writeManifests, type Product } from "./product.ts";

const folder = temporaryFolder();
const manifests = join(folder.path, "manifests");
let provider: RunningProvider;
let upstream: FakeUpstream;
let product: Product;

const declare = (rules: string, more = "") => {
  const file = join(manifests, "people.yaml");
  writeFileSync(
    `${file}.swp`,
    `
apiVersion: gapura.dev/v1alpha1
kind: Organization
metadata: {name: people}
spec:
  id: org_people
  credits: {grants: [{name: first, amount: "1000"}]}
  identity:
    issuer: ${provider.issuer}
    audiences: ["${provider.audience}"]
    allowCIDRs: [127.0.0.1/32]
    rules: ${rules}
${more}`,
  );
  renameSync(`${file}.swp`, file);
};
const RULES = `[{claims: {groups: ml}, role: Member}, {claims: {groups: owners}, role: Admin}]`;

beforeAll(async () => {
  provider = await startProvider(["ada", "agent"]);
  provider.claims.set("ada", { groups: ["ml", "Größe"] });
  provider.claims.set("agent", { groups: "owners" });
  upstream = await startUpstream();
  writeManifests(manifests, upstream.url);
  declare(RULES);
  const authority = join(folder.path, "authority.pem");
  writeFileSync(authority, provider.ca);
  product = await startProduct({
    manifests,
    data: join(folder.path, "data"),
    environment: { NODE_EXTRA_CA_CERTS: authority },
  });
});
afterAll(async () => {
  await product?.stop();
  await upstream?.close();
  await provider?.[Symbol.asyncDispose]();
  folder[Symbol.dispose]();
});

const models = async (token: string) => {
  const answer = await fetch(`${product.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
  return { status: answer.status, text: await answer.text() };
};

test("both official SDKs take tokens from a helper, in the three dialects, and the provider is asked for its keys once", async () => {
  let asked = 0;
  const helper = async () => {
    asked += 1;
    return await provider.token("ada");
  };
  const anthropic = new Anthropic({ baseURL: product.url, apiKey: helper });
  const openai = new OpenAI({ baseURL: `${product.url}/v1`, apiKey: helper });
  const ask = "Hello";
  const message = await anthropic.messages.create({
    model: "m-messages",
    max_tokens: 10,
    messages: [{ role: "user", content: ask }],
  });
  expect(message.role).toBe("assistant");
  const chat = await openai.chat.completions.create({
    model: "m-chat",
    messages: [{ role: "user", content: ask }],
  });
  expect(chat.choices).toHaveLength(1);
  expect((await openai.responses.create({ model: "m-responses", input: ask })).status).toBe("completed");
  expect(asked).toBe(3);
  const documents = provider.asked.filter((path) => path !== "/token");
  expect(documents).toEqual(["/.well-known/openid-configuration", "/jwks"]);
});

test("a key that is new is found, once the provider rotates", async () => {
  const before = await provider.token("ada");
  expect((await models(before)).status).toBe(200);
  provider.rotate();
  const after = await provider.token("ada");
  expect((await models(after)).status).toBe(200);
  // The one before vanished with the same look.
  const refused = await models(before);
  expect([refused.status, refused.text]).toEqual([
    401,
    expect.stringContaining("the token's key is none of its issuer's"),
  ]);
});

test("whoever changes groups is what the next token says; who has none is nobody", async () => {
  const credits = async (token: string) =>
    (await fetch(`${product.url}/v1/organization/credits`, { headers: { "x-api-key": token } })).status;
  expect(await credits(await provider.token("agent"))).toBe(200);
  provider.claims.set("agent", { groups: ["ml"] });
  const member = await provider.token("agent");
  expect([await credits(member), (await models(member)).status]).toEqual([401, 200]);
  provider.claims.delete("agent");
  expect((await models(await provider.token("agent"))).status).toBe(401);
});

test("a change of the rules ends a token within the moment in which the change is served", async () => {
  const token = await provider.token("ada");
  expect((await models(token)).status).toBe(200);
  declare(`[{claims: {groups: Größe}, role: Admin}]`);
  await expect.poll(async () => (await models(token)).status, { timeout: 15_000 }).toBe(401);
  declare(RULES);
  await expect.poll(async () => (await models(token)).status, { timeout: 15_000 }).toBe(200);
});
