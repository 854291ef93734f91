/**
 * Tokens at the door (rules 13.1–13.3): what is accepted, and with which status and words the rest is refused, in the
 * errors of each dialect. The keys of the issuer are real, its network is not.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { callerRoutes } from "../../test/fakes/caller-routes.ts";
import { compose, FakeIssuer, hmac, type Header, signed, signingKey } from "../../test/fakes/issuer.ts";
import {
  sampleKeys,
  sampleOrganization,
  sampleRouting,
  sampleSource,
  sampleSnapshot,
} from "../../test/fakes/sample-snapshot.ts";
import { SnapshotDirectory } from "../../test/fakes/snapshot-directory.ts";
import { startTestServer, type TestServer } from "../../test/fakes/test-server.ts";
import type { IdentityEntry, OrganizationEntry } from "../config/schema.ts";
import { TokenPeople } from "../identity/people.ts";
import { systemClock } from "../lib/clock.ts";

const rsa = signingKey("RSA", "rsa");
const other = signingKey("RSA", "other");
const bound = signingKey("RSA", "bound", { alg: "PS256" });
const ec = signingKey("EC", "ec");
const ed = signingKey("Ed25519", "ed");
const p384 = signingKey("P384", "p384");
const weak = signingKey("weak", "weak");
const forEncryption = signingKey("RSA", "enc", { use: "enc" });
const forSigning = signingKey("RSA", "ops", { key_ops: ["sign"] });
const nameless = signingKey("RSA", undefined);
/** With the id of a published one. */
const foreign = signingKey("RSA", "rsa");

const issuer = new FakeIssuer("https://login.test", Date.now);
const single = new FakeIssuer("https://single.test", Date.now);
const away = new FakeIssuer("https://away.test", Date.now);
const impostor = new FakeIssuer("https://impostor.test", Date.now);
const shared = new FakeIssuer("https://shared.test", Date.now);
issuer.publish(rsa, bound, ec, ed, p384, weak, forEncryption, forSigning);
issuer.published.push({ kty: "oct", k: "c2VjcmV0", kid: "secret" }, { kid: "nothing" });
single.publish(nameless);
shared.publish(rsa);
away.isAway = true;
// It says where the keys are, as another issuer.
impostor.discovery = { issuer: issuer.url };

const identity = (of: FakeIssuer, more: Partial<IdentityEntry> = {}): IdentityEntry => ({
  issuer: of.url,
  audiences: ["gapura", "https://gapura.test"],
  jwksUrl: null,
  allowCidrs: [],
  allowPorts: [],
  rules: [
    { claims: { groups: "ml" }, role: "member", project: "default" },
    { claims: { "realm_access.roles": "reader" }, role: "viewer" },
    { claims: { "https://claims.test/größe": "日本" }, role: "admin" },
  ],
  ...more,
});

/** Accepts tokens of the issuer that namespaces share. */
const ofNamespace = (id: string, namespace: string, more: Partial<IdentityEntry>) =>
  sampleOrganization(id, {
    source: { ...sampleSource("Organization", id.slice("org_".length)), namespace },
    identity: identity(shared, more),
  });
/** The same of a namespace that others do not trust. */
const ofTenant = (id: string, namespace: string, more: Partial<IdentityEntry>): OrganizationEntry => ({
  ...ofNamespace(id, namespace, more),
  isTenants: true,
});

const organizations = [
  // Before all others, and where it says that the issuer's keys are nobody answers.
  sampleOrganization("org_rude", {
    source: { ...sampleSource("Organization", "rude"), namespace: "0" },
    identity: identity(issuer, { audiences: ["rude"], jwksUrl: `${away.url}/keys` }),
  }),
  sampleOrganization("org_b", {
    source: { ...sampleSource("Organization", "b"), namespace: "a-b" },
    identity: identity(issuer, {
      audiences: ["beta"],
      rules: [{ claims: { team: "b" }, role: "member", project: "default" }],
    }),
  }),
  sampleOrganization("org_a", {
    source: { ...sampleSource("Organization", "a"), namespace: "a" },
    identity: identity(issuer),
  }),
  sampleOrganization("org_off", {
    suspended: true,
    identity: identity(issuer, {
      audiences: ["off"],
      rules: [{ claims: {}, role: "member", project: "default" }],
    }),
  }),
  sampleOrganization("org_single", { identity: identity(single) }),
  sampleOrganization("org_away", { identity: identity(away) }),
  sampleOrganization("org_impostor", { identity: identity(impostor) }),
  // Namespaces that do not trust each other, and one that all of them trust.
  ofNamespace("org_platform", "platform", { audiences: ["platform"] }),
  ofTenant("org_thief", "aaa", {
    audiences: ["account"],
    rules: [{ claims: {}, role: "member", project: "default" }],
  }),
  ofTenant("org_team", "team", { audiences: ["team"] }),
  ofTenant("org_sister", "team", { audiences: ["sister"] }),
];
const routing = sampleRouting(1);
const snapshot = sampleSnapshot({ ...routing, organizations: [...routing.organizations, ...organizations] });

let server: TestServer;
beforeAll(async () => {
  const fetchJson = async (url: string) => {
    const of = [issuer, single, away, impostor, shared].find((one) => url.startsWith(one.url));
    return await of?.fetchJson(url, { allowCidrs: [], allowPorts: [] });
  };
  const directory = new SnapshotDirectory(() => snapshot);
  const people = new TokenPeople({ snapshot: () => snapshot, directory, fetchJson, clock: systemClock });
  server = await startTestServer([callerRoutes], { snapshot: () => snapshot, services: { people } });
});
afterAll(() => server[Symbol.asyncDispose]());

const ask = async (method: string, path: string, headers: Record<string, string>) => {
  const answer = await server.fetch(path, { method, headers });
  return {
    status: answer.status,
    headers: answer.headers,
    body: (await answer.json()) as Record<string, unknown>,
  };
};
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

const now = () => Math.floor(Date.now() / 1000);
const b64 = (text: string) => Buffer.from(text).toString("base64url");
const good = () => issuer.token(rsa);
const parts = (token: string) => token.split(".") as [string, string, string];

interface Case {
  readonly title: string;
  readonly token: () => string;
}

describe("accepted", () => {
  const cases: readonly (Case & { readonly as?: object })[] = [
    { title: "RS256", token: good },
    { title: "PS256 with a key of any RSA algorithm", token: () => issuer.token(rsa, {}, { alg: "PS256" }) },
    { title: "PS256 with a key for it", token: () => issuer.token(bound, {}, { alg: "PS256" }) },
    { title: "ES256", token: () => issuer.token(ec, {}, { alg: "ES256" }) },
    { title: "EdDSA", token: () => issuer.token(ed, {}, { alg: "EdDSA" }) },
    { title: "a list of audiences", token: () => issuer.token(rsa, { aud: ["x", "https://gapura.test"] }) },
    { title: "expired for less than a minute", token: () => issuer.token(rsa, { exp: now() - 50 }) },
    { title: "valid in less than a minute", token: () => issuer.token(rsa, { nbf: now() + 50 }) },
    {
      title: "issued in the future: only nbf says from when",
      token: () => issuer.token(rsa, { iat: now() + 500 }),
    },
    { title: "fractions of seconds", token: () => issuer.token(rsa, { exp: now() + 60.5 }) },
    { title: "no typ", token: () => issuer.token(rsa, {}, { typ: undefined }) },
    { title: "an access token's typ", token: () => issuer.token(rsa, {}, { typ: "at+jwt" }) },
    { title: "a subject in Unicode", token: () => issuer.token(rsa, { sub: "Zoë 🦩" }) },
    {
      title: "no kid, of an issuer with one key",
      token: () => single.token(nameless),
      as: { organizationId: "org_single" },
    },
    {
      title: "300 groups",
      token: () =>
        issuer.token(rsa, { groups: [...Array.from({ length: 300 }, (_, n) => `group-${n}`), "ml"] }),
    },
    {
      title: "the organization whose rules match, of two with one issuer",
      token: () => issuer.token(rsa, { aud: "beta", team: "b", groups: [] }),
      as: { organizationId: "org_b" },
    },
    {
      title: "the first by namespace and name, where both match",
      token: () => issuer.token(rsa, { aud: ["beta", "gapura"], team: "b" }),
      as: { organizationId: "org_a" },
    },
    {
      title: "the platform's, where a tenant whose namespace comes first would take it as well",
      token: () => shared.token(rsa, { aud: ["platform", "account"] }),
      as: { organizationId: "org_platform" },
    },
    {
      title: "the only one whose rules match, of two tenants",
      token: () => shared.token(rsa, { aud: ["team", "account"], groups: [] }),
      as: { organizationId: "org_thief" },
    },
    {
      title: "the first by name, of one tenant's two",
      token: () => shared.token(rsa, { aud: ["team", "sister"] }),
      as: { organizationId: "org_sister" },
    },
  ];
  test.each(cases)("$title", async ({ token, as = { organizationId: "org_a" } }) => {
    const { status, body } = await ask("POST", "/v1/messages", bearer(token()));
    expect([status, body]).toMatchObject([200, { kind: "inference", projectId: "default", ...as }]);
    expect(body["keyId"]).toMatch(/^usr_[0-9A-Za-z]{24}$/);
  });

  test("in the header x-api-key as well", async () => {
    expect((await ask("POST", "/v1/messages", { "x-api-key": good() })).status).toBe(200);
  });

  test("the same person has one id, whichever token says so; another organization's has another", async () => {
    const idOf = async (token: string) => (await ask("POST", "/v1/messages", bearer(token))).body["keyId"];
    const first = await idOf(issuer.token(rsa));
    expect(await idOf(issuer.token(ec, { name: "Ada", exp: now() + 5 }, { alg: "ES256" }))).toBe(first);
    expect(await idOf(issuer.token(rsa, { sub: "bob" }))).not.toBe(first);
    expect(await idOf(issuer.token(rsa, { aud: "beta", team: "b", groups: [] }))).not.toBe(first);
  });
});

const unsigned = (header: Header) => compose({ kid: "rsa", ...header }, issuer.claims());
const pem = rsa.publicKey.export({ type: "spki", format: "pem" });
const der = rsa.publicKey.export({ type: "spki", format: "der" });

/** 86 characters of base64url have 4 bits more than 64 bytes. */
const nextLast = (token: string) =>
  token.slice(0, -1) + String.fromCharCode((token.at(-1) ?? "").charCodeAt(0) + 1);

const ALGORITHM = "the token's algorithm is not one of RS256, PS256, ES256 and EdDSA";
const MALFORMED = "the token is malformed";
const KEY = "the token's key is none of its issuer's";
const SIGNATURE = "the token's signature is not its issuer's";
const ISSUER = "no organization accepts tokens of this issuer";
const AUDIENCE = "the token is for another audience";
const RULE = "no rule of the organization matches the token's claims";
const CLAIMS = "the token's exp, nbf, iat or sub is not what it has to be";
const EXPIRED = "the token has expired";

const refused: readonly (Case & { readonly words: string })[] = [
  // Algorithm confusion.
  { title: "alg none", token: () => unsigned({ alg: "none" }), words: ALGORITHM },
  { title: "alg None", token: () => unsigned({ alg: "None" }), words: ALGORITHM },
  { title: "alg NONE with a signature", token: () => `${unsigned({ alg: "NONE" })}AAAA`, words: ALGORITHM },
  { title: "no alg", token: () => unsigned({}), words: MALFORMED },
  { title: "alg as a list", token: () => unsigned({ alg: ["RS256"] }), words: MALFORMED },
  { title: "RS256 without a signature", token: () => unsigned({ alg: "RS256" }), words: SIGNATURE },
  {
    title: "HS256 with the public key as PEM (CVE-2015-9235, CVE-2016-5431, CVE-2022-29217, CVE-2024-54150)",
    token: () => hmac({ alg: "HS256", kid: "rsa" }, issuer.claims(), pem),
    words: ALGORITHM,
  },
  {
    title: "HS256 with the public key as DER",
    token: () => hmac({ alg: "HS256", kid: "rsa" }, issuer.claims(), der),
    words: ALGORITHM,
  },
  {
    title: "HS256 with a secret that the issuer publishes",
    token: () => hmac({ alg: "HS256", kid: "secret" }, issuer.claims(), "secret"),
    words: ALGORITHM,
  },
  {
    title: "RS256 over the kid of a shared secret",
    token: () => issuer.token(rsa, {}, { kid: "secret" }),
    words: KEY,
  },
  {
    title: "ES256 with a signature of zeros (CVE-2022-21449)",
    token: () => compose({ alg: "ES256", kid: "ec" }, issuer.claims(), () => Buffer.alloc(64)),
    words: SIGNATURE,
  },
  {
    title: "a signature whose last character holds other bits that mean nothing",
    token: () => nextLast(issuer.token(ec, {}, { alg: "ES256" })),
    words: SIGNATURE,
  },
  { title: "RS512", token: () => issuer.token(rsa, {}, { alg: "RS512" }), words: ALGORITHM },
  { title: "ES384", token: () => issuer.token(p384, {}, { alg: "ES384" }), words: ALGORITHM },
  {
    title: "ES256 over another curve's key",
    token: () => issuer.token(ec, {}, { alg: "ES256", kid: "p384" }),
    words: KEY,
  },
  { title: "RS256 with a key that is for PS256 alone", token: () => issuer.token(bound), words: KEY },
  {
    title: "RS256 over the kid of an elliptic key",
    token: () => issuer.token(rsa, {}, { kid: "ec" }),
    words: KEY,
  },
  { title: "RS256 with a key of 1024 bits", token: () => issuer.token(weak), words: SIGNATURE },
  { title: "a key for encryption", token: () => issuer.token(forEncryption), words: KEY },
  { title: "a key that does not verify", token: () => issuer.token(forSigning), words: KEY },
  // Keys that the token brings.
  {
    title: "its own key in the header (CVE-2018-0114)",
    token: () => issuer.token(foreign, {}, { jwk: foreign.jwk }),
    words: SIGNATURE,
  },
  {
    title: "an address of keys in the header (jku)",
    token: () => issuer.token(other, {}, { jku: "https://evil.test/keys" }),
    words: KEY,
  },
  {
    title: "a certificate in the header (x5c, x5u)",
    token: () => issuer.token(foreign, {}, { x5c: ["AAAA"], x5u: "https://evil.test/cert" }),
    words: SIGNATURE,
  },
  { title: "a key with the id of a published one", token: () => issuer.token(foreign), words: SIGNATURE },
  { title: "a key that is not published", token: () => issuer.token(other), words: KEY },
  {
    title: "a kid that is a path",
    token: () => issuer.token(rsa, {}, { kid: "../../../../dev/null" }),
    words: KEY,
  },
  {
    title: "a kid that is SQL",
    token: () => issuer.token(rsa, {}, { kid: "x' union select 'secret" }),
    words: KEY,
  },
  {
    title: "a kid that every object has",
    token: () => issuer.token(rsa, {}, { kid: "__proto__" }),
    words: KEY,
  },
  { title: "a kid that is a number", token: () => issuer.token(rsa, {}, { kid: 7 }), words: MALFORMED },
  { title: "an empty kid", token: () => issuer.token(rsa, {}, { kid: "" }), words: KEY },
  {
    title: "no kid, of an issuer with several keys",
    token: () => issuer.token(rsa, {}, { kid: undefined }),
    words: "the token names no key (kid), and its issuer has several",
  },
  {
    title: "a kid, where the only key has none",
    token: () => single.token(nameless, {}, { kid: "x" }),
    words: KEY,
  },
  // Issuers.
  {
    title: "an issuer that nobody accepts",
    token: () => issuer.token(rsa, { iss: "https://evil.test" }),
    words: ISSUER,
  },
  {
    title: "an issuer with a slash more",
    token: () => issuer.token(rsa, { iss: "https://login.test/" }),
    words: ISSUER,
  },
  {
    title: "a part of an accepted issuer (CVE-2024-53861)",
    token: () => issuer.token(rsa, { iss: "https://login" }),
    words: ISSUER,
  },
  {
    title: "an issuer in other letters",
    token: () => issuer.token(rsa, { iss: "https://LOGIN.test" }),
    words: ISSUER,
  },
  {
    title: "a list of issuers (CVE-2025-30144)",
    token: () => issuer.token(rsa, { iss: [issuer.url] }),
    words: MALFORMED,
  },
  { title: "no issuer", token: () => issuer.token(rsa, { iss: undefined }), words: MALFORMED },
  {
    title: "another accepted issuer's key: the issuer is verified, not believed",
    token: () => issuer.token(nameless, {}, { kid: "rsa" }),
    words: SIGNATURE,
  },
  // Time.
  { title: "expired for a minute", token: () => issuer.token(rsa, { exp: now() - 61 }), words: EXPIRED },
  { title: "expired in 1970", token: () => issuer.token(rsa, { exp: 0 }), words: EXPIRED },
  {
    title: "no expiry",
    token: () => issuer.token(rsa, { exp: undefined }),
    words: "the token has no expiry (exp)",
  },
  { title: "an expiry in words", token: () => issuer.token(rsa, { exp: String(now() + 60) }), words: CLAIMS },
  {
    title: "an expiry beyond all numbers",
    token: () =>
      signed(
        { alg: "RS256", kid: "rsa" },
        JSON.stringify(issuer.claims()).replace(/"exp":\d+/, '"exp":1e999'),
        rsa,
      ),
    words: CLAIMS,
  },
  {
    title: "valid in two minutes",
    token: () => issuer.token(rsa, { nbf: now() + 120 }),
    words: "the token is not valid yet",
  },
  { title: "nbf in words", token: () => issuer.token(rsa, { nbf: "now" }), words: CLAIMS },
  // Subject, audience, rules.
  {
    title: "no subject",
    token: () => issuer.token(rsa, { sub: undefined }),
    words: "the token has no subject (sub)",
  },
  {
    title: "an empty subject",
    token: () => issuer.token(rsa, { sub: "" }),
    words: "the token has no subject (sub)",
  },
  { title: "a subject that is a number", token: () => issuer.token(rsa, { sub: 7 }), words: CLAIMS },
  { title: "another audience", token: () => issuer.token(rsa, { aud: "gapura2" }), words: AUDIENCE },
  { title: "no audience", token: () => issuer.token(rsa, { aud: undefined }), words: AUDIENCE },
  {
    title: "audiences as an object",
    token: () => issuer.token(rsa, { aud: { gapura: true } }),
    words: AUDIENCE,
  },
  { title: "another group", token: () => issuer.token(rsa, { groups: ["ml2"] }), words: RULE },
  { title: "no groups", token: () => issuer.token(rsa, { groups: undefined }), words: RULE },
  {
    title: "the group in one text with others",
    token: () => issuer.token(rsa, { groups: "ops ml" }),
    words: RULE,
  },
  {
    title: "a rule of one organization with the audience of another",
    token: () => issuer.token(rsa, { aud: "gapura", team: "b", groups: [] }),
    words: RULE,
  },
  {
    title: "a suspended organization's audience",
    token: () => issuer.token(rsa, { aud: "off" }),
    words: "the organization is suspended",
  },
  // Forms.
  {
    title: "a changed payload",
    token: () => {
      const [header, , signature] = parts(good());
      return `${header}.${b64(JSON.stringify(issuer.claims({ sub: "root" })))}.${signature}`;
    },
    words: SIGNATURE,
  },
  { title: "a cut signature", token: () => good().slice(0, -8), words: SIGNATURE },
  {
    title: "a payload that is no JSON",
    token: () => signed({ alg: "RS256", kid: "rsa" }, "{", rsa),
    words: MALFORMED,
  },
  {
    title: "a payload that is a list",
    token: () => signed({ alg: "RS256", kid: "rsa" }, [1], rsa),
    words: MALFORMED,
  },
  { title: "a header that is no JSON", token: () => `${b64("{")}.${b64("{}")}.AAAA`, words: MALFORMED },
  {
    title: "a header that has to be understood (crit)",
    token: () => issuer.token(rsa, {}, { crit: ["x"], x: 1 }),
    words: MALFORMED,
  },
  {
    title: "an unencoded payload (b64)",
    token: () => issuer.token(rsa, {}, { crit: ["b64"], b64: false }),
    words: MALFORMED,
  },
  {
    title: "audiences of two namespaces that do not trust each other, and both would take it",
    token: () => shared.token(rsa, { aud: ["team", "account"] }),
    words: "the token is for audiences of several namespaces, of which each would take it",
  },
  {
    title: "more than 16 KiB",
    token: () => issuer.token(rsa, { groups: ["ml", "x".repeat(13_000)] }),
    words: "the token is larger than 16 KiB",
  },
];

test("there are as many cases as were promised", () => {
  expect(refused.length).toBeGreaterThanOrEqual(60);
});

describe("refused with 401, in the words of each dialect", () => {
  test.each(refused)("$title", async ({ token, words }) => {
    const text = token();
    const message = `invalid x-api-key: ${words}.`;
    for (const path of ["/v1/chat/completions", "/v1/responses"]) {
      const { status, headers, body } = await ask("POST", path, bearer(text));
      expect([status, headers.get("x-should-retry"), body]).toEqual([
        401,
        "false",
        { error: { message, type: "invalid_request_error", param: null, code: "invalid_api_key" } },
      ]);
    }
    const { status, body } = await ask("POST", "/v1/messages", { "x-api-key": text });
    expect([status, body]).toMatchObject([
      401,
      { type: "error", error: { type: "authentication_error", message } },
    ]);
    expect(JSON.stringify(body)).not.toContain(text);
  });

  test.each([
    ["two parts", "aaaa.bbbb"],
    ["five parts: an encrypted token", "aaaa.bbbb.cccc.dddd.eeee"],
    ["no base64url", "aa+a.bbbb.cccc"],
    ["blanks within", "aaaa. bbbb.cccc"],
    ["an empty payload", "aaaa..cccc"],
  ])("what has not the form of a token is a wrong key: %s", async (_, text) => {
    const { status, body } = await ask("POST", "/v1/chat/completions", bearer(text));
    expect([status, body]).toMatchObject([
      401,
      { error: { message: "invalid x-api-key: incorrect API key provided." } },
    ]);
  });
});

test.each([
  ["an issuer that is away", () => away.token(rsa)],
  ["an issuer that speaks for another one", () => impostor.token(rsa)],
])("%s: 503, to be tried again", async (_, token) => {
  const { status, headers, body } = await ask("POST", "/v1/messages", bearer(token()));
  expect([status, headers.get("retry-after"), body]).toMatchObject([
    503,
    "5",
    { error: { message: "The keys of the token's issuer cannot be read right now. Try again in a moment." } },
  ]);
});

test("before the first snapshot: 503, as for keys", async () => {
  const directory = new SnapshotDirectory(() => null);
  const people = new TokenPeople({
    snapshot: () => null,
    directory,
    fetchJson: issuer.fetchJson,
    clock: systemClock,
  });
  await expect(people.find(good())).rejects.toMatchObject({ code: "unavailable" });
  await expect(people.find("aaaa.bbbb.cccc")).rejects.toMatchObject({ code: "authentication" });
});

describe("roles (rule 13.3)", () => {
  const member = () => issuer.token(rsa);
  const viewer = () => issuer.token(rsa, { groups: [], realm_access: { roles: ["other", "reader"] } });
  const admin = () => issuer.token(rsa, { groups: [], "https://claims.test/größe": "日本" });
  const read = ["GET", "/v1/organization/credits"] as const;
  const write = ["POST", "/v1/organization/projects"] as const;
  const infer = ["POST", "/v1/chat/completions"] as const;

  test.each([
    ["a member infers", member, infer, 200],
    ["a member does not read the admin API", member, read, 401],
    ["a member does not write there", member, write, 401],
    ["a viewer does not infer", viewer, infer, 401],
    ["a viewer reads the admin API", viewer, read, 200],
    ["a viewer does not write there", viewer, write, 403],
    ["an admin does not infer", admin, infer, 401],
    ["an admin reads", admin, read, 200],
    ["an admin writes", admin, write, 200],
  ] as const)("%s", async (_, token, [method, path], status) => {
    const answer = await ask(method, path, bearer(token()));
    expect(answer.status).toBe(status);
  });

  test("in words", async () => {
    const wrong = await ask(...read, bearer(member()));
    expect(wrong.body).toEqual({
      error: {
        message:
          "invalid x-api-key: this endpoint needs an admin key (sk-adm-svc-…) or a token with the role Admin or Viewer; yours has the role Member.",
        type: "invalid_request_error",
        param: null,
        code: "invalid_api_key",
      },
    });
    const forbidden = await ask(...write, bearer(viewer()));
    expect(forbidden.body).toEqual({
      error: {
        message: "The role Viewer reads the admin API and changes nothing: this needs the role Admin.",
        type: "invalid_request_error",
        param: null,
        code: "insufficient_permissions",
      },
    });
  });

  test("HEAD reads", async () => {
    const answer = await server.fetch("/v1/organization/credits", {
      method: "HEAD",
      headers: bearer(viewer()),
    });
    expect(answer.status).toBe(200);
  });

  test("a person who changes groups is whom the new token says, at once", async () => {
    expect((await ask(...read, bearer(viewer()))).status).toBe(200);
    expect((await ask(...infer, bearer(member()))).status).toBe(200);
    expect((await ask(...read, bearer(viewer()))).status).toBe(200);
  });

  test("keys go on as before", async () => {
    expect((await ask(...infer, bearer(sampleKeys.inference))).status).toBe(200);
    expect((await ask(...write, bearer(sampleKeys.admin))).status).toBe(200);
  });
});

test("a cache keyed by a part of the token (CVE-2026-35030): what was kept for one token opens nothing for another that begins, or ends, alike", async () => {
  const token = good();
  expect((await ask("POST", "/v1/messages", bearer(token))).status).toBe(200);
  const [header, payload, signature] = parts(token);
  const changed = `${signature.slice(0, -10)}AAAAAAAAAA`;
  expect((await ask("POST", "/v1/messages", bearer(`${header}.${payload}.${changed}`))).status).toBe(401);
  const claims = b64(JSON.stringify(issuer.claims({ sub: "eve" })));
  expect((await ask("POST", "/v1/messages", bearer(`${header}.${claims}.${signature}`))).status).toBe(401);
  expect((await ask("POST", "/v1/messages", bearer(token))).status).toBe(200);
});

test("nothing of a token or of who sent it stands in the log", async () => {
  const token = issuer.token(rsa, { name: "Ada Lovelace", email: "ada@example.com", sub: "secret-subject" });
  await ask("POST", "/v1/messages", bearer(token));
  await ask("GET", `/v1/files/${token}`, bearer(token));
  await ask("POST", `/v1/${token}`, bearer(token));
  const log = JSON.stringify(server.logged);
  for (const text of [token, parts(token)[1], "Lovelace", "ada@example.com", "secret-subject"])
    expect(log).not.toContain(text);
  expect(log).toMatch(/usr_[0-9A-Za-z]{24}/);
});
