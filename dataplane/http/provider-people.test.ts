/**
 * People of a real OpenID provider over time (rules 13.1 to 13.3): who is one and the same, who changes groups, and what becomes
 * of tokens whose keys change. Single tokens stand in provider-tokens.test.ts.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CHANGE, Door, INFER, READ, refusal } from "../../test/fakes/provider/door.ts";

let door: Door;
beforeAll(async () => {
  door = await Door.open();
});
afterAll(() => door?.[Symbol.asyncDispose]());
const mint: Door["mint"] = (...asked) => door.mint(...asked);

describe("a viewer changes nothing: 403", () => {
  test.each([
    ["as such", {}],
    ["CVE-2023-30845: under another method's name", { "x-http-method-override": "GET" }],
  ])("%s", async (_, headers) => {
    const { status, body } = await door.ask(
      CHANGE,
      await mint({ groups: [], email_verified: true, realm_access: { roles: ["reader"] } }),
      headers,
    );
    const error = {
      message: "The role Viewer reads the admin API and changes nothing: this needs the role Admin.",
      type: "invalid_request_error",
      param: null,
      code: "insufficient_permissions",
    };
    expect([status, body]).toEqual([403, { error }]);
  });
});

describe("one and the same", () => {
  const idOf = async (token: string) => (await door.ask(INFER, token)).body["keyId"];

  test("a person has one id, whatever token says so; another person, organization or issuer makes another", async () => {
    const ada = await idOf(await mint());
    expect(await idOf(await mint({ name: "Ada", jti: "x" }, { alg: "EdDSA" }))).toBe(ada);
    const others = [
      await mint({}, { client: "bob" }),
      await mint({ aud: "urn:beta", team: "b" }),
      await mint({}, { of: door.single }),
      await mint({ sub: "ADA" }),
    ];
    expect(new Set([ada, ...(await Promise.all(others.map(idOf)))]).size).toBe(5);
  });

  test("whoever changes groups is what the next token says, and what the one before said as long as it lasts", async () => {
    const member = await mint();
    expect(await idOf(member)).toMatch(/^usr_/);
    const admin = await mint({ groups: [], level: 3 });
    expect(await door.ask(INFER, admin)).toMatchObject({ status: 401 });
    expect((await door.ask(READ, admin)).body["keyId"]).toBe(await idOf(member));
    const { status, body } = await door.ask(INFER, await mint({ groups: [] }));
    expect([status, body]).toEqual([
      401,
      { error: refusal("no rule of the organization matches the token's claims") },
    ]);
  });

  test("CVE-2026-35030, a cache keyed by a part: what was kept for a token opens nothing for one that begins, or ends, alike", async () => {
    const token = await mint();
    expect((await door.ask(INFER, token)).status).toBe(200);
    const [header, payload, signature = ""] = token.split(".");
    const eve = Buffer.from(JSON.stringify(door.claims({ sub: "eve" }))).toString("base64url");
    for (const alike of [
      `${header}.${payload}.${signature.slice(0, -8)}AAAAAAAA`,
      `${header}.${eve}.${signature}`,
    ])
      expect(await door.ask(INFER, alike)).toMatchObject({
        status: 401,
        body: { error: refusal("the token's signature is not its issuer's") },
      });
  });
});

describe("keys that change", () => {
  const looks = () => door.shared.asked.filter((path) => path === "/jwks").length;
  const KEY = { status: 401, body: { error: refusal("the token's key is none of its issuer's") } };

  test("a flood of tokens with unknown keys is one look, and known ones are served meanwhile", async () => {
    door.clocks.later += 31_000;
    await door.ask(INFER, await mint());
    const before = looks();
    for (let n = 0; n < 50; n += 1)
      expect(await door.ask(INFER, await mint({}, { header: { kid: `unknown-${n}` } }))).toMatchObject(KEY);
    expect(looks()).toBe(before + 1);
    expect((await door.ask(INFER, await mint())).status).toBe(200);
  });

  test("rotation: a new key is found at once, and the one before vanished with that look", async () => {
    door.clocks.later += 31_000;
    const before = await mint();
    expect((await door.ask(INFER, before)).status).toBe(200);
    door.shared.rotate();
    expect((await door.ask(INFER, await mint())).status).toBe(200);
    expect(await door.ask(INFER, before)).toMatchObject(KEY);
  });

  test("a key that vanished is refused within a minute, though its token was seen and no other comes", async () => {
    const before = await mint();
    expect((await door.ask(INFER, before)).status).toBe(200);
    door.shared.rotate();
    expect((await door.ask(INFER, before)).status).toBe(200);
    door.clocks.later += 58_000;
    expect(await door.ask(INFER, before)).toMatchObject(KEY);
  });

  test("while the issuer is away its keys serve for ten minutes, then 503 in words", async () => {
    const token = await mint({}, { of: door.single });
    const fresh = await mint({}, { of: door.single });
    expect((await door.ask(INFER, token)).status).toBe(200);
    await door.single[Symbol.asyncDispose]();
    door.clocks.later += 9 * 60_000;
    await door.people.refresh().catch(() => {});
    for (const one of [token, fresh]) expect((await door.ask(INFER, one)).status).toBe(200);
    door.clocks.later += 2 * 60_000;
    const { status, headers, body } = await door.ask(INFER, token);
    expect([status, headers.get("retry-after"), body]).toEqual([
      503,
      "5",
      {
        error: {
          message: "The keys of the token's issuer cannot be read right now. Try again in a moment.",
          type: "server_error",
          param: null,
          code: "server_is_overloaded",
        },
      },
    ]);
  });
});
