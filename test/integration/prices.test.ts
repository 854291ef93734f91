/**
 * Rules 10.1 to 10.5 from the client's field to the reports, with real stores: for each field and header of
 * dialects.md §I, toward each upstream, with and without a price, on every way: what reaches the upstream, what is named
 * as dropped, what is charged, and what each report says.
 */
import { sql } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import type { UsageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import type { Prices } from "../../dataplane/config/schema.ts";
import { type Dialect, dialects } from "../../dataplane/dialects/dialect.ts";
import { standardTier } from "../../dataplane/dialects/tiers.ts";
import { createServe } from "../../dataplane/inference/serve.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { completionsUsage } from "../../dataplane/reports/completions-usage.ts";
import { costReport } from "../../dataplane/reports/cost-report.ts";
import { costs } from "../../dataplane/reports/costs.ts";
import { messagesUsage } from "../../dataplane/reports/messages-usage.ts";
import { newUpstreamDispatcher } from "../../dataplane/upstream/dispatcher.ts";
import { Upstreams } from "../../dataplane/upstream/upstreams.ts";
import { callOf, declaredSearch, routeTo, snapshotOf, toolPolicy, upstreamOf } from "../fakes/inference.ts";
import { noTools } from "../fakes/no-tools.ts";
import { bodyOf, sealerOf } from "../fakes/one-upstream.ts";
import type { Answer } from "../fakes/upstream/script.ts";
import { openGround, type Ground } from "./batches-ground.ts";
import { BatchPlane, routesTo } from "./batches-world.ts";
import { Plane, makeOrganization, plainPrices } from "./money-world.ts";

const ways = ["whole", "streamed", "loop", "batch"] as const;
type Way = (typeof ways)[number];

interface Cell {
  readonly row: Row;
  readonly upstream: Dialect;
  readonly way: Way;
  readonly isPriced: boolean;
}

/** What becomes of a request: refused with this code, or served. */
interface Outcome {
  readonly refused?: string;
  /** What the upstream's request holds; a value that is undefined is absent. */
  readonly sent?: object;
  /** A word that it does not. */
  readonly kept?: string;
  /** The beta header that the upstream sees. */
  readonly beta?: string | undefined;
  /** Of `x-gapura-dropped`, among those that this table is about. */
  readonly dropped?: readonly string[];
  /** Default: the standard one, at its price. */
  readonly tier?: string;
  readonly cost?: bigint;
}

interface Row {
  readonly title: string;
  readonly client: Dialect;
  readonly body: object;
  readonly headers?: object;
  /** What a PriceTable says of it. */
  readonly price: Partial<Prices>;
  /** What the upstream says when the field reached it. */
  readonly answer: Partial<Answer>;
  readonly upstreams?: readonly Dialect[];
  readonly ways?: readonly Way[];
  readonly outcome: (cell: Cell) => Outcome;
}

const usage = { input: 100, output: 50 };
const STANDARD_COST = 200n;
const multiplier = (name: string, times: string): Partial<Prices> => ({
  serviceTiers: [{ name, multiplier: times }],
});

/** A field that asks for a tier, and the upstreams that know it. */
function tierRow(
  client: Dialect,
  field: string,
  tier: string,
  body: object,
  knownBy: readonly Dialect[],
  more: Partial<Row> = {},
): Row {
  const [name = ""] = field.split(".");
  return {
    title: `${field}: ${tier}`,
    client,
    body,
    price: multiplier(tier, "3"),
    answer: { tiers: field === "reasoning.mode" ? {} : { [field]: tier } },
    outcome: ({ isPriced, upstream }) => {
      if (isPriced && knownBy.includes(upstream)) return { sent: body, tier, cost: 3n * STANDARD_COST };
      const isTold = name === "service_tier" && !isPriced;
      return {
        sent: isTold ? { service_tier: standardTier(upstream) } : {},
        kept: tier,
        dropped: [field],
      };
    },
    ...more,
  };
}

/** A request that leaves the tier to the account. */
const autoRow = (client: Dialect): Row => ({
  title: "service_tier: auto",
  client,
  body: { service_tier: "auto" },
  price: multiplier("priority", "3"),
  answer: { tiers: { service_tier: "priority" } },
  outcome: ({ isPriced, upstream }) =>
    isPriced
      ? { dropped: [], tier: "priority", cost: 3n * STANDARD_COST }
      : { sent: { service_tier: standardTier(upstream) }, dropped: [] },
});

const accountRow = (client: Dialect, field: string, value: unknown = "acct_1"): Row => ({
  title: field,
  client,
  body: { [field]: value },
  price: {},
  answer: {},
  outcome: () => ({ sent: { [field]: undefined }, dropped: [field] }),
});

const FAST_BETA = "fast-mode-2026-02-01";
const LONG_BETA = "context-1m-2025-08-07";
const openai: readonly Dialect[] = ["chat", "responses"];
const recording = { type: "input_audio", input_audio: { data: "AAAA", format: "wav" } };

const mediaRow = (
  title: string,
  body: object,
  price: Partial<Prices>,
  counted: object,
  cost: bigint,
): Row => ({
  title,
  client: "chat",
  body,
  price,
  answer: { usage: { ...usage, ...counted } },
  outcome: ({ isPriced, upstream, way }) =>
    isPriced && upstream === "chat" && way !== "loop"
      ? { sent: body, cost }
      : { refused: "unsupported_content" },
});

const hostedRow = (type: string): Row => ({
  title: type,
  client: "responses",
  body: { tools: [{ type, container: { type: "auto" } }] },
  price: {},
  answer: {},
  ways: ["whole", "streamed", "batch"],
  outcome: () => ({ refused: "unsupported_tool" }),
});

const rows: readonly Row[] = [
  autoRow("messages"),
  tierRow("messages", "speed", "fast", { speed: "fast" }, ["messages"], {
    headers: { "anthropic-beta": FAST_BETA },
    outcome: ({ isPriced, upstream }) =>
      isPriced && upstream === "messages"
        ? { sent: { speed: "fast" }, beta: FAST_BETA, dropped: [], tier: "fast", cost: 3n * STANDARD_COST }
        : {
            sent: { speed: undefined },
            beta: undefined,
            dropped: ["speed", ...(isPriced ? [] : [`anthropic-beta:${FAST_BETA}`])],
          },
  }),
  tierRow("messages", "inference_geo", "us", { inference_geo: "us" }, ["messages"]),
  {
    title: "the beta of long prompts",
    client: "messages",
    body: {},
    headers: { "anthropic-beta": LONG_BETA },
    price: { tiers: [{ ...plainPrices, inputOver: 100_000, input: "4", output: "8" }] },
    answer: { usage: { input: 150_000, output: 50 } },
    outcome: ({ isPriced, upstream }) => ({
      beta: isPriced && upstream === "messages" ? LONG_BETA : undefined,
      dropped: isPriced ? [] : [`anthropic-beta:${LONG_BETA}`],
      cost: isPriced ? 600_400n : 150_100n,
    }),
  },
  {
    title: "cache_control.ttl: 1h",
    client: "messages",
    body: { system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral", ttl: "1h" } }] },
    price: { cacheWrite1h: "7" },
    answer: { usage: { ...usage, cacheWrite1h: 30 } },
    upstreams: ["messages"],
    outcome: ({ isPriced }) => ({ cost: STANDARD_COST + 30n * (isPriced ? 7n : 2n) }),
  },
  ...dialects.flatMap((client) => [
    accountRow(client, "user_profile_id"),
    accountRow(client, "workspace_id"),
    accountRow(client, "models", ["dearest/model"]),
    accountRow(client, "provider", { order: ["dearest"] }),
    accountRow(client, "plugins", [{ id: "web" }]),
    accountRow(client, "search_parameters", { mode: "on" }),
    accountRow(client, "enable_search", true),
  ]),
  ...openai.flatMap((client) => [
    autoRow(client),
    ...["flex", "priority", "scale"].map((tier) =>
      tierRow(client, "service_tier", tier, { service_tier: tier }, openai),
    ),
    tierRow(client, "speed", "fast", { speed: "fast" }, [client]),
    tierRow(client, "inference_geo", "us", { inference_geo: "us" }, [client]),
  ]),
  tierRow("responses", "reasoning.mode", "pro", { reasoning: { mode: "pro" } }, ["responses"]),
  mediaRow(
    "input_audio",
    { messages: [{ role: "user", content: [recording] }] },
    { audioInput: "40" },
    { audio: [60, 0] },
    40n + 60n * 40n + 100n,
  ),
  mediaRow(
    "modalities: audio",
    { modalities: ["text", "audio"], audio: { voice: "alloy", format: "pcm16" } },
    { audioOutput: "80" },
    { audio: [0, 20] },
    100n + 30n * 2n + 20n * 80n,
  ),
  mediaRow(
    "modalities: image",
    { modalities: ["text", "image"] },
    { imageOutput: "30" },
    { images: 20 },
    100n + 30n * 2n + 20n * 30n,
  ),
  {
    title: "prediction, whose rejected tokens are within the output",
    client: "chat",
    body: { prediction: { type: "content", content: "hello" } },
    price: {},
    answer: {},
    outcome: () => ({}),
  },
  {
    title: "n",
    client: "chat",
    body: { n: 2 },
    price: {},
    answer: {},
    upstreams: ["chat"],
    ways: ["whole", "streamed", "batch"],
    outcome: () => ({ sent: { n: 2 } }),
  },
  hostedRow("code_interpreter"),
  hostedRow("image_generation"),
];

const cells: readonly Cell[] = rows.flatMap((row) =>
  (row.upstreams ?? dialects).flatMap((upstream) =>
    (row.ways ?? ways).flatMap((way) => [true, false].map((isPriced) => ({ row, upstream, way, isPriced }))),
  ),
);

/** What was seen of one request. */
interface Seen {
  readonly organizationId: string;
  readonly error: ApiError | null;
  readonly dropped: readonly string[];
  readonly sent: { readonly body: object; readonly beta: unknown }[];
}

let ground: Ground;
let plane: Plane;
const seen = new Map<Cell, Seen>();

beforeAll(async () => {
  ground = await openGround();
  plane = await Plane.open(ground.stores, { running: false });
  const dispatcher = newUpstreamDispatcher();
  const serve = createServe(new Upstreams(dispatcher), sealerOf, noTools);
  const items: UsageRow[] = [];

  async function run(cell: Cell, index: number): Promise<void> {
    const { row, upstream, way, isPriced } = cell;
    const { client } = row;
    const organizationId = `org_${index}`;
    const model = `upstream-${index}`;
    await makeOrganization(plane.pool, organizationId, 1_000_000_000n);
    ground.upstream.model(model, {
      answer: { parts: [{ type: "text", text: "hello" }], usage, ...answerOf(cell) },
    });
    const target = upstreamOf(ground.upstream.url, upstream, { model });
    const { prices } = routeTo([]);
    const route = routeTo([target], {
      prices: { ...prices, ...(isPriced && row.price) },
      ...(way === "loop" && { toolPolicy: "p" }),
    });
    const snapshot = snapshotOf([route], ["*"], {}, { p: toolPolicy }, organizationId);
    const body = {
      ...bodyOf(client, row.body),
      ...(way === "streamed" && { stream: true }),
      ...(way === "loop" && declaredSearch[client]),
    };
    const call = callOf(client, snapshot, body, row.headers ?? {});
    const isItem = way === "batch";
    const error = await serve({
      ...call,
      id: newId("req"),
      acceptedAt: Date.now(),
      principal: { ...call.principal, organizationId, keyEpoch: 1 },
      meter: isItem ? plane.holds.forItem(`claim_${index}`, (settled) => items.push(settled)) : plane.holds,
      batchId: isItem ? "batch_1" : null,
    }).then(
      () => null,
      (thrown: unknown) => {
        if (thrown instanceof ApiError) return thrown;
        throw thrown;
      },
    );
    seen.set(cell, {
      organizationId,
      error,
      dropped: (call.sink.headers["x-gapura-dropped"] ?? "").split(", "),
      sent: [],
    });
  }

  const AT_ONCE = 20;
  for (let from = 0; from < cells.length; from += AT_ONCE)
    await Promise.all(cells.slice(from, from + AT_ONCE).map((cell, index) => run(cell, from + index)));
  const sent = Map.groupBy(
    ground.upstream.requests.map(({ text, headers }) => ({
      body: JSON.parse(text) as { readonly model: string },
      beta: headers["anthropic-beta"],
    })),
    ({ body }) => body.model,
  );
  for (const [index, cell] of cells.entries())
    seen.get(cell)?.sent.push(...(sent.get(`upstream-${index}`) ?? []));
  for (const item of items) await plane.pool.transaction((transaction) => chargeRows(transaction, [item]));
  await plane.upkeep.drain();
  await dispatcher.destroy();
}, 120_000);
afterAll(async () => {
  await plane.close();
  await ground.close();
});

/** An upstream speaks of a tier only where it was asked for it, or chooses one by itself. */
function answerOf({ row, upstream, way, isPriced }: Cell): Partial<Answer> {
  const { tier } = row.outcome({ row, upstream, way, isPriced });
  const { tiers, ...rest } = row.answer;
  return tier === undefined || tiers === undefined ? rest : { ...rest, tiers };
}

const today = new Date().toISOString().slice(0, 10);

describe.each(rows)("$client, $title", (row) => {
  const own = cells.filter((cell) => cell.row === row);

  test.each(
    own.map(
      (cell) => [cell.upstream, cell.way, cell.isPriced ? "with a price" : "without a price", cell] as const,
    ),
  )("to %s, %s, %s", async (_upstream, way, _price, cell) => {
    const found = seen.get(cell);
    if (found === undefined) throw new Error("it did not run");
    const {
      refused,
      sent = {},
      dropped,
      tier = "standard",
      cost = STANDARD_COST,
      ...rest
    } = row.outcome(cell);
    const reports = await readReports(found.organizationId);
    if (refused !== undefined) {
      expect(found.error).toMatchObject({ code: refused });
      expect(found.sent).toEqual([]);
      expect(reports).toEqual({ messages: [], completions: [], cost: [], costs: [] });
      return;
    }
    expect(found.error).toBeNull();
    expect(found.sent).toHaveLength(1);
    if (rest.kept !== undefined)
      expect(JSON.stringify(found.sent[0]?.body)).not.toContain(JSON.stringify(rest.kept));
    for (const [name, value] of Object.entries(sent)) {
      if (value === undefined) expect(found.sent[0]?.body).not.toHaveProperty(name);
      else expect(found.sent[0]?.body).toMatchObject({ [name]: value });
    }
    if ("beta" in rest) expect(found.sent[0]?.beta).toBe(rest.beta);
    if (dropped !== undefined) expect(found.dropped.filter((name) => isOurs.test(name))).toEqual(dropped);
    const charge = await plane.pool.one(sql.type(z.object({ cost: z.bigint(), tier: z.string() }))`
        select cost_micros as cost, service_tier as tier from usage where organization_id = ${found.organizationId}
      `);
    expect(charge).toEqual({ cost, tier });
    const credit = await plane.holds.standing.credit(found.organizationId);
    if (way !== "batch") expect(credit).toMatchObject({ used: cost, held: 0n });
    expect(reports).toMatchObject({
      messages: [{ service_tier: tier, context_window: 200_000, model: "public-model" }],
      completions: [{ num_model_requests: 1, batch: way === "batch" }],
    });
    for (const lines of [reports.cost, reports.costs])
      expect(lines.reduce((sum, { credits }) => sum + microsOf(String(credits)), 0n)).toBe(cost);
    for (const line of reports.cost) expect(line).toMatchObject({ service_tier: tier });
    const names = reports.costs.map(({ line_item }) => String(line_item));
    expect(names.every((name) => name.includes(tier) === (tier !== "standard"))).toBe(true);
  });
});

/** Names that a price can keep here. */
const isOurs =
  /^(service_tier|speed|inference_geo|reasoning\.mode|user_profile_id|workspace_id|models|provider|plugins|search_parameters|enable_search|anthropic-beta:.*)$/;

const microsOf = (credits: string): bigint => {
  const [whole = "0", rest = ""] = credits.split(".");
  return BigInt(whole + rest.padEnd(6, "0"));
};

const allReports = [messagesUsage, completionsUsage, costReport, costs] as const;

async function readReports(organizationId: string) {
  const now = Date.now();
  const range = { starting_at: today, start_time: today };
  const of = async (report: (typeof allReports)[number], group_by: string) => {
    const { data } = await report(plane.pool, organizationId, { ...range, group_by }, now);
    // As a client reads it.
    const read = JSON.parse(JSON.stringify(data)) as { results: Record<string, unknown>[] }[];
    return read.flatMap(({ results }) => results);
  };
  return {
    messages: await of(messagesUsage, "model,service_tier,context_window"),
    completions: await of(completionsUsage, "batch"),
    cost: await of(costReport, "description"),
    costs: await of(costs, "line_item"),
  };
}

test("rule 10.4: a batch costs the prices of the moment it was made, whoever runs it when they have changed", async () => {
  const own = await openGround();
  const from = Date.now();
  const { prices } = routeTo([]);
  const routes = routesTo(own.upstream.url, {
    prices: { ...prices, changes: [{ ...prices, from, input: "1000", output: "2000" }] },
  });
  const options = { upstreamUrl: own.upstream.url, routes };
  const maker = await BatchPlane.open(own.stores, {
    ...options,
    working: false,
    clock: { now: () => from - 1 },
  });
  await makeOrganization(maker.pool, "org_acme", 1_000_000_000n);
  const path = await maker.createMessages(2);
  await maker.close();
  const worker = await BatchPlane.open(own.stores, options);
  try {
    own.upstream.model("upstream-messages", { answer: { parts: [{ type: "text", text: "hello" }], usage } });
    await worker.ended(path);
    const late = await worker.createMessages(1);
    await worker.ended(late);
    const charges = await worker.pool.anyFirst(sql.type(z.object({ cost: z.bigint() }))`
      select cost_micros as cost from usage order by cost_micros
    `);
    expect(charges).toEqual([STANDARD_COST, STANDARD_COST, 1000n * STANDARD_COST]);
    expect(await worker.broken()).toEqual([]);
  } finally {
    await worker.close();
    await own.close();
  }
});
