/** Over random traffic every figure of every page is the API's, and the ledger's (rule 11.3). */
import { sql, type DatabasePool } from "slonik";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect } from "vitest";
import { z } from "zod";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { desk, openBrowser, openPage, settled, signIn } from "./browser.ts";
import { consoleTest as test } from "./console-test.ts";
import { api, booked, theWorld } from "./world.ts";

const REQUESTS = 40;
const SEED = 31;

let browser: Browser;
let page: Page;
let pool: DatabasePool;
const { url, admin, inference, databaseUrl } = theWorld();

beforeAll(async () => {
  browser = await openBrowser();
  ({ page } = await openPage(browser, url, desk));
  pool = await openPostgres(databaseUrl, { statementTimeoutMs: 10_000, onError: () => {} });
  await randomTraffic();
  await signIn(page, url, admin);
});
afterAll(async () => {
  await pool?.end();
  await browser?.close();
});

/** Numbers from 0 to `below`, the same in each run. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}

async function randomTraffic(): Promise<void> {
  const next = random(SEED);
  const limits = { credits: { amount: "5000", per: "month" } };
  const made = await api(admin, "POST", "/v1/organizations/api_keys", { name: "equal", limits });
  const keys = [inference, String(made["key"])];
  const models = ["demo-messages", "demo-chat", "demo-responses"];
  const paths = ["/v1/messages", "/v1/chat/completions"];
  for (let turn = 0; turn < REQUESTS; turn += 1) {
    const usage = { input: next(5000), cacheRead: next(900), output: 1 + next(700) };
    const step = { answer: { parts: [{ type: "text", text: "Yes." }], usage } };
    const answer = await fetch(`${url}${paths[next(2)]}`, {
      method: "POST",
      headers: { authorization: `Bearer ${keys[next(2)]}`, "content-type": "application/json" },
      body: JSON.stringify({
        model: models[next(3)],
        max_tokens: 1000,
        stream: next(2) === 1,
        messages: [{ role: "user", content: `{{script: ${JSON.stringify(step)}}}` }],
      }),
    });
    expect(answer.status).toBe(200);
    await answer.text();
  }
  await booked();
}

const open = async (view: string) => {
  await page.goto(`${url}/console/${view}`);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await settled(page);
};
const plain = (figure = "") => figure.replaceAll(",", "");
/** The cells of each row of a table, figures without their separators. */
const cells = async (name: string): Promise<string[][]> => {
  const rows = await page.getByRole("table", { name, exact: true }).getByRole("row").all();
  const texts = await Promise.all(rows.slice(1).map((row) => row.locator(".cell").allTextContents()));
  return texts.map((row) => row.map(plain));
};
const figure = async (name: string): Promise<string> =>
  plain(
    (await page.locator(".stat").filter({ hasText: name }).locator(".stat-value").textContent()) ?? undefined,
  );
const micros = (text: string) => {
  const [whole = "0", fraction = ""] = text.split(".");
  return BigInt(whole) * 1_000_000n + BigInt(fraction.padEnd(6, "0"));
};
const byName = (one: readonly string[], other: readonly string[]) =>
  (one[0] ?? "") < (other[0] ?? "") ? -1 : 1;

const sumSchema = z.object({
  name: z.string(),
  requests: z.bigint(),
  input: z.bigint(),
  cached: z.bigint(),
  output: z.bigint(),
  micros: z.bigint(),
});
type Column = "model" | "key_id" | "project_id" | "organization_id";
/** What the ledger's own rows say, by one of their columns. */
const ledger = (column: Column) =>
  pool.any(sql.type(sumSchema)`
    select ${sql.identifier([column])} as name, count(*)::int8 as requests,
      sum(input_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens)::int8 as input,
      sum(cache_read_tokens)::int8 as cached, sum(output_tokens)::int8 as output, sum(cost_micros)::int8 as micros
    from usage where organization_id = 'org_demo' group by 1
  `);

/** Returns what the console calls the keys or projects of that column. */
const names = async (column: Column) => {
  const isOfKeys = column === "key_id";
  const { data } = await api(
    admin,
    "GET",
    isOfKeys ? "/v1/organizations/api_keys?limit=1000" : "/v1/organization/projects",
  );
  const known = new Map((data as { id: string; name: string }[]).map(({ id, name }) => [id, name]));
  return (id: string) => known.get(id) ?? (isOfKeys ? `Deleted key ${id}` : id);
};

test("usage and costs of each group are the ledger's, to the token and the micro-credit", async () => {
  for (const [group, title, column] of [
    ["model", "Model", "model"],
    ["api_key_id", "Key", "key_id"],
    ["project_id", "Project", "project_id"],
  ] as const) {
    const sums = await ledger(column);
    const nameOf = column === "model" ? (id: string) => id : await names(column);
    const counted = sums.map(({ name, ...sum }) => [
      nameOf(name),
      ...[sum.requests, sum.input, sum.cached, sum.output].map(String),
    ]);
    await open(`usage?group=${group}`);
    expect((await cells(title)).toSorted(byName)).toEqual(counted.toSorted(byName));
    await open(`costs?group=${group}`);
    const charged = (await cells(title)).map(([name = "", credits = "", rupiah = ""]) => {
      expect(micros(rupiah.replace("Rp ", ""))).toBe(micros(credits) * 100n);
      return [name, String(micros(credits))];
    });
    const expected = sums.map((sum) => [nameOf(sum.name), String(sum.micros)]);
    const total = sums.reduce((all, sum) => all + sum.micros, 0n);
    expect(charged.toSorted(byName)).toEqual([...expected, ["Total", String(total)]].toSorted(byName));
  }
});

test("the overview, the banner and the costs' head tell the same balance as the ledger", async () => {
  const [all] = await ledger("organization_id");
  const used = all?.micros ?? 0n;
  const granted = await pool.oneFirst(sql.type(z.object({ sum: z.bigint() }))`
    select sum(amount_micros)::int8 as sum from grants where organization_id = 'org_demo'
  `);
  await open("");
  expect(micros(await figure("Balance"))).toBe(granted - used);
  expect(micros(await figure("Spent in 30 days"))).toBe(used);
  expect(await figure("Requests in 30 days")).toBe(String(all?.requests));
  expect(micros(plain((await page.locator(".credit b").textContent()) ?? ""))).toBe(granted - used);
  for (const [title, column] of [
    ["Top models", "model"],
    ["Top keys", "key_id"],
  ] as const) {
    const nameOf = column === "model" ? (id: string) => id : await names(column);
    // Whoever spends most stands first.
    const spenders = (await ledger(column))
      .toSorted((one, other) => Number(other.micros - one.micros))
      .slice(0, 5)
      .map(({ name, requests, input, output, micros: charged }) => [
        nameOf(name),
        String(requests),
        String(input + output),
        String(charged),
      ]);
    const shown = (await cells(title)).map((row) => row.with(3, String(micros(row[3] ?? ""))));
    expect(shown.map((row) => row[3])).toEqual(spenders.map((row) => row[3]));
    // Of those that spent the same either may stand first.
    expect(shown.toSorted(byName)).toEqual(spenders.toSorted(byName));
  }
  await open("costs");
  expect(micros(await figure("Charged in this range"))).toBe(used);
  expect(micros(await figure("Balance"))).toBe(granted - used);
  expect(micros(await figure("Granted in all"))).toBe(granted);
});

/** What the ledger's own rows say of each day or hour, the newest first. */
const ledgerOver = (unit: "day" | "hour") =>
  pool.any(sql.type(sumSchema)`
    select to_char(date_trunc(${unit}, accepted_at at time zone 'utc'), 'YYYY-MM-DD HH24:MI') as name, count(*)::int8 as requests,
      sum(input_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens)::int8 as input,
      sum(cache_read_tokens)::int8 as cached, sum(output_tokens)::int8 as output, sum(cost_micros)::int8 as micros
    from usage where organization_id = 'org_demo' group by 1 order by 1 desc
  `);

test("each day and each hour of usage is the ledger's, and so are their sums", async () => {
  const [all] = await ledger("organization_id");
  for (const [interval, title] of [
    ["day", "By day"],
    ["hour", "By hour"],
  ] as const) {
    await open(`usage?interval=${interval}`);
    const counted = (await ledgerOver(interval)).map(({ name, ...sum }) => [
      interval === "day" ? name.slice(0, 10) : name,
      ...[sum.requests, sum.input, sum.cached, sum.output].map(String),
    ]);
    expect(await cells(title)).toEqual(counted);
    const sums = ["Requests", "Input tokens", "Output tokens"].map((name) => figure(name));
    expect(await Promise.all(sums)).toEqual([all?.requests, all?.input, all?.output].map(String));
  }
});

test("line items of costs are those of the report, and add up to the ledger's charge", async () => {
  const [all] = await ledger("organization_id");
  const { results } = await api(admin, "GET", "/v1/organizations/cost_report?group_by=description");
  const expected = new Map<string, bigint>();
  for (const { description, credits } of results as { description: string; credits: string }[])
    expected.set(plain(description), (expected.get(plain(description)) ?? 0n) + micros(credits));
  await open("costs?group=line_item");
  const shown = (await cells("Line item")).map(
    ([name = "", credits = ""]) => [name, micros(credits)] as const,
  );
  expect(shown.pop()).toEqual(["Total", all?.micros]);
  expect(new Map(shown)).toEqual(expected);
  expect(shown.reduce((sum, [, charged]) => sum + charged, 0n)).toBe(all?.micros);
});

test("errors and first bytes of the overview are those of the newest records", async () => {
  const [answer] = await Promise.all([
    page.waitForResponse((response) => response.url().includes("/v1/organization/requests?")),
    open(""),
  ]);
  const { data } = (await answer.json()) as {
    data: { status: number; error_code: string | null; first_byte_ms: number | null }[];
  };
  const failed = data.filter(({ status, error_code: code }) => status >= 400 || code !== null).length;
  const firstBytes = data
    .flatMap(({ first_byte_ms: ms }) => (ms === null ? [] : [ms]))
    .toSorted((one, other) => one - other);
  expect(firstBytes.length).toBeGreaterThan(REQUESTS / 2);
  const rank = (percent: number) => `${firstBytes[Math.ceil((percent / 100) * firstBytes.length) - 1]} ms`;
  expect(await Promise.all(["Errors", "First byte, p50", "First byte, p95"].map(figure))).toEqual([
    String(failed),
    rank(50),
    rank(95),
  ]);
});

test("batches and files are counted as the API and the store count them", async () => {
  const next = random(SEED + 1);
  const params = { max_tokens: 20, messages: [{ role: "user", content: "Hello" }] };
  const made: string[] = [];
  for (let turn = 0; turn < 2; turn += 1) {
    const requests = Array.from({ length: 2 + next(4) }, (_, index) => ({
      custom_id: `line-${index}`,
      params: { ...params, model: next(3) === 0 ? "nowhere" : "demo-messages" },
    }));
    made.push(String((await api(inference, "POST", "/v1/messages/batches", { requests }))["id"]));
  }
  const form = new FormData();
  form.set("purpose", "user_data");
  form.set("file", new Blob(["x".repeat(2000 + next(9000))]), "counted.txt");
  await fetch(`${url}/v1/files`, {
    method: "POST",
    headers: { authorization: `Bearer ${inference}` },
    body: form,
  });
  interface Counts {
    readonly processing_status: string;
    readonly request_counts: Readonly<Record<string, number>>;
  }
  const batchOf = async (id: string) =>
    (await api(inference, "GET", `/v1/messages/batches/${id}`)) as unknown as Counts;
  for (const id of made)
    await expect.poll(async () => (await batchOf(id)).processing_status, { timeout: 30_000 }).toBe("ended");

  await page.goto(`${url}/console/batches`);
  await page.getByLabel("Inference key").fill(inference);
  await page.getByRole("button", { name: "Use key" }).click();
  await page.getByRole("table", { name: "Batches" }).waitFor();
  const rows = await cells("Batches");
  for (const id of made) {
    const { succeeded = 0, errored = 0, canceled = 0, expired = 0 } = (await batchOf(id)).request_counts;
    const failed = errored + canceled + expired;
    const row = rows.find(([name]) => name?.startsWith(id));
    expect(row?.slice(1, 5)).toEqual(["ended", ...[succeeded + failed, succeeded, failed].map(String)]);
  }

  await page.getByRole("link", { name: "Files", exact: true }).click();
  await page.getByRole("table", { name: "Files" }).waitFor();
  await settled(page);
  const { storage } = (await api(admin, "GET", "/v1/organization/credits")) as {
    storage: { bytes: number; files: number };
  };
  const room = page.getByRole("meter", { name: "Storage used" });
  expect(await room.getAttribute("aria-valuenow")).toBe(String(storage.bytes));
  await page.getByText(`${storage.files} of 100,000 files`).waitFor();
  const sizes = await pool.any(sql.type(z.object({ name: z.string(), bytes: z.bigint() }))`
    select filename as name, size_bytes as bytes from files
    where organization_id = 'org_demo' and state = 'ready' and filename = 'counted.txt'
  `);
  const size = (await cells("Files")).find(([name]) => name?.startsWith("counted.txt"))?.[2];
  expect(size).toContain(`${sizes[0]?.bytes} bytes`);
});

test("a key's bar is what its rows cost, and its requests add up to it", async () => {
  const { data } = await api(admin, "GET", "/v1/organizations/api_keys?limit=1000");
  const key = (data as { id: string; name: string }[]).find(({ name }) => name === "equal");
  const spent = (await ledger("key_id")).find(({ name }) => name === key?.id)?.micros ?? 0n;
  expect(spent).toBeGreaterThan(0n);
  await open("keys?search=equal");
  const meter = page.getByRole("row").filter({ hasText: "equal" }).getByRole("meter");
  const [shown = ""] = ((await meter.getAttribute("aria-valuetext")) ?? "").split(" of ");
  expect(micros(plain(shown))).toBe(spent);
  // Records are written some moments later than the ledger.
  await expect
    .poll(
      async () => {
        await open(`requests?key=${key?.id}`);
        const rows = await cells("Requests");
        return rows.reduce((sum, row) => sum + micros(row[7] ?? "0"), 0n);
      },
      { timeout: 20_000 },
    )
    .toBe(spent);
  // One by one: model, status, tokens and credits of each are those of its row in the ledger.
  const charged = await pool.any(sql.type(
    sumSchema.pick({ name: true, micros: true }).extend({ tokens: z.bigint() }),
  )`
    select model as name, cost_micros as micros,
      input_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens + output_tokens as tokens
    from usage where organization_id = 'org_demo' and key_id = ${key?.id ?? ""}
  `);
  const inOrder = (lines: readonly string[]) => lines.toSorted();
  const shownRows = (await cells("Requests")).map((row) =>
    [row[1], row[3], row[6], String(micros(row[7] ?? ""))].join(" "),
  );
  expect(inOrder(shownRows)).toEqual(
    inOrder(charged.map(({ name, tokens, micros: cost }) => `${name} 200 ${tokens} ${cost}`)),
  );
});
