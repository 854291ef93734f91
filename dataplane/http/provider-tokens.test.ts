/**
 * Tokens of a real OpenID provider at the door, numbered, each with its exact status and words (rules 13.1 to 13.3). The provider
 * mints what it can be told to mint; what no provider mints is signed with its own keys. Faults that other programs had
 * are named by their CVE.
 */
import { sign as signBytes } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { compose, hmac, type Header, signed, signingKey } from "../../test/fakes/issuer.ts";
import { CHANGE, Door, INFER, READ, refusal } from "../../test/fakes/provider/door.ts";

let door: Door;
beforeAll(async () => {
  door = await Door.open();
});
afterAll(() => door?.[Symbol.asyncDispose]());

const mint: Door["mint"] = (...asked) => door.mint(...asked);
const forge: Door["forge"] = (...asked) => door.forge(...asked);
const claims: Door["claims"] = (more) => door.claims(more);
const ec = () => door.keyOf("ec");
/** Of parts that no library writes. */
const odd = (header: Header) => signed({ alg: "ES256", kid: ec().kid, ...header }, claims(), ec());
const unsigned = (header: Header, signature = "") =>
  compose({ kid: ec().kid, ...header }, claims(), () => signature);
/** Signed with what everybody knows: a public key, as a text or as bytes. */
const confused = (alg: string, name: string, isText = true) => {
  const { publicKey, kid } = door.keyOf(name);
  const der = publicKey.export({ type: "spki", format: "der" });
  return hmac({ alg, kid }, claims(), isText ? publicKey.export({ type: "spki", format: "pem" }) : der);
};
/** Of a key that is nobody's. */
const stranger = signingKey("EC", "stranger");
const strange = (header: Header) => signed({ alg: "ES256", ...header }, claims(), stranger);
const b64 = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
type Parts = readonly [header: string, payload: string, signature: string];
/** A good token's parts, put together otherwise. */
const remade = async (make: (...parts: Parts) => string) =>
  make(...((await mint()).split(".") as unknown as Parts));
const rewritten = (from: RegExp, to: string) => forge(JSON.stringify(claims()).replace(from, to));
const now = () => Math.floor(Date.now() / 1000);
const roles = (...names: string[]) => ({ groups: [], email_verified: true, realm_access: { roles: names } });
const size = "https://claims.test/größe";

type Tokens = Readonly<Record<string, () => string | Promise<string>>>;
interface Group {
  readonly tokens: Tokens;
  readonly route?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Seconds by which the service's clock is ahead of the provider's. */
  readonly ahead?: number;
}

const ADA = { kind: "inference", organizationId: "org_a", projectId: "default", keyId: expect.any(String) };
const VIEWER = { ...ADA, kind: "viewer", projectId: null };
const ADMIN = { ...VIEWER, kind: "admin" };

const accepted: readonly (Group & { readonly as: Readonly<Record<string, unknown>> })[] = [
  {
    as: ADA,
    tokens: {
      ES256: () => mint(),
      RS256: () => mint({}, { alg: "RS256" }),
      PS256: () => mint({}, { alg: "PS256" }),
      EdDSA: () => mint({}, { alg: "EdDSA" }),
      "an ID token's typ": () => mint({}, { header: { typ: "JWT" } }),
      "no typ": () => mint({}, { header: { typ: undefined } }),
      "an audience in a list of others": () => mint({ aud: ["urn:x", door.shared.audience] }),
      "a claim that is a text and no list": () => mint({ groups: "ml" }),
      "the last of 400 groups": () =>
        mint({ groups: [...Array.from({ length: 400 }, (_, n) => `team-${n}`), "ml"] }),
      "a subject in Unicode": () => mint({ sub: "Zoë 日本 🦩" }),
      "the first rule of two that match": () => mint({ level: 3 }),
      "the first organization by namespace, where both match": () =>
        mint({ aud: ["urn:beta", door.shared.audience], team: "b" }),
    },
  },
  {
    as: { ...ADA, organizationId: "org_b" },
    tokens: {
      "the organization whose audience it is, of two with one issuer": () =>
        mint({ aud: "urn:beta", team: "b" }),
      "the second organization, where no rule of the first matches": () =>
        mint({ aud: ["urn:beta", door.shared.audience], team: "b", groups: [] }),
    },
  },
  {
    as: { ...ADA, organizationId: "org_single" },
    tokens: {
      "no kid, of an issuer with one key": () => mint({}, { of: door.single, header: { kid: undefined } }),
    },
  },
  { as: ADA, ahead: 650, tokens: { "expired for less than a minute, by a clock ahead": () => mint() } },
  {
    as: ADA,
    ahead: -50,
    tokens: { "valid in less than a minute, by a clock behind": () => mint({ nbf: now() }) },
  },
  { as: ADA, ahead: -500, tokens: { "issued in the future, without nbf": () => mint() } },
  {
    as: VIEWER,
    route: READ,
    tokens: { "a claim within a claim, and a boolean": () => mint(roles("writer", "reader")) },
  },
  {
    as: ADMIN,
    route: READ,
    tokens: {
      "Unicode in a claim's name and text": () => mint({ groups: [], [size]: ["日本"] }),
      "a number": () => mint({ groups: [], level: 3 }),
    },
  },
  { as: ADMIN, route: CHANGE, tokens: { "an admin changes": () => mint({ groups: [], level: 3 }) } },
];

const AN_ADMIN = "an admin key (sk-adm-svc-…) or a token with the role Admin or Viewer";
const A_MEMBER = "an inference key (sk-svc-…) or a token with the role Member";

const refused: readonly (Group & { readonly words: string })[] = [
  {
    words: "the token's algorithm is not one of RS256, PS256, ES256 and EdDSA",
    tokens: {
      "CVE-2022-23540, CVE-2018-1000531, CVE-2021-22160: alg none": () => unsigned({ alg: "none" }),
      "alg none in other letters": () => unsigned({ alg: "nOnE" }),
      "alg none over the rest of a good token": () =>
        remade((_, payload, signature) => `${b64({ alg: "none" })}.${payload}.${signature}`),
      "CVE-2015-9235, CVE-2016-5431, CVE-2016-10555, CVE-2022-23541, CVE-2023-48223, CVE-2023-48238: HS256 with an RSA public key":
        () => confused("HS256", "rsa"),
      "CVE-2022-29217, CVE-2024-33663: HS256 with an elliptic public key": () => confused("HS256", "ec"),
      "CVE-2024-37568: HS256 with a public key's bytes": () => confused("HS256", "rsa", false),
      "HS256, of the provider": () => mint({}, { alg: "HS256", secret: Buffer.alloc(32, 7) }),
      "HS384, of the provider": () => mint({}, { alg: "HS384", secret: Buffer.alloc(48, 7) }),
      "HS512, of the provider": () => mint({}, { alg: "HS512", secret: Buffer.alloc(64, 7) }),
      "RS512, of the provider": () => mint({}, { alg: "RS512" }),
      "ES384, of the provider": () => mint({}, { alg: "ES384" }),
      ...Object.fromEntries(
        ["RS384", "PS384", "PS512", "ES512", "ES256K", "Ed448", "es256", "RS256\0"].map((alg) => [
          JSON.stringify(alg),
          () => unsigned({ alg }, "AAAA"),
        ]),
      ),
    },
  },
  {
    words: "the token's key is none of its issuer's",
    tokens: {
      "a key's alg binds: PS256 with the one for RS256": () =>
        forge(claims(), { alg: "PS256" }, door.keyOf("rsa")),
      "a key's alg binds: RS256 with the one for PS256": () =>
        forge(claims(), { alg: "RS256" }, door.keyOf("ps")),
      "CVE-2022-23539: RS256 with a key of another kind": () => unsigned({ alg: "RS256" }, "AAAA"),
      "EdDSA with an elliptic key's id": () => unsigned({ alg: "EdDSA" }, "AAAA"),
      "CVE-2024-21643: an address of keys in the header (jku)": () =>
        strange({ jku: `${door.single.issuer}/jwks`, kid: "stranger" }),
      "a kid that is nobody's": () => strange({ kid: "stranger" }),
      "kid injection: a path": () => mint({}, { header: { kid: "../../../../dev/null" } }),
      "kid injection: a path to the key itself": () => mint({}, { header: { kid: `./${ec().kid}` } }),
      "kid injection: an address": () => mint({}, { header: { kid: `${door.single.issuer}/jwks` } }),
      "kid injection: SQL": () => mint({}, { header: { kid: "x' union select 'key' --" } }),
      "kid injection: a command": () => mint({}, { header: { kid: "ec|touch /tmp/x" } }),
      "kid injection: what every object has": () => mint({}, { header: { kid: "__proto__" } }),
      "the kid of another key of the issuer": () => mint({}, { header: { kid: door.keyOf("rsa").kid } }),
      "a kid with a NUL behind it": () => mint({}, { header: { kid: `${ec().kid}\0` } }),
      "an empty kid": () => mint({}, { header: { kid: "" } }),
      "an unverified issuer: another accepted provider's token under this one's name": () =>
        forge(claims(), {}, door.keyOf("", door.single)),
      "a token of this provider under another accepted one's name": () =>
        forge(claims({ iss: door.single.issuer })),
    },
  },
  {
    words: "the token names no key (kid), and its issuer has several",
    tokens: { "no kid": () => mint({}, { header: { kid: undefined } }) },
  },
  {
    words: "the token's signature is not its issuer's",
    tokens: {
      "CVE-2018-0114: its own key in the header (jwk)": () => strange({ jwk: stranger.jwk, kid: ec().kid }),
      "an address of a certificate in the header (x5u)": () =>
        strange({ x5u: "https://127.0.0.1:1/x", kid: ec().kid }),
      "a certificate in the header (x5c)": () => strange({ x5c: ["AAAA"], kid: ec().kid }),
      "nobody's key under a kid of the issuer": () => strange({ kid: ec().kid }),
      "another accepted provider's key under a kid of this one": () =>
        forge(claims(), { kid: ec().kid }, door.keyOf("", door.single)),
      "CVE-2024-54150: HMAC with a public key under the name of an accepted algorithm": () => {
        const [header = "", ...rest] = confused("HS256", "rsa").split(".");
        const { kid } = JSON.parse(Buffer.from(header, "base64url").toString()) as { kid: string };
        return [b64({ alg: "RS256", kid }), ...rest].join(".");
      },
      "CVE-2022-21449: a psychic signature of zeros": () =>
        compose({ alg: "ES256", kid: ec().kid }, claims(), () => Buffer.alloc(64)),
      "CVE-2020-28042: an empty signature": () => unsigned({ alg: "ES256" }),
      "a cut signature": async () => (await mint()).slice(0, -6),
      "a signature with more behind it": async () => `${await mint()}AAAA`,
      "an elliptic signature in another form (DER)": () =>
        compose({ alg: "ES256", kid: ec().kid }, claims(), (text) =>
          signBytes("sha256", Buffer.from(text), ec().privateKey),
        ),
      "CVE-2021-29451: changed claims under an old signature": () =>
        remade((header, _, signature) => `${header}.${b64(claims({ sub: "root" }))}.${signature}`),
      "a changed header over an old signature": () =>
        remade((_, payload, signature) => `${b64({ alg: "ES256", kid: ec().kid })}.${payload}.${signature}`),
      "the signature of another token": async () =>
        [...(await mint()).split(".").slice(0, 2), (await mint()).split(".")[2]].join("."),
    },
  },
  {
    words: "no organization accepts tokens of this issuer",
    tokens: {
      "an issuer of its own": () => forge(claims({ iss: "https://evil.test" })),
      "the issuer with a slash more": () => forge(claims({ iss: `${door.shared.issuer}/` })),
      "the issuer in other letters": () => forge(claims({ iss: door.shared.issuer.toUpperCase() })),
      "CVE-2024-53861: a part of the issuer": () => forge(claims({ iss: door.shared.issuer.slice(0, -1) })),
    },
  },
  { words: "the token has expired", ahead: 670, tokens: { "a minute ago, by a clock ahead": () => mint() } },
  {
    words: "the token is not valid yet",
    ahead: -70,
    tokens: { "in a minute, by a clock behind": () => mint({ nbf: now() }) },
  },
  {
    words: "the token has expired",
    tokens: {
      "an expiry before all numbers": () => rewritten(/"exp":\d+/, '"exp":-1e999'),
      "an expiry twice, the last one over": () => rewritten(/\}$/, ',"exp":1}'),
    },
  },
  {
    words: "the token has no expiry (exp)",
    tokens: { "no expiry": () => mint({ exp: undefined }) },
  },
  {
    words: "the token has no subject (sub)",
    tokens: {
      "no subject": () => forge(claims({ sub: undefined })),
      "an empty subject": () => mint({ sub: "" }),
    },
  },
  {
    words: "the token's exp, nbf, iat or sub is not what it has to be",
    tokens: {
      "an expiry in words": () => mint({ exp: "tomorrow" }),
      "an expiry beyond all numbers": () => rewritten(/"exp":\d+/, '"exp":1e999'),
      "nbf in words": () => mint({ nbf: "now" }),
      "iat in words": () => mint({ iat: "now" }),
      "a subject that is a number": () => mint({ sub: 7 }),
      "a subject that is a list": () => mint({ sub: ["ada"] }),
    },
  },
  {
    words: "the token is for another audience",
    tokens: {
      "another audience": () => mint({ aud: "urn:other" }),
      "a part of the audience": () => mint({ aud: "urn:gap" }),
      "no audience": () => forge(claims({ aud: undefined })),
      "CVE-2020-26160: an empty list of audiences": () => forge(claims({ aud: [] })),
      "audiences as an object": () => mint({ aud: { "urn:gapura": true } }),
    },
  },
  {
    words: "no rule of the organization matches the token's claims",
    tokens: {
      "no groups": () => mint({ groups: undefined }),
      "another group": () => mint({ groups: ["mlops"] }),
      "the group in other letters": () => mint({ groups: ["ML"] }),
      "the group in one text with others": () => mint({ groups: "ops ml" }),
      "the group in a list in a list": () => mint({ groups: [["ml"]] }),
      "Unicode in another form": () => mint({ groups: [], [size.normalize("NFD")]: "日本" }),
      "one of two claims that a rule asks for": () => mint({ ...roles("reader"), email_verified: false }),
      "a text where a claim within it is asked for": () => mint({ ...roles(), realm_access: "roles reader" }),
      "a rule of one organization with the audience of another": () => mint({ groups: [], team: "b" }),
    },
  },
  {
    words: "the organization is suspended",
    tokens: { "a suspended organization's audience": () => mint({ aud: "urn:off" }) },
  },
  {
    words: "the token is larger than 16 KiB",
    tokens: { "17 KiB": () => forge(claims({ groups: ["ml", "x".repeat(13_000)] })) },
  },
  {
    words: "the token is malformed",
    tokens: {
      "no alg": () => unsigned({}),
      "alg as a list": () => unsigned({ alg: ["ES256"] }),
      "a kid that is a number": () => odd({ kid: 7 }),
      "a kid that is null": () => odd({ kid: null }),
      "CVE-2025-30144: the issuer in a list": () =>
        forge(claims({ iss: [door.shared.issuer, "https://evil.test"] })),
      "no issuer": () => forge(claims({ iss: undefined })),
      "claims that are no JSON": () => forge("{"),
      "claims that are a list": () => forge([1]),
      "claims that are null": () => forge("null"),
      "a header that is no JSON": () => remade((_, payload, signature) => `e30x.${payload}.${signature}`),
      "a header that has to be understood (crit)": () => odd({ crit: ["exp"], exp: 1 }),
      "an empty crit": () => odd({ crit: [] }),
      "an unencoded payload (b64)": () => odd({ crit: ["b64"], b64: false }),
    },
  },
  {
    // It has not the form of a token, and so is a key.
    words: "incorrect API key provided",
    tokens: {
      "CVE-2025-30204: thousands of dots": () => ".".repeat(8_000),
      "CVE-2023-51774, CVE-2024-33664: five parts, as an encrypted token has": async () =>
        `${await mint()}.AAAA.AAAA`,
      "all parts twice": async () => [await mint(), await mint()].join("."),
      "two parts": () => remade((header, payload) => `${header}.${payload}`),
      "CVE-2022-39227: the JSON form": () =>
        remade((header, payload, signature) => JSON.stringify({ protected: header, payload, signature })),
      "padded base64": async () => `${await mint()}==`,
      "a blank between parts": () => remade((...parts) => parts.join(". ")),
    },
  },
  {
    words: `this endpoint needs ${A_MEMBER}; yours has the role Viewer`,
    tokens: { "a viewer infers": () => mint(roles("reader")) },
  },
  {
    words: `this endpoint needs ${A_MEMBER}; yours has the role Admin`,
    tokens: { "an admin infers": () => mint({ groups: [], level: 3 }) },
  },
  {
    words: `this endpoint needs ${AN_ADMIN}; yours has the role Member`,
    route: READ,
    tokens: { "a member reads the admin API": () => mint() },
  },
  {
    words: `this endpoint needs ${AN_ADMIN}; yours has the role Member`,
    route: CHANGE,
    tokens: { "a member changes something there": () => mint() },
  },
];

/** In one row of numbers. */
let numbers = 0;
const rows = <Of extends Group>(groups: readonly Of[]) =>
  groups.flatMap(({ tokens, ...group }) =>
    Object.entries(tokens).map(([title, token]) => ({ number: (numbers += 1), title, token, ...group })),
  );
const [good, bad] = [rows(accepted), rows(refused)];

/** What is answered to a token at the moment that its group says. */
async function asked(token: string, { route = INFER, headers = {}, ahead = 0 }: Omit<Group, "tokens">) {
  door.clocks.ahead = ahead * 1000;
  try {
    return await door.ask(route, token, headers);
  } finally {
    door.clocks.ahead = 0;
  }
}
test("there are more cases than were promised", () => {
  expect([good.length >= 20, bad.length >= 60]).toEqual([true, true]);
});

test.each(good)("$number accepted: $title", async ({ token, as, ...group }) => {
  const { status, body } = await asked(await token(), group);
  expect([status, body]).toMatchObject([200, as]);
  expect(body["keyId"]).toMatch(/^usr_[0-9A-Za-z]{24}$/);
});

test.each(bad)("$number refused: $title", async ({ token, words, ...group }) => {
  const text = await token();
  const { status, headers, body } = await asked(text, group);
  expect([status, headers.get("x-should-retry"), body]).toEqual([401, "false", { error: refusal(words) }]);
  const { route = INFER } = group;
  if (route !== INFER) return;
  const other = await asked(text, { ...group, route: "POST /v1/responses" });
  expect([other.status, other.body]).toEqual([401, { error: refusal(words) }]);
  const { message } = refusal(words);
  const messages = await asked(text, {
    ...group,
    route: "POST /v1/messages",
    headers: { authorization: "", "x-api-key": text },
  });
  expect([messages.status, messages.body]).toEqual([
    401,
    { type: "error", error: { type: "authentication_error", message }, request_id: expect.any(String) },
  ]);
  // CVE-2019-7644: an error that told what signature was expected.
  expect(JSON.stringify([body, messages.body])).not.toContain(text.split(".").at(-1) || text);
});
