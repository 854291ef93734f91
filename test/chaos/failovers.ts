/**
 * Failovers of Redis under load (rules 12.1, 12.2): whole data planes serve requests, streams and batches while one master
 * after another is replaced. After each the audit is exact; in the end whoever saw a complete answer was charged exactly once for
 * exactly that, and every batch has one line for each of its items.
 *
 * `FAILOVERS=100 npm test -- failovers` makes so many of each form, `FAILOVERS_SEED=7` the same ones again.
 */
import { setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import { expect } from "vitest";
import { z } from "zod";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { lookForMasters } from "../../dataplane/store/redis-servers.ts";
import type { DataPlane } from "../fakes/data-plane.ts";
import { Plane, type PlaneStores } from "../integration/money-world.ts";
import { World, keyOf, requestOf } from "./money-planes.ts";

/** `partition`: nobody reaches the master. `split`: clients still do, and its replicas and whoever elects do not. */
const KINDS = ["planned", "SIGKILL", "SIGSTOP", "partition", "split"] as const;
export type Kind = (typeof KINDS)[number];

/** A Redis of several servers. */
export interface Form {
  readonly name: string;
  readonly stores: PlaneStores;
  readonly organizations: readonly string[];
  /** Every master has a replica that may take its place. */
  settled(): Promise<void>;
  /** Takes a master away, which `chance` chooses, and resolves when there is another in its place. */
  replace(kind: Kind, chance: number): Promise<Replaced>;
}

export interface Replaced {
  /** Organizations whose master it was. */
  readonly concerned: ReadonlySet<string>;
  /** Brings the old one back, and resolves when all is well. */
  readonly back: () => Promise<void>;
}

/** What was measured of one failover, in milliseconds. */
interface Measured {
  readonly kind: Kind;
  /** From the fault until there was another master. */
  readonly gap: number;
  readonly refusals: number;
  /** Refusals of organizations whose master was well. */
  readonly others: number;
  /** For so long a data plane refused all that an organization asked, the longest. */
  readonly refused: number;
  /** The same, counted from the new master, or from when a later one took its place: sentinels may elect twice. */
  readonly after: number;
}

interface Asked {
  readonly organization: string;
  readonly plane: DataPlane;
  readonly status: number | null;
  readonly complete: boolean;
  readonly beganAt: number;
  readonly endedAt: number;
}

/** By the rule 2 s; the rest is for a test machine that others use, which may have no time for its processes for seconds. */
const AFTER_MOST_MS = 30_000;
const SERVED_WITHIN_MS = 40_000;
const CHANCES = 2 ** 20;
const PAUSE_MS = 200;
const REFUSED_PAUSE_MS = 30;
const BATCH_ITEMS = 12;
const BATCH_WITHIN_MS = 120_000;
/** A stream of a second or two, or a whole answer that takes one. */
const SLOW = { delayHeadersMs: 700, delayBetweenEventsMs: 250 };

const seed = Number(process.env["FAILOVERS_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const count = Number(process.env["FAILOVERS"] ?? KINDS.length);
/** Of one test, for any count. */
export const FAILOVERS_LIMIT_MS = 120_000 + count * 60_000;

/** Each kind once in every round of five, in an order of its own. */
function plan(): readonly (readonly [Kind, chance: number])[] {
  const rounds = Math.ceil(count / KINDS.length);
  const order = fc.shuffledSubarray([...KINDS], { minLength: KINDS.length });
  const chances = fc.sample(fc.nat(CHANCES - 1), { seed, numRuns: count });
  const kinds = fc.sample(order, { seed, numRuns: rounds }).flat().slice(0, count);
  return kinds.map((kind, index) => [kind, (chances[index] ?? 0) / CHANCES]);
}

/** Plays `FAILOVERS` of them, one after another, and judges what is in the books. */
export async function expectExactFailovers(form: Form): Promise<void> {
  say(`${form.name}: ${count} failovers, FAILOVERS_SEED=${seed}`);
  await using disposal = new AsyncDisposableStack();
  const world = await World.open(form.stores, { organizations: form.organizations });
  disposal.defer(() => world.close());
  const planes = await Promise.all([world.start(), world.start()]);
  const auditor = await Plane.open(form.stores, { running: false });
  disposal.defer(() => auditor.vanish());
  const load = new Load(world, planes);
  const measured: Measured[] = [];
  try {
    await load.served(form.organizations, performance.now());
    for (const [kind, chance] of plan()) {
      const one = await failOver(form, load, kind, chance);
      measured.push(one);
      say(`${measured.length}. ${text(one)}`);
      expect(one.after, `${kind}: refused for so long after the new master`).toBeLessThan(AFTER_MOST_MS);
      const broken = async () => {
        lookForMasters(auditor.redis);
        return (await reconcileLedger(auditor.pool, auditor.redis)).broken;
      };
      await expect.poll(broken, { timeout: 30_000 }).toEqual([]);
    }
  } catch (error) {
    // Now, as a runner of many tells it only when all of them are over.
    say(`${form.name}: failed: ${String(error)}`);
    throw error;
  } finally {
    await load.stop();
  }
  for (const kind of KINDS) {
    const these = measured.filter((one) => one.kind === kind);
    const most = (field: "gap" | "refused" | "after") => Math.max(0, ...these.map((one) => one[field]));
    const longest = { gap: most("gap"), refused: most("refused"), after: most("after") };
    const sum = (field: "refusals" | "others") => these.reduce((total, one) => total + one[field], 0);
    const counts = { refusals: sum("refusals"), others: sum("others") };
    const late = these.filter(({ after }) => after > 2_000).length;
    say(`${these.length} ${text({ kind, ...counts, ...longest })} at most; ${late} longer than 2 s after`);
  }
  say(`${load.asked} requests and streams, ${load.batches} batches of ${BATCH_ITEMS}`);
  expect(load.batches).toBeGreaterThan(0);
  await world.judge();
}

async function failOver(form: Form, load: Load, kind: Kind, chance: number): Promise<Measured> {
  await form.settled();
  load.forget();
  const faultAt = performance.now();
  const { concerned, back } = await form.replace(kind, chance);
  const replacedAt = performance.now();
  await load.served(concerned, replacedAt);
  await back();
  await load.served(form.organizations, performance.now());
  const { odd, refusals } = load;
  expect(odd, "answers that are neither complete nor 503").toEqual([]);
  const others = load.of(form.organizations.filter((organization) => !concerned.has(organization)));
  const refusedOthers = others.filter(({ status }) => status === 503).length;
  // On a machine that others use some wait for longer than a second, and are refused. Whoever is refused asks so often that
  // those would be nearly all, were it for their master.
  expect(refusedOthers, "refusals of other organizations").toBeLessThanOrEqual(others.length / 2);
  const mine = refusals.filter(({ organization }) => concerned.has(organization));
  const lapses = load.lapses(concerned);
  return {
    kind,
    gap: replacedAt - faultAt,
    refusals: mine.length,
    others: refusedOthers,
    refused: Math.max(0, ...lapses.map(({ beganAt, endedAt }) => endedAt - beganAt)),
    after: Math.max(0, ...lapses.map(({ beganAt, endedAt }) => endedAt - Math.max(beganAt, replacedAt))),
  };
}

const text = ({ kind, gap, refusals, others, refused, after }: Measured) =>
  `${kind}: no master for ${gap.toFixed()} ms, ${refusals} refusals, all for ${refused.toFixed()} ms, ` +
  `${after.toFixed()} ms after the new master, ${others} of others`;

const say = (line: string) => process.stderr.write(`failovers: ${line}\n`);

const batchSchema = z.object({
  id: z.string(),
  processing_status: z.string(),
  request_counts: z.record(z.string(), z.number()),
});
const lineSchema = z.object({
  custom_id: z.string(),
  result: z.object({
    type: z.literal("succeeded"),
    message: z.object({ usage: z.object({ output_tokens: z.number() }) }),
  }),
});

/**
 * What clients ask all the time: for each organization quick requests one after another of each data plane, slow streams in turn,
 * and for the first two batches.
 */
class Load {
  readonly #world: World;
  readonly #stopped = new AbortController();
  readonly #lines: Promise<void>[] = [];
  readonly #faults: unknown[] = [];
  #recent: Asked[] = [];
  asked = 0;
  batches = 0;

  constructor(world: World, planes: readonly DataPlane[]) {
    this.#world = world;
    for (const [index, organization] of world.organizations.entries()) {
      for (const plane of planes) this.#begin(() => this.#ask(organization, plane));
      this.#begin(async (turn) => await this.#ask(organization, planes[turn % planes.length]!, SLOW));
      if (index < 2) this.#begin((turn) => this.#batch(organization, planes[turn % planes.length]!));
    }
  }

  /** Again and again, one after another. */
  #begin(act: (turn: number) => Promise<void>): void {
    const line = async () => {
      for (let turn = 0; !this.#stopped.signal.aborted; turn += 1)
        await act(turn).catch((error: unknown) => this.#stop(error));
    };
    this.#lines.push(line());
  }

  #stop(fault: unknown): void {
    this.#faults.push(fault);
    this.#stopped.abort();
  }

  async #ask(organization: string, plane: DataPlane, faults?: typeof SLOW): Promise<void> {
    const beganAt = performance.now();
    const { status, complete } = await this.#world.ask(plane, undefined, keyOf(organization), faults);
    this.asked += 1;
    this.#recent.push({ organization, plane, status, complete, beganAt, endedAt: performance.now() });
    await sleep(complete ? PAUSE_MS : REFUSED_PAUSE_MS);
  }

  async #batch(organization: string, plane: DataPlane): Promise<void> {
    const call = async (path: string, body?: unknown) => {
      const answer = await fetch(`${plane.url}/v1/messages/batches${path}`, {
        method: body === undefined ? "GET" : "POST",
        headers: { "x-api-key": keyOf(organization), "content-type": "application/json" },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(60_000),
      });
      return [answer.status, await answer.text()] as const;
    };
    const markers = Array.from({ length: BATCH_ITEMS }, () => this.#world.mark(SLOW));
    const requests = markers.map((marker) => ({ custom_id: `i${marker}`, params: requestOf(marker) }));
    const [made, said] = await call("", { requests });
    expect([200, 503], said).toContain(made);
    if (made !== 200) return await sleep(PAUSE_MS);
    const { id } = batchSchema.parse(JSON.parse(said));
    const state = async () => {
      const [status, answer] = await call(`/${id}`);
      return status === 200 ? batchSchema.parse(JSON.parse(answer)) : null;
    };
    const deadline = performance.now() + BATCH_WITHIN_MS;
    let now = await state();
    while (now?.processing_status !== "ended" && performance.now() < deadline) {
      await sleep(PAUSE_MS);
      now = await state();
    }
    expect(now).toMatchObject({ processing_status: "ended", request_counts: { succeeded: BATCH_ITEMS } });
    const [, results] = await call(`/${id}/results`);
    const lines = results
      .trimEnd()
      .split("\n")
      .map((line) => lineSchema.parse(JSON.parse(line)));
    expect(lines.map(({ custom_id: name }) => name).toSorted()).toEqual(
      markers.map((marker) => `i${marker}`).toSorted(),
    );
    for (const { custom_id: name, result } of lines) {
      const output = result.message.usage.output_tokens;
      this.#world.seen.push({ marker: Number(name.slice(1)), status: 200, complete: true, output });
    }
    this.batches += 1;
  }

  /** What was asked before is judged. */
  forget(): void {
    this.#recent = [];
  }

  /** What these asked since. */
  of(organizations: readonly string[]): readonly Asked[] {
    return this.#recent.filter(({ organization }) => organizations.includes(organization));
  }

  /** When a data plane refused all that one of these organizations asked, from the first refusal to the last. */
  lapses(
    organizations: ReadonlySet<string>,
  ): readonly { readonly beganAt: number; readonly endedAt: number }[] {
    const found: { beganAt: number; endedAt: number }[] = [];
    const lines = Map.groupBy(
      this.#recent.filter(({ organization }) => organizations.has(organization)),
      ({ organization, plane }) => `${organization} ${plane.port}`,
    );
    for (const line of lines.values()) {
      let lapse: { beganAt: number; endedAt: number } | null = null;
      for (const { status, complete, beganAt, endedAt } of line.toSorted(
        (one, other) => one.endedAt - other.endedAt,
      )) {
        if (complete) lapse = null;
        if (status !== 503) continue;
        if (lapse === null) found.push((lapse = { beganAt, endedAt }));
        else lapse.endedAt = endedAt;
      }
    }
    return found;
  }

  get refusals(): readonly Asked[] {
    return this.#recent.filter(({ status }) => status === 503);
  }

  get odd(): readonly Asked[] {
    return this.#recent.filter(({ status, complete }) => !complete && status !== 503);
  }

  /** Resolves when each of these has had three answers to what it asked after that moment. */
  async served(organizations: Iterable<string>, since: number): Promise<void> {
    const lacking = () =>
      [...organizations].filter(
        (name) =>
          this.#recent.filter(
            ({ organization, complete, beganAt }) => complete && organization === name && beganAt > since,
          ).length < 3,
      );
    await expect.poll(() => [lacking(), this.#faults], { timeout: SERVED_WITHIN_MS }).toEqual([[], []]);
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    await Promise.all(this.#lines);
    expect(this.#faults).toEqual([]);
  }
}
