/** What a provider's documents and answers may make a page do, without a browser. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { ConsoleSignIn } from "./api/schema.ts";
import { isReturn, leave, renew, signOutAt } from "./provider.ts";

const issuer = "https://login.example.com";
const at: ConsoleSignIn = {
  type: "console_sign_in",
  organization_id: "org_acme",
  issuer,
  client_id: "console",
  scopes: ["openid"],
  audience: null,
  resource: null,
};

/** What the provider says beside its issuer's name and the address of its tokens. */
let document: Record<string, unknown>;
let answer: Record<string, unknown>;
/** Of its answers to questions for tokens. */
let status: number;
let wentTo: string[];
beforeEach(() => {
  document = { authorization_endpoint: `${issuer}/authorize` };
  answer = {};
  status = 200;
  wentTo = [];
  vi.stubGlobal("isSecureContext", true);
  vi.stubGlobal("sessionStorage", { setItem: () => {}, removeItem: () => {} });
  vi.stubGlobal("location", {
    origin: "https://gapura.example.com",
    assign: (url: URL) => wentTo.push(`${url.protocol}//${url.host}${url.pathname}`),
  });
  vi.spyOn(globalThis, "fetch").mockImplementation(async (url) => {
    const isDiscovery = String(url instanceof Request ? url.url : url).includes("/.well-known/");
    const known = {
      issuer,
      token_endpoint: `${issuer}/token`,
      id_token_signing_alg_values_supported: ["ES256"],
    };
    return isDiscovery ? Response.json({ ...known, ...document }) : Response.json(answer, { status });
  });
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

test("a person is sent to the provider with TLS alone, whatever it says", async () => {
  await leave(at, { stay: false, to: "" });
  expect(wentTo).toEqual([`${issuer}/authorize`]);
  for (const endpoint of [
    "http://login.example.com/authorize",
    "javascript:alert(1)",
    "data:text/html,x",
    "away",
  ]) {
    document = { authorization_endpoint: endpoint, end_session_endpoint: endpoint };
    await expect(leave(at, { stay: false, to: "" }), endpoint).rejects.toMatchObject({
      reason: "refused",
      detail: "authorization_endpoint is no https address",
    });
    await expect(signOutAt(at, null), endpoint).rejects.toMatchObject({ reason: "refused" });
  }
  expect(wentTo).toHaveLength(1);
});

const now = Math.floor(Date.now() / 1000);
/** An ID token; nobody here verifies its signature, as it comes from the provider itself. */
const idToken = (sub: string) =>
  [{ alg: "ES256" }, { iss: issuer, aud: "console", sub, iat: now, exp: now + 600 }, "signature"]
    .map((part) => btoa(JSON.stringify(part)))
    .join(".");

test("new tokens are the same person's, or none", async () => {
  const before = { access: "first", id: idToken("ada"), refresh: "one" };
  const fresh = { access_token: "second", token_type: "Bearer" };
  answer = { ...fresh, id_token: idToken("ada"), refresh_token: "two" };
  expect(await renew(at, before)).toEqual({ access: "second", id: idToken("ada"), refresh: "two" });
  answer = { ...fresh, id_token: idToken("mallory") };
  await expect(renew(at, before)).rejects.toMatchObject({ reason: "refused" });
  // A provider need not sign the ID token anew, nor have another refresh token.
  answer = fresh;
  const unsigned = await renew(at, before);
  expect(unsigned).toEqual({ access: "second", id: before.id, refresh: "one" });
  answer = { ...fresh, id_token: idToken("mallory") };
  await expect(renew(at, { ...unsigned, refresh: "one" })).rejects.toMatchObject({ reason: "refused" });
});

test.each([
  [400, "refused"],
  [401, "refused"],
  [429, "away"],
  [500, "away"],
  [503, "away"],
])("a provider that answers %d to a refresh token has %s", async (said, reason) => {
  answer = { error: "why" };
  status = said;
  await expect(renew(at, { access: "first", id: null, refresh: "one" })).rejects.toMatchObject({ reason });
});

test.each([
  ["?code=a&state=b", true],
  ["?error=access_denied&state=b", true],
  ["?code=a", true],
  ["?error=access_denied", true],
  ["?state=b", true],
  ["?to=%2Fconsole%2Fkeys", false],
  ["", false],
])("%j is an answer of a provider: %s", (search, isOne) => {
  expect(isReturn(new URL(`https://gapura.example.com/console/sign-in/org_acme${search}`))).toBe(isOne);
});
