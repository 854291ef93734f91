/**
 * A thousand requests at once on a key of ten credits, at three data planes in processes of their own: how far above its
 * limit it ends (rules 9.1, 9.7), and with one of them killed. test/integration/money-overspend.test.ts asks the meter alone.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { sql } from "slonik";
import { Agent, request } from "undici";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { DataPlane, type Stores } from "../fakes/data-plane.ts";
import {
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleUpstream,
  sha256,
  slotFiles,
  writeFiles,
} from "../fakes/sample-snapshot.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { Plane, plainPrices } from "../integration/money-world.ts";
import { freshPostgres, freshRedis, type TestStore } from "../integration/stores.ts";

const AMOUNT = 10_000_000;
const INPUT = 100;
const MOST_OUTPUT = 4_096;
/** Of an output token, in micro-credits: some five hundred answers make ten credits. */
const OUTPUT_PRICE = 20;
const costOf = (output: number) => INPUT + OUTPUT_PRICE * output;
/** A data plane tells of what it holds each five seconds; one that was silent for so long is dead. */
const DEAD_MS = 15_000;

const cases = [
  { hold: "worst", kill: false, above: costOf(MOST_OUTPUT) },
  { hold: "worst", kill: true, above: costOf(MOST_OUTPUT) },
  { hold: "typical", kill: false, above: 0.025 * AMOUNT },
  { hold: "typical", kill: true, above: 0.025 * AMOUNT },
] as const;
const nameOf = ({ hold, kill }: (typeof cases)[number]) => `${hold}-${kill ? "killed" : "calm"}`;
const secretOf = (name: string) => `sk-svc-${sha256(name).slice(0, 40)}`;

let databases: TestStore;
let redis: TestStore;
let stores: Stores;
let folder: string;
let upstream: FakeUpstream;
let observer: Plane;
let planes: DataPlane[] = [];
/** All that were ever started. */
const spawned: DataPlane[] = [];
/** A thousand connections take a busy machine longer than clients usually wait. */
const client = new Agent({ connections: 1_000, connect: { timeout: 60_000 } });
/** A key that nothing limits teaches data planes what answers usually take. */
const TEACHER = secretOf("teacher");

beforeAll(async () => {
  [databases, redis] = await Promise.all([freshPostgres(), freshRedis()]);
  stores = { redisUrl: redis.url, postgresUrl: databases.url };
  folder = await mkdtemp(join(tmpdir(), "gapura-overspend-"));
  let answers = 0;
  upstream = await startUpstream({
    // 200 to 4,096 tokens, a thousand on average: most are short, and some are long.
    fallback: () => {
      answers += 1;
      const drawn = (answers * 0.618_033_988_75) % 1;
      const output = Math.min(MOST_OUTPUT, Math.round(200 - 850 * Math.log(1 - drawn)));
      const answer = { parts: [{ type: "text", text: "one two" }], usage: { input: INPUT, output } } as const;
      return { answer, faults: { delayHeadersMs: 20 + (200 * ((answers * 7) % 11)) / 11 } };
    },
  });
  await writeFiles(folder, slotFiles("a", routing()));
  observer = await Plane.open(stores, { running: false, rhythm: { staleMs: DEAD_MS } });
}, 120_000);
afterAll(async () => {
  await Promise.all(spawned.map((plane) => plane.stop("SIGKILL")));
  await client.destroy();
  await observer.close();
  await upstream.close();
  await Promise.all([redis[Symbol.asyncDispose](), databases[Symbol.asyncDispose]()]);
  await rm(folder, { recursive: true, force: true });
});

/** A data plane that has seen thirty answers. */
async function start(): Promise<DataPlane> {
  const plane = await DataPlane.spawn({ stores, snapshot: folder });
  spawned.push(plane);
  await plane.ready();
  await Promise.all(Array.from({ length: 30 }, () => ask(plane, TEACHER, false)));
  return plane;
}

/** An organization for each case, with one key of ten credits. */
function routing() {
  const upstreams = [sampleUpstream({ dialect: "messages", url: `${upstream.url}/v1/messages` })];
  const route = sampleRoute("m", {
    limits: { contextTokens: 200_000, maxOutputTokens: MOST_OUTPUT },
    upstreams,
    prices: { ...plainPrices, output: String(OUTPUT_PRICE) },
  });
  const keyWith = (secret: string) => ({
    name: "ci",
    sha256: sha256(secret),
    hint: secret.slice(0, 14),
    project: "default",
  });
  const credits = { amountMicros: String(AMOUNT), per: "month" } as const;
  const limited = cases.map((one) =>
    sampleOrganization(`org_${nameOf(one)}`, {
      ...(one.hold === "typical" ? { hold: one.hold } : {}),
      apiKeys: [{ ...keyWith(secretOf(nameOf(one))), limits: { credits } }],
    }),
  );
  const organizations = [...limited, sampleOrganization("org_teacher", { apiKeys: [keyWith(TEACHER)] })];
  return sampleRouting(1, { routes: [route], organizations });
}

/** What became of a request: the output tokens of a whole answer; no status where the connection broke. */
interface Outcome {
  readonly status?: number;
  readonly output?: number;
}

async function ask(plane: DataPlane, secret: string, stream: boolean): Promise<Outcome> {
  try {
    const { statusCode: status, body } = await request(`${plane.url}/v1/messages`, {
      dispatcher: client,
      method: "POST",
      headers: { "x-api-key": secret, "content-type": "application/json" },
      body: JSON.stringify({
        model: "m",
        max_tokens: MOST_OUTPUT,
        stream,
        messages: [{ role: "user", content: "Please say something." }],
      }),
    });
    const text = await body.text();
    if (status !== 200) return { status };
    if (stream && !text.includes("event: message_stop")) return {};
    return { status, output: Number([...text.matchAll(/"output_tokens":(\d+)/g)].at(-1)?.[1]) };
  } catch {
    return {};
  }
}

const keySchema = z.object({ id: z.string(), standing: z.tuple([z.object({ held: z.string() })]) });
async function keyOf(secret: string): Promise<z.infer<typeof keySchema>> {
  const headers = { authorization: `Bearer ${secret}` };
  return keySchema.parse(await (await fetch(`${planes[0]?.url}/v1/key`, { headers })).json());
}

test.each(cases)(
  "$hold, one killed: $kill: all of it is spent, and at most $above beyond",
  async (one) => {
    const secret = secretOf(nameOf(one));
    const living = [...planes];
    while (living.length < 3) living.push(await start());
    const used = (planes = [...living]);
    const victim = one.kill ? living.pop() : undefined;
    const told: number[] = [];
    let killed: Promise<void> | undefined;
    const work = async (index: number) => {
      // One that meets the dead turns to the next; one that is refused while others hold asks again.
      for (let turn = 0; ; turn += 1) {
        const alive = killed === undefined ? used : living;
        const plane = alive[(index + turn) % alive.length];
        if (plane === undefined) throw new Error("no plane");
        const { status, output } = await ask(plane, secret, index % 2 === 0);
        if (status === 402) return;
        if (output !== undefined) {
          told.push(output);
          if (told.length === 150) killed = victim?.stop("SIGKILL");
          return;
        }
        if (status === undefined) expect(killed, "a connection broke").toBeDefined();
        // 503: on a busy machine Redis may be slower than a request waits for it.
        else expect([429, 503]).toContain(status);
        await sleep(1_000);
      }
    };
    // The living ones take them for dead later than a test can wait.
    const ended = new AbortController();
    const sweeping = (async () => {
      while (!ended.signal.aborted) {
        // It tries again where Redis is slow.
        if (killed !== undefined) await observer.upkeep.sweep().catch(() => {});
        await sleep(1_000);
      }
    })();
    try {
      // Twice what the key may spend, so that the limit is what ends it.
      await Promise.all(Array.from({ length: 1_000 }, (_, index) => work(index)));
      await killed;
      planes = living;
      await expect
        .poll(async () => Number((await keyOf(secret)).standing[0].held), { timeout: 40_000 })
        .toBe(0);
    } finally {
      ended.abort();
      await sweeping;
    }
    const { id } = await keyOf(secret);
    const books = await settledBooks();
    expect(books.broken).toEqual([]);
    const spent = books.spent.get(id) ?? 0;
    const answered = told.reduce((sum, output) => sum + costOf(output), 0);
    expect(told.length).toBeGreaterThan(300);
    if (one.kill) expect(spent).toBeGreaterThanOrEqual(answered);
    else expect(spent).toBe(answered);
    // Nobody is refused while there is room.
    expect(spent).toBeGreaterThanOrEqual(AMOUNT);
    expect(spent - AMOUNT).toBeLessThanOrEqual(one.above);
    process.stderr.write(`${nameOf(one)}: ${spent - AMOUNT} micro-credits above, ${told.length} answered\n`);
  },
  110_000,
);

/** What each key spent by its rows, when all of them have reached the ledger. */
async function settledBooks() {
  await observer.drained();
  await observer.holds.refresh(cases.map((one) => `org_${nameOf(one)}`));
  const rows = await observer.pool.any(sql.type(z.object({ id: z.string(), spent: z.bigint() }))`
    select key_id as id, sum(cost_micros)::int8 as spent from usage group by key_id
  `);
  const { broken } = await reconcileLedger(observer.pool, observer.redis);
  return { spent: new Map(rows.map(({ id, spent }) => [id, Number(spent)])), broken };
}
