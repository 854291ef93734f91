import { expect, test } from "vitest";
import { sampleOrganization, sampleRouting, sampleSnapshot } from "../../test/fakes/sample-snapshot.ts";
import { startTestServer } from "../../test/fakes/test-server.ts";
import { modelRoutes } from "./routes/models.ts";
import { consoleRoutes } from "./console.ts";
import { consoleSignInRoutes, signInOrigins } from "./console-sign-in.ts";
import { UnknownCallers } from "./unknown-callers.ts";

const identity = {
  issuer: "https://login.example.com/tenant",
  audiences: ["gapura"],
  jwksUrl: null,
  allowCidrs: [],
  allowPorts: [],
  rules: [],
};
const signIn = {
  clientId: "gapura-console",
  scopes: ["openid", "offline_access"],
  audience: null,
  resource: "https://gapura.example.com",
  origins: ["https://oauth2.example.com", "https://login.example.com", "https://a.example; script-src *"],
};
const snapshot = sampleSnapshot(
  sampleRouting(1, {
    organizations: [
      sampleOrganization("org_people", { identity: { ...identity, console: signIn } }),
      sampleOrganization("org_tokens", { identity }),
      sampleOrganization("org_keys"),
    ],
  }),
);
const open = (refusals: number) =>
  startTestServer([consoleSignInRoutes, modelRoutes], {
    snapshot: () => snapshot,
    services: { unknownCallers: new UnknownCallers(() => 0, refusals, 1e6) },
  });

test("whoever names the organization is told where its people sign in, without a key", async () => {
  await using server = await open(1e6);
  const answer = await fetch(`${server.url}/v1/organizations/org_people/sign_in`);
  expect([answer.status, answer.headers.get("cache-control")]).toEqual([200, "no-store"]);
  expect(await answer.json()).toEqual({
    type: "console_sign_in",
    organization_id: "org_people",
    issuer: identity.issuer,
    client_id: "gapura-console",
    scopes: ["openid", "offline_access"],
    audience: null,
    resource: "https://gapura.example.com",
  });
});

test("one without sign-in and one that is not there read alike, and guessing is slowed down", async () => {
  await using server = await open(4);
  const ask = async (id: string) => {
    const answer = await fetch(`${server.url}/v1/organizations/${id}/sign_in`);
    const { error } = (await answer.json()) as { error: unknown };
    return [answer.status, error];
  };
  const unknown = await ask("org_nobody");
  expect(unknown[0]).toBe(404);
  expect(await ask("org_tokens")).toEqual(unknown);
  expect(await ask("org_keys")).toEqual(unknown);
  await ask("org_a");
  expect((await ask("org_b"))[0]).toBe(429);
  // Who asks for what is there is not slowed down.
  expect((await fetch(`${server.url}/v1/organizations/org_people/sign_in`)).status).toBe(200);
});

test("who is refused for wrong keys has as many refusals less here", async () => {
  await using server = await open(2);
  const withKey = (key: string) =>
    fetch(`${server.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  const refused = [await withKey("wrong"), await withKey("sk-svc-wrong")];
  expect(refused.map(({ status }) => status)).toEqual([401, 401]);
  expect((await fetch(`${server.url}/v1/organizations/org_nobody/sign_in`)).status).toBe(429);
});

test.each(["org_people", "org_people/", "org_people///", "org_%70eople/", "org_people/?to=keys"])(
  "the page at %s may call the provider, as it signs in there",
  async (named) => {
    const file = { type: "text/html", etag: "e", bytes: Buffer.from("page"), coded: {} };
    await using server = await startTestServer([consoleRoutes(new Map([["index.html", file]]))], {
      snapshot: () => snapshot,
    });
    const { headers } = await fetch(`${server.url}/console/sign-in/${named}`);
    expect(headers.get("content-security-policy")).toContain("connect-src 'self' https://login.example.com ");
  },
);

test("a page's policy names the provider's origins, and nothing that could end a directive", () => {
  expect(signInOrigins(snapshot, "org_people")).toEqual([
    "https://login.example.com",
    "https://oauth2.example.com",
  ]);
  expect(signInOrigins(snapshot, "org_tokens")).toEqual([]);
  expect(signInOrigins(snapshot, "org_nobody")).toEqual([]);
});
