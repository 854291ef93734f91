/** How long a person's sign-in lasts where their provider does not answer, without a browser. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { admin, expelled, resumePerson, session } from "./session.ts";

const issuer = "https://login.example.com";
const at = {
  type: "console_sign_in",
  organization_id: "org_acme",
  issuer,
  client_id: "console",
  scopes: ["openid"],
  audience: null,
  resource: null,
} as const;

/** What the provider answers to a question for tokens; null: it cannot be reached. */
let provider: { readonly status: number; readonly said: object } | null;
/** Tokens that the service was asked with. */
let used: string[];
beforeEach(() => {
  used = [];
  vi.stubGlobal("isSecureContext", true);
  vi.spyOn(globalThis, "fetch").mockImplementation(async (asked, init) => {
    const url = String(asked instanceof Request ? asked.url : asked);
    if (url.includes("/.well-known/")) return Response.json({ issuer, token_endpoint: `${issuer}/token` });
    if (url.startsWith(issuer)) {
      if (provider === null) throw new TypeError("fetch failed");
      return Response.json(provider.said, { status: provider.status });
    }
    used.push(new Headers(init?.headers).get("authorization")?.slice("Bearer ".length) ?? "");
    return Response.json({ name: "Acme", role: "admin" });
  });
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  session.set(null);
  expelled.set(false);
});

const token = (seconds: number) =>
  `e30.${btoa(JSON.stringify({ exp: Math.floor(Date.now() / 1000) + seconds }))}.s`;
const person = (access: string) => ({
  at,
  kind: "access_token" as const,
  stay: false,
  tokens: { access, id: null, refresh: "one" },
});

test.each([
  ["cannot be reached", null],
  ["fails", { status: 503, said: {} }],
] as const)("a token that has not ended yet is used while the provider %s", async (_, said) => {
  provider = said;
  const access = token(20);
  await resumePerson(person(access));
  await admin("GET /v1/organization/credits");
  expect(new Set(used)).toEqual(new Set([access]));
  expect([session.value?.organization, expelled.value]).toEqual(["Acme", false]);
});

test("of one that has ended it is told that the provider is away, and nobody is signed out for it", async () => {
  provider = { status: 503, said: {} };
  const one = person(token(20));
  await resumePerson(one);
  one.tokens = { ...one.tokens, access: token(-1) };
  await expect(admin("GET /v1/organization/credits")).rejects.toMatchObject({ reason: "away" });
  expect([session.value?.organization, expelled.value]).toEqual(["Acme", false]);
});

test("whom the provider refuses is signed out", async () => {
  provider = { status: 200, said: { access_token: token(20), token_type: "Bearer" } };
  await resumePerson(person(token(20)));
  provider = { status: 400, said: { error: "invalid_grant" } };
  await expect(admin("GET /v1/organization/credits")).rejects.toMatchObject({ reason: "refused" });
  expect([session.value, expelled.value]).toEqual([null, true]);
});
