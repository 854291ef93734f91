/** What a token that was seen before costs when others declare something (rule 13.1): nothing, unless it concerns the token. */
import { setTimeout as sleep } from "node:timers/promises";
import { beforeEach, expect, test, vi } from "vitest";
import { FakeIssuer, signingKey } from "../../test/fakes/issuer.ts";
import {
  sampleOrganization,
  sampleRouting,
  sampleSnapshot,
  sampleSource,
} from "../../test/fakes/sample-snapshot.ts";
import { SnapshotDirectory } from "../../test/fakes/snapshot-directory.ts";
import type { IdentityEntry } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { ApiError } from "../lib/api-error.ts";
import { systemClock } from "../lib/clock.ts";
import { TokenPeople } from "./people.ts";

const issuer = new FakeIssuer("https://login.test", Date.now);
const signer = signingKey("EC", "one");
issuer.publish(signer);

/** Organizations of tenants, by their namespaces; further ones of a namespace as `NAMESPACE/NAME`. */
const declared = new Map<string, Partial<IdentityEntry>>();
let snapshot: Snapshot;
let serial = 0;
const declare = (namespace: string, more: Partial<IdentityEntry> | null) => {
  if (more === null) declared.delete(namespace);
  else declared.set(namespace, more);
  const organizations = Array.from(declared, ([name, identity]) =>
    sampleOrganization(`org_${name}`, {
      source: { ...sampleSource("Organization", name), namespace: name.replace(/\/.*/, "") },
      identity: {
        issuer: issuer.url,
        audiences: [name],
        jwksUrl: null,
        allowCidrs: [],
        allowPorts: [],
        rules: [{ claims: { groups: "ml" }, role: "member", project: "default" }],
        ...identity,
      },
      isTenants: true,
    }),
  );
  snapshot = sampleSnapshot(sampleRouting((serial += 1), { organizations }));
};

let people: TokenPeople;
beforeEach(() => {
  declared.clear();
  declare("team", {});
  people = new TokenPeople({
    snapshot: () => snapshot,
    directory: new SnapshotDirectory(() => snapshot),
    fetchJson: issuer.fetchJson,
    clock: systemClock,
  });
});
const token = (aud: string | readonly string[]) => issuer.token(signer, { aud }, { alg: "ES256" });
/** Each with another signature, which is not the signer's. */
function forgedToken(aud: string, n: number): string {
  const signature = Buffer.alloc(64, 1);
  signature.writeUInt32BE(n);
  return token(aud).replace(/[^.]*$/, signature.toString("base64url"));
}
/** How many signatures were verified, and how many at once. */
function watchVerifying() {
  let now = 0;
  let most = 0;
  const verify = crypto.subtle.verify.bind(crypto.subtle);
  const spy = vi.spyOn(crypto.subtle, "verify").mockImplementation(async (...given) => {
    now += 1;
    most = Math.max(most, now);
    await sleep(1);
    now -= 1;
    return await verify(...given);
  });
  return {
    most: () => most,
    calls: () => spy.mock.calls.length,
    [Symbol.dispose]: () => spy.mockRestore(),
  };
}
const isRemembered = (text: string) => {
  const found = people.find(text);
  if (!(found instanceof Promise)) return true;
  found.catch(() => undefined);
  return false;
};

test("what other namespaces declare for their audiences has nobody else's token verified anew", async () => {
  const mine = token(["team", "account"]);
  expect(await people.find(mine)).toMatchObject({ organizationId: "org_team" });
  declare("other", {});
  expect(isRemembered(mine), "another organization").toBe(true);
  declare("other", { rules: [{ claims: {}, role: "admin" }] });
  expect(isRemembered(mine), "another one's rules").toBe(true);
  declare("other", null);
  expect(isRemembered(mine), "another one is gone").toBe(true);
  declare("team", { rules: [{ claims: { groups: "ml" }, role: "viewer" }] });
  expect(isRemembered(mine), "its own rules").toBe(false);
  expect(await people.find(mine)).toMatchObject({ kind: "viewer" });
});

test("an audience that is declared later counts at once for the tokens that name it", async () => {
  const mine = token(["team", "account"]);
  await people.find(mine);
  declare("other", { audiences: ["account"] });
  await expect(async () => await people.find(mine)).rejects.toMatchObject({ code: "authentication" });
  declare("other", { audiences: ["elsewhere"] });
  expect(await people.find(mine)).toMatchObject({ organizationId: "org_team" });
  declare("team", { audiences: ["elsewhere"] });
  await expect(async () => await people.find(mine)).rejects.toThrow("another audience");
});

test("a token of thousands of audiences is remembered as well, and changes nothing for others", async () => {
  const many = token(["team", ...Array.from({ length: 1_500 }, (_, n) => `a${n}`)]);
  expect(await people.find(many)).toMatchObject({ organizationId: "org_team" });
  expect(isRemembered(many)).toBe(true);
  declare("other", { audiences: ["a1499"] });
  expect(isRemembered(many)).toBe(false);
});

test("signatures of one issuer are verified one after another, and another's come between them", async () => {
  const other = new FakeIssuer("https://other.test", Date.now);
  other.publish(signer);
  declare("others", { issuer: other.url, audiences: ["team"] });
  const everybody = new TokenPeople({
    snapshot: () => snapshot,
    directory: new SnapshotDirectory(() => snapshot),
    fetchJson: async (url, opened) =>
      await (url.startsWith(other.url) ? other : issuer).fetchJson(url, opened),
    clock: systemClock,
  });
  using verified = watchVerifying();
  const refused: string[] = [];
  const forged = Array.from({ length: 200 }, async (_, n) => {
    const made = forgedToken("team", n);
    await expect(Promise.resolve(everybody.find(made))).rejects.toThrow("signature");
    refused.push(made);
  });
  await forged[5];
  expect(verified.most()).toBe(1);
  const theirs = other.token(signer, { aud: "team" }, { alg: "ES256" });
  expect(await everybody.find(theirs)).toMatchObject({ organizationId: "org_others" });
  expect(refused.length).toBeLessThan(100);
  await Promise.all(forged);
  expect(verified.most()).toBe(2);
  expect(verified.calls()).toBe(201);
});

test("a tenant that declares an issuer in several ways has one turn all the same, and another tenant of that issuer one of its own", async () => {
  declare("many", { allowPorts: [8443] });
  declare("many/2", { allowPorts: [9443] });
  using verified = watchVerifying();
  const refusals = (...audiences: readonly string[]) =>
    Promise.all(
      audiences.map((aud, n) =>
        expect(Promise.resolve(people.find(forgedToken(aud, n)))).rejects.toThrow("signature"),
      ),
    );
  await refusals("many", "many/2", "many", "many/2");
  expect([verified.calls(), verified.most()]).toEqual([4, 1]);
  declare("many", {});
  await refusals("many", "team", "many", "team");
  expect([verified.calls(), verified.most()]).toEqual([8, 2]);
});

test("rule 13.1: where 5,000 wait for their turn the next is 429, and who has waited for four seconds is 503", async () => {
  const verify = crypto.subtle.verify.bind(crypto.subtle);
  const { promise: whenLet, resolve: letGo } = Promise.withResolvers<void>();
  using spy = vi.spyOn(crypto.subtle, "verify").mockImplementation(async (...given) => {
    await whenLet;
    return await verify(...given);
  });
  const waited = new AbortController();
  using time = vi.spyOn(AbortSignal, "timeout").mockReturnValue(waited.signal);
  /** Its refusal's status and pause; null: it is let in. */
  const refusal = (text: string) =>
    Promise.resolve(people.find(text)).then(
      () => null,
      ({ kind, retryAfterSeconds }: ApiError) => [kind.status, retryAfterSeconds],
    );
  const first = refusal(token("team"));
  await expect.poll(() => spy.mock.calls.length).toBe(1);
  const waiting = Array.from({ length: 5_000 }, (_, n) => refusal(forgedToken("team", n)));
  const last = refusal(forgedToken("team", 5_000));
  expect(await last).toEqual([429, 1]);
  expect(time.mock.calls.every(([ms]) => ms === 4_000)).toBe(true);
  waited.abort(new Error("the time is over"));
  expect(new Set((await Promise.all(waiting)).map(String))).toEqual(new Set(["503,1"]));
  letGo();
  expect(await first).toBe(null);
  expect(spy.mock.calls.length).toBe(1);
});
