/**
 * Rules 9.1 to 9.5 and 13.3 through the whole service on two data planes: what limits do is the same for a key and for a person
 * with a token, and both stand beside each other in one project.
 */
import { sql } from "slonik";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import type { LimitPeriod, Limits, OrganizationEntry } from "../../dataplane/config/schema.ts";
import { sampleOrganization, sha256 } from "../fakes/sample-snapshot.ts";
import { text } from "../fakes/upstream/script.ts";
import { AdminWorld, identityOf, tenantEntry } from "./admin-world.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
});
beforeEach(() => {
  world.upstream.reset();
  turn += 1;
});
afterAll(async () => {
  await world?.close();
});

/** Each test has a key and a person of its own. */
let turn = 0;
const keyValue = () => `sk-svc-${String(turn).padStart(40, "0")}`;
const personToken = () => world.token(world.a, "ml", { sub: `person-${turn}` });

/** Each principal's own limits are these, and the project's those. */
async function declare(own: Limits | undefined, more: Partial<OrganizationEntry> = {}, project?: Limits) {
  const limits = own === undefined ? {} : { limits: own };
  const hint = keyValue().slice(0, 13);
  const member = { claims: { groups: "ml" }, role: "member", project: "default", ...limits } as const;
  await world.declare([
    tenantEntry(world.a, {
      apiKeys: [{ name: `key-${turn}`, sha256: sha256(keyValue()), hint, project: "default", ...limits }],
      identity: identityOf(world.issuer, world.a, { rules: [member] }),
      ...(project === undefined ? {} : { projectLimits: { default: project } }),
      ...more,
    }),
    sampleOrganization(world.b.id),
  ]);
}
const credits = (amountMicros: number | bigint, per: LimitPeriod): Limits => ({
  credits: { amountMicros: String(amountMicros), per },
});

type Path = "/v1/messages" | "/v1/chat/completions";
const bodies: Readonly<Record<Path, object>> = {
  "/v1/messages": { model: "m-messages", max_tokens: 5, messages: [{ role: "user", content: "Hi" }] },
  "/v1/chat/completions": { model: "m-chat", max_tokens: 5, messages: [{ role: "user", content: "Hi" }] },
};
const infer = (credential: string, plane = 0, path: Path = "/v1/chat/completions") =>
  world.call(credential, "POST", path, { body: bodies[path], plane });
const settled = async () => {
  for (const { money } of world.planes) await money.holds.idle(10_000);
};
const own = async (credential: string) => {
  const { body } = await world.call(credential, "GET", "/v1/key");
  return body as { id: string; limits: object | null; standing: Record<string, unknown>[] };
};
/** Micro-credits that the ledger has of these. */
const spentBy = (id: string) =>
  world.pool.oneFirst(sql.type(z.object({ micros: z.bigint() }))`
    select coalesce(sum(cost_micros), 0)::int8 as micros from usage where key_id = ${id}
  `);
const ledgerOf = async (id: string, count: number) => {
  const rows = () =>
    world.pool.oneFirst(sql.type(z.object({ count: z.bigint() }))`
      select count(*) as count from usage where key_id = ${id}
    `);
  await expect.poll(async () => Number(await rows()), { timeout: 20_000 }).toBe(count);
  return await spentBy(id);
};

describe.each([
  ["a key", "this key", /^apikey_/, keyValue],
  ["a person", "this person", /^usr_/, personToken],
] as const)("%s", (_, words, form, credential) => {
  test.each([
    ["day", "per day"],
    ["week", "per week"],
    ["month", "per month"],
    ["total", "in total"],
  ] as const)(
    "at its limit of credit for a %s is told so in words, on every plane and in both styles",
    async (per, every) => {
      await declare(credits(1, per));
      const caller = credential();
      expect((await infer(caller)).status).toBe(200);
      await settled();
      const chat = await infer(caller, 1);
      const anew = (await own(caller)).standing[0]?.["begins_anew_at"];
      const then = per === "total" ? "It does not begin anew." : `It begins anew at ${String(anew)}.`;
      const message = `The limit of ${words} of 0.000001 credits ${every} is reached. ${then}`;
      expect([chat.status, chat.headers.get("x-should-retry"), chat.body]).toEqual([
        402,
        "false",
        { error: { message, type: "insufficient_quota", param: null, code: "key_limit_reached" } },
      ]);
      const messages = await infer(caller, 0, "/v1/messages");
      expect([messages.status, messages.body["error"]]).toEqual([
        402,
        {
          type: "billing_error",
          message,
          code: "key_limit_reached",
          details: { error_code: "key_limit_reached", begins_anew_at: anew },
        },
      ]);
      const { id, limits, standing } = await own(caller);
      expect(id).toMatch(form);
      expect(limits).toMatchObject({ credits: { amount: "0.000001", per } });
      expect(standing).toMatchObject([{ scope: "key", per, left: "0", held: "0" }]);
    },
  );

  test("has limits of requests and of tokens a minute over all planes, and headers tell what is left", async () => {
    await declare({ requestsPerMinute: 2 });
    const caller = credential();
    const first = await infer(caller);
    expect([first.status, first.headers.get("x-ratelimit-remaining-requests")]).toEqual([200, "1"]);
    expect((await infer(caller, 1)).status).toBe(200);
    const many = await infer(caller, 1);
    expect([many.status, many.body["error"]]).toMatchObject([
      429,
      { message: `The limit of ${words} of 2 requests per minute is reached.`, code: "rate_limit_exceeded" },
    ]);
    await declare({ tokensPerMinute: 100 });
    for (const plane of [0, 1]) {
      world.upstream.next(text("done", { input: 50, output: 40 }));
      await infer(caller, plane);
      await settled();
    }
    const tokens = await infer(caller);
    expect([tokens.status, tokens.body["error"]]).toMatchObject([
      429,
      { message: `The limit of ${words} of 100 tokens per minute is reached.`, type: "tokens" },
    ]);
  });

  test("has a number of requests at the same time", async () => {
    await declare({ concurrentRequests: 1 });
    const caller = credential();
    world.upstream.next({ ...text("slow"), faults: { hang: true } });
    const leave = new AbortController();
    const hanging = world.plane.server
      .fetch("/v1/chat/completions", {
        method: "POST",
        headers: { authorization: `Bearer ${caller}`, "content-type": "application/json" },
        body: JSON.stringify(bodies["/v1/chat/completions"]),
        signal: leave.signal,
      })
      .catch(() => null);
    await expect.poll(() => world.upstream.requests.length, { timeout: 10_000 }).toBe(1);
    const second = await infer(caller, 1);
    leave.abort();
    await hanging;
    expect([second.status, second.body["error"]]).toMatchObject([
      429,
      { message: `The limit of ${words} of 1 requests at the same time is reached.` },
    ]);
    await settled();
    await expect.poll(async () => (await infer(caller, 1)).status, { timeout: 10_000 }).toBe(200);
  });

  test("is shown and served the models that it may use", async () => {
    await declare({ models: ["m-chat"] });
    const caller = credential();
    const models = await world.call(caller, "GET", "/v1/models");
    expect((models.body["data"] as { id: string }[]).map(({ id }) => id)).toEqual(["m-chat"]);
    expect((await infer(caller)).status).toBe(200);
    expect((await infer(caller, 1, "/v1/messages")).status).toBe(404);
  });

  test("has the organization's defaults for what it has no limit of its own", async () => {
    await declare({ requestsPerMinute: 100 }, { keyDefaults: credits(1, "day") });
    const caller = credential();
    expect((await infer(caller)).status).toBe(200);
    await settled();
    expect((await infer(caller, 1)).body).toMatchObject({ error: { code: "key_limit_reached" } });
  });

  test("that asks two hundred times at once on two planes ends at most one request above its limit", async () => {
    await declare(undefined);
    const caller = credential();
    expect((await infer(caller)).status).toBe(200);
    await settled();
    const { id } = await own(caller);
    const cost = await ledgerOf(id, 1);
    const amount = 10n * cost;
    await declare(credits(amount, "total"));
    const statuses = await Promise.all(
      Array.from({ length: 200 }, async (__, n) => (await infer(caller, n % 2)).status),
    );
    expect(statuses.filter((status) => ![200, 402, 429].includes(status))).toEqual([]);
    await settled();
    // What was refused while others held the rest may ask again.
    for (let n = 0; n < 20; n += 1) await infer(caller, n % 2);
    await settled();
    const { standing } = await own(caller);
    const spent = await expect
      .poll(() => spentBy(id), { timeout: 20_000 })
      .toBeGreaterThanOrEqual(amount)
      .then(() => spentBy(id));
    expect(spent).toBeLessThan(amount + cost);
    expect(standing).toMatchObject([{ left: "0", held: "0" }]);
  });
});

describe("a key and a person in one project", () => {
  test("have each their own limit: what one spends leaves the other's as it was", async () => {
    await declare(credits(1, "month"));
    const [key, person] = [keyValue(), personToken()];
    expect((await infer(key)).status).toBe(200);
    await settled();
    expect([(await infer(key, 1)).status, (await own(person)).standing]).toMatchObject([
      402,
      [{ scope: "key", spent: "0", left: "0.000001" }],
    ]);
    expect((await infer(person, 1)).status).toBe(200);
    await settled();
    expect((await infer(person)).status).toBe(402);
    const [ofKey, ofPerson] = [await own(key), await own(person)];
    expect(await ledgerOf(ofKey.id, 1)).toBe(await ledgerOf(ofPerson.id, 1));
  });

  test("share the project's: what one spends, the other has no more, and each is told so as what it is", async () => {
    await declare(undefined);
    const [key, person] = [keyValue(), personToken()];
    const before = (await own(key)).id;
    await declare(undefined, {}, credits(1, "total"));
    // The project spent something in other tests: whoever comes is told that it is used up.
    await infer(person);
    await settled();
    for (const [credential, words] of [
      [key, "this key's project"],
      [person, "this person's project"],
    ] as const) {
      const { status, body } = await infer(credential, 1);
      expect([status, body["error"]]).toMatchObject([
        402,
        {
          code: "project_limit_reached",
          message: `The limit of ${words} of 0.000001 credits in total is reached. It does not begin anew.`,
        },
      ]);
    }
    const [ofKey, ofPerson] = [await own(key), await own(person)];
    expect(ofKey.id).toBe(before);
    expect(ofKey.standing).toMatchObject([{ scope: "project", left: "0" }]);
    expect(ofPerson.standing).toEqual(ofKey.standing);
    // With room for one request more, whoever comes first has it.
    const spent = BigInt(Math.round(Number(ofKey.standing[0]?.["spent"]) * 1e6));
    await declare(undefined, {}, credits(spent + 1n, "total"));
    expect((await infer(key)).status).toBe(200);
    await settled();
    expect((await infer(person, 1)).body).toMatchObject({ error: { code: "project_limit_reached" } });
  });
});
