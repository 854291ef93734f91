import { hash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { SCHEMA_VERSION } from "../../dataplane/config/schema.ts";
import { computedMs } from "../../test/fakes/computed.ts";
import { compile } from "./compile.ts";
import { lookUp } from "./credentials.ts";
import type { Declared } from "./objects.ts";
import type { Published } from "./prior.ts";

const GOOD = `whsec_${Buffer.alloc(32, 1).toString("base64")}`;
const hooks = (secret: string) => new Map([["default/hooks", { secret }]]);
const organization = (generation: number, more: object = {}): Declared => ({
  kind: "Organization",
  namespace: "default",
  name: "acme",
  uid: "uid-acme",
  generation,
  creationTimestamp: null,
  createdAt: 0,
  spec: {
    notifications: [{ url: "https://hooks.example.com", secretRef: { name: "hooks", key: "secret" } }],
    ...more,
  },
  faults: [],
});
/** What the first round publishes. */
function published(): Published {
  const { routing, credentials } = compile({
    objects: [organization(1)],
    secrets: hooks(GOOD),
    published: null,
  });
  return { routing: { ...routing, serial: 1, schemaVersion: SCHEMA_VERSION }, credentials };
}

describe("rule 6.5: the secret that signs an organization's messages", () => {
  test.each([
    ["is edited to something else", organization(1), "hello"],
    ["loses its end", organization(1), GOOD.slice(0, 20)],
    ["is edited while the Organization is broken", organization(2, { displayname: "?" }), "hello"],
    ["is deleted", organization(1), ""],
  ])("that %s keeps its last good value", (_title, object, value) => {
    const { routing, credentials } = compile({
      objects: [object],
      secrets: hooks(value),
      published: published(),
    });
    expect(routing.organizations[0]?.notifications).toMatchObject([{ credential: "default/hooks/secret" }]);
    expect(credentials).toEqual({ "default/hooks/secret": GOOD });
  });

  test("that is replaced by another good one is taken over, and one that was never good is not", () => {
    const fresh = `whsec_${Buffer.alloc(32, 2).toString("base64")}`;
    const rotated = compile({ objects: [organization(1)], secrets: hooks(fresh), published: published() });
    expect(rotated.credentials).toEqual({ "default/hooks/secret": fresh });
    const never = compile({ objects: [organization(1)], secrets: hooks("hello"), published: null });
    expect(never.credentials).toEqual({});
  });
});

describe('an admin key of one\'s own is its prefix and further characters (service.md "Authentication")', () => {
  const declared = (value: string) =>
    compile({
      objects: [
        organization(1, {
          notifications: [],
          adminKeys: [{ name: "root", secretKeyRef: { name: "root", key: "admin-key" } }],
        }),
      ],
      secrets: new Map([["default/root", { "admin-key": value }]]),
      published: null,
    }).routing.organizations[0]?.adminKeys;

  test.each([
    ["letters and digits", "Ab3"],
    // As `openssl rand -base64 32` makes them.
    ["base64", "q+Zx0/9c1rTn4mUe2sYb7hVw8kLd5gPj6fXa3oCiQ1E="],
    ["base64url", "q-Zx0_9c1rTn4mUe2sYb7hVw8kLd5gPj6fXa3oCiQ1E"],
    ["the longest", "x".repeat(200)],
  ])("%s", (_title, secret) => {
    const value = `sk-adm-svc-${secret}`;
    expect(declared(value)).toMatchObject([{ sha256: hash("sha256", value) }]);
    expect(declared(`${value}\n`)).toEqual(declared(value));
  });

  test.each([
    ["nothing", ""],
    ["blanks", "a b"],
    ["dots, as a signed token has them", "a.b.c"],
    ["a quotation mark", 'a"b'],
    ["letters that no header carries", "schlüssel"],
    ["more than 200", "x".repeat(201)],
  ])("not %s", (_title, secret) => {
    expect(declared(`sk-adm-svc-${secret}`)).toEqual([]);
  });
});

describe("a value's line breaks (rule 6.9)", () => {
  const valueOf = (text: string) =>
    lookUp({ secrets: new Map([["default/s", { k: text }]]), forbidden: new Map() }, "default", {
      name: "s",
      key: "k",
    });

  test.each([
    ["a\n", "a"],
    ["a\r\n\n", "a"],
    ["\na\r\nb\n", "\na\r\nb"],
  ])("%j is read as %j", (text, value) => {
    expect(valueOf(text)).toEqual({ found: true, value });
  });

  test("take no time that others wait for, however many stand before its last character", () => {
    const text = `${"\n".repeat(24 * 1024)}a`;
    const before = computedMs();
    expect(valueOf(text)).toEqual({ found: true, value: text });
    expect(computedMs() - before).toBeLessThan(50);
  });
});
