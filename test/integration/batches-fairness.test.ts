/** Who gets the next place (rule 4.5): organizations in turn, then their batches; bounds; live requests first. */
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { sql } from "slonik";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { BatchBackOff } from "../../dataplane/batches/back-off.ts";
import { batchesInLine, claimItems } from "../../dataplane/batches/worker/claim.ts";
import { createFromRequests } from "../../dataplane/batches/create/create-from-requests.ts";
import { workOnOne } from "../../dataplane/batches/finish.ts";
import type { LiveLoad } from "../../dataplane/batches/worker/headroom.ts";
import { Turns } from "../../dataplane/batches/turns.ts";
import { text } from "../fakes/upstream/script.ts";
import type { LoggedRequest } from "../fakes/upstream/request-log.ts";
import { withFaults, type FakeUpstream } from "../fakes/upstream/server.ts";
import { openGround, type Ground } from "./batches-ground.ts";
import { BatchPlane, bodyOf, type PlaneOptions } from "./batches-world.ts";
import { makeOrganization } from "./money-world.ts";

let ground: Ground;
let upstream: FakeUpstream;
let plane: BatchPlane;
/** How many requests each model's upstream works on at the moment, and did at most. */
let working: Map<string, { now: number; most: number }>;
let thinkMs: number;
/** No model is held back. */
const nothing = { models: [], asked: [], suspects: false };
const RETRY_AFTER_S = 60;
/** Where the gateway's clock stands; null: it goes. */
let stoppedAt: number | null;

beforeEach(async () => {
  ground = await openGround();
  ({ upstream } = ground);
  working = new Map();
  stoppedAt = null;
  thinkMs = 40;
  for (const model of ["upstream-messages", "upstream-chat"]) answer(model);
});
afterEach(async () => {
  await plane.close();
  await ground.close();
});

/** `most`: with more at once it answers 429, to be asked again after `RETRY_AFTER_S`. */
function answer(model: string, most = Number.POSITIVE_INFINITY): void {
  upstream.model(model, () => {
    const running = upstream.requests.filter((one) => one.outcome === "running" && modelOf(one) === model);
    const seen = working.get(model) ?? { now: 0, most: 0 };
    working.set(model, { now: running.length, most: Math.max(seen.most, running.length) });
    if (running.length > most)
      return { error: { status: 429 }, headers: { "retry-after": String(RETRY_AFTER_S) } };
    return withFaults(text("fine", { input: 10, output: 5 }), { delayHeadersMs: thinkMs });
  });
}
const modelOf = ({ text: body }: LoggedRequest) => /"model":"([^"]+)"/.exec(body)?.[1];
const mostOf = (model: string) => working.get(model)?.most ?? 0;

async function open(worker: PlaneOptions["worker"], organizations = ["org_a"]): Promise<void> {
  plane = await BatchPlane.open(ground.stores, {
    upstreamUrl: upstream.url,
    organizations,
    clock: { now: () => stoppedAt ?? Date.now() },
    worker: { rhythm: { pollMs: 50 }, ...worker },
  });
  for (const id of organizations) await makeOrganization(plane.pool, id, 1_000_000_000n);
}

/** Makes a batch as the organization's key would; each request says whose and which it is. @returns its id. */
async function create(
  organizationId: string,
  items: number,
  more: object | ((index: number) => object) = {},
): Promise<string> {
  const requests = Array.from({ length: items }, (_, index) => ({
    custom_id: `i${index}`,
    params: bodyOf.messages(
      `${organizationId} item ${index}`,
      typeof more === "function" ? more(index) : more,
    ),
  }));
  const principal = {
    kind: "inference",
    keyId: "key",
    keyName: "",
    expiresAt: null,
    limits: [],
    organizationId,
    projectId: "default",
    keyEpoch: 0,
  } as const;
  const source = Readable.from([Buffer.from(JSON.stringify({ requests }))]);
  return (await createFromRequests(plane.context, principal, {}, source, { hold: () => {} })).id;
}

const over = (id: string) =>
  plane.count(sql.fragment`from batch_items where batch_id = ${id} and state = 'succeeded'`);
async function allOver(id: string, items: number): Promise<void> {
  await expect.poll(() => over(id), { timeout: 20_000 }).toBe(items);
}
/** The organization of each upstream request after the first so many. */
const turnsAfter = (serial: number) =>
  upstream.requests.slice(serial).map((one) => /(org_\w+) item/.exec(one.text)?.[1] ?? "");

describe("turns", () => {
  test("several organizations with batches of any size run side by side, each as much as the other", async () => {
    const small = ["org_b", "org_c", "org_d"];
    await open({ limits: { places: 12, placesOfOne: 9 } }, ["org_a", ...small]);
    const large = await create("org_a", 240);
    await upstream.arrived(9, 10_000);
    const ids = await Promise.all(small.map((name) => create(name, 24)));
    const before = upstream.requests.length;
    for (const id of ids) await allOver(id, 24);
    expect(await over(large)).toBeLessThan(240);
    // While all four had something to do they took turns: a quarter each, but for what ran when they came.
    const turns = turnsAfter(before).slice(0, 60);
    for (const name of ["org_a", ...small]) {
      const share = turns.filter((one) => one === name).length;
      expect({ name, share: share > 8 && share < 24 }).toEqual({ name, share: true });
    }
  });

  test("within an organization, a batch that comes later does not wait for one that is fifteen times as large", async () => {
    await open({ limits: { places: 12, placesOfOne: 12 } });
    const large = await create("org_a", 300);
    await upstream.arrived(12, 10_000);
    const later = await create("org_a", 20);
    await allOver(later, 20);
    expect(await over(large)).toBeLessThan(200);
  });

  test("an organization with many batches gets no more than one with a single batch", async () => {
    await open({ limits: { places: 8, placesOfOne: 8 } }, ["org_a", "org_b"]);
    for (let index = 0; index < 12; index += 1) await create("org_a", 20);
    const before = upstream.requests.length;
    const single = await create("org_b", 40);
    await allOver(single, 40);
    const others = turnsAfter(before).filter((name) => name === "org_a").length;
    // As many in the same time, and what already ran.
    expect(others).toBeLessThan(40 + 24);
  });

  test("the first batch of every organization stands in line before the second of any", async () => {
    await open({ busy: () => true }, []);
    // More batches than stand in line at once, of organizations that came before.
    await plane.pool.query(sql.unsafe`
      insert into batches (id, organization_id, project_id, key_id, form, dialect, state, total, created_at, expires_at)
      select 'msgbatch_' || batch, 'org_' || batch / 8, '', '', 'messages', 'messages', 'in_progress', 1, now(),
        now() + interval '1 day'
      from generate_series(0, 1599) as batch
    `);
    await plane.pool.query(sql.unsafe`
      insert into batch_items (batch_id, number, custom_id, request_id, accepted_at, body)
      select id, 0, '"a"', 'req_' || id, now(), '{}' from batches
    `);
    const inLine = new Set(
      (await batchesInLine(plane.pool, Date.now(), { ...nothing, batches: [] })).map(
        (one) => one.organizationId,
      ),
    );
    expect(inLine.size).toBe(200);
    await plane.pool.query(sql.unsafe`delete from batch_items`);
    await plane.pool.query(sql.unsafe`delete from batches`);
  });
});

test("the few places of a model that refuses some go to organizations in turn, however far their batches are", async () => {
  await open({ busy: () => true }, []);
  // One is a long way through its requests, two others of another organization begin.
  await plane.pool.query(sql.unsafe`
    insert into batches (id, organization_id, project_id, key_id, form, dialect, state, total, created_at, expires_at)
    select id, organization, '', '', 'messages', 'messages', 'in_progress', 100, now(), now() + interval '1 day'
    from (values ('far', 'org_a'), ('new', 'org_b'), ('newer', 'org_b')) as made (id, organization)
  `);
  await plane.pool.query(sql.unsafe`
    insert into batch_items (batch_id, number, custom_id, request_id, accepted_at, model, body)
    select batches.id, case batches.id when 'far' then 5000 else 0 end + item, '"a"', 'req_' || batches.id || item, now(), 'm', '{}'
    from batches, generate_series(0, 99) as item
  `);
  const claimed = async (room: number) => {
    const shares = new Map(["far", "new", "newer"].map((id) => [id, 20]));
    const items = await claimItems(plane.pool, plane.context.workerId, Date.now(), {
      shares,
      blocked: nothing,
      modelRooms: new Map([["m", room]]),
      askedRooms: [],
    });
    return items.map(({ batchId }) => batchId).toSorted();
  };
  expect(await claimed(4)).toEqual(["far", "far", "new", "newer"]);
  const one = new Set<string | undefined>();
  for (let time = 0; time < 60; time += 1) one.add((await claimed(1))[0]);
  expect(one).toEqual(new Set(["far", "new", "newer"]));
  await plane.pool.query(sql.unsafe`delete from batch_items`);
  await plane.pool.query(sql.unsafe`delete from batches`);
});

test("inputs are read in turns: one organization's many files do not hold up another's", async () => {
  plane = await BatchPlane.open(ground.stores, { upstreamUrl: upstream.url, working: false });
  // Of files that are gone, as they are read at once; all of org_a's came before.
  await plane.pool.query(sql.unsafe`
    insert into batches (id, organization_id, project_id, key_id, form, dialect, state, created_at, expires_at)
    select 'batch_' || batch, case when batch < 6 then 'org_a' else 'org_b' end, '', '', 'openai', 'chat', 'validating',
      now(), now() + interval '1 day'
    from generate_series(0, 8) as batch
  `);
  const turns = new Turns();
  const read: string[] = [];
  const ended = sql.type(z.object({ id: z.string() }))`
    select id from batches where state = 'ended' order by position
  `;
  while (await workOnOne(plane.context, new BatchBackOff(), turns)) {
    const ids = await plane.pool.anyFirst(ended);
    read.push(...ids.filter((id) => !read.includes(id)));
  }
  expect(read.map((id) => id.replace("batch_", ""))).toEqual(["0", "6", "1", "7", "2", "8", "3", "4", "5"]);
});

describe("bounds", () => {
  test("so many at once in a pod, and of one organization", async () => {
    await open({ limits: { places: 6, placesOfOne: 4 } }, ["org_a", "org_b"]);
    await allOver(await create("org_a", 20), 20);
    expect(mostOf("upstream-messages")).toBeLessThanOrEqual(4);
    const ids = [await create("org_a", 30), await create("org_b", 30)];
    for (const id of ids) await allOver(id, 30);
    expect(mostOf("upstream-messages")).toBeGreaterThan(4);
    expect(mostOf("upstream-messages")).toBeLessThanOrEqual(6);
  });

  test("a model that answers 429 rests for its retry-after and comes back with fewer; others go on meanwhile", async () => {
    answer("upstream-chat", 4);
    const began = (stoppedAt = Date.now());
    await open({ limits: { places: 24, placesOfOne: 24 } });
    const id = await create("org_a", 72, (index) => ({ model: index % 3 === 0 ? "m-chat" : "m-messages" }));
    const ofModel = (model: string) => upstream.requests.filter((one) => modelOf(one) === model);
    const isOver = (model: string) =>
      plane.count(
        sql.fragment`from batch_items where batch_id = ${id} and model = ${model} and state = 'succeeded'`,
      );
    await expect.poll(() => isOver("m-messages"), { timeout: 20_000 }).toBe(48);
    expect(await isOver("m-chat")).toBeLessThan(24);
    const [others, refused] = [ofModel("upstream-messages"), ofModel("upstream-chat")];
    // When it was known that it rests, as many ran as there are places; all that came later was for the others.
    const last = refused.at(-1)?.serial ?? 0;
    expect(others.filter(({ serial }) => serial > last).length).toBeGreaterThanOrEqual(48 - 24);
    answer("upstream-chat");
    stoppedAt = began + RETRY_AFTER_S * 1_000 - 1;
    await sleep(300);
    expect(ofModel("upstream-chat")).toHaveLength(refused.length);
    working.clear();
    stoppedAt = began + RETRY_AFTER_S * 1_000;
    // Those that were refused wait by the clock of Postgres.
    await plane.pool.query(sql.unsafe`
      update batch_items set not_before = clock_timestamp() where batch_id = ${id} and not_before is not null
    `);
    await allOver(id, 72);
    // At first half as many as were refused, not as many as there is room for; one more when all of these succeeded.
    expect(mostOf("upstream-chat")).toBeLessThanOrEqual(12);
  });
});

describe("requests that somebody waits for come first", () => {
  test("an overloaded pod takes nothing, until it is no more", async () => {
    let busy = true;
    await open({ busy: () => busy });
    const id = await create("org_a", 5);
    await sleep(300);
    expect(upstream.requests).toHaveLength(0);
    busy = false;
    await allOver(id, 5);
  });

  test("a pod whose time is short runs one at a time, and all it can once nobody waits", async () => {
    let load: LiveLoad = "heavy";
    await open({ limits: { places: 8, placesOfOne: 8 }, liveLoad: () => load });
    const id = await create("org_a", 60);
    // Halved at each look, ten times a second: after a while no two run at once, and they still run.
    const mostOfAWhile = async () => {
      working.clear();
      await sleep(300);
      return mostOf("upstream-messages");
    };
    await expect.poll(mostOfAWhile, { timeout: 10_000 }).toBe(1);
    expect(await over(id)).toBeLessThan(60);
    load = "none";
    await allOver(id, 60);
    expect(mostOf("upstream-messages")).toBeGreaterThan(4);
  });

  test("beside live requests it takes one more at each look that leaves time, though no item ends meanwhile", async () => {
    thinkMs = 5_000;
    await open({
      rhythm: { pollMs: 60_000 },
      limits: { places: 8, placesOfOne: 8 },
      liveLoad: () => "light",
    });
    await create("org_a", 20);
    // Four looks, in a tenth of the time.
    await expect.poll(() => mostOf("upstream-messages"), { timeout: 4_000 }).toBe(8);
  });
});
