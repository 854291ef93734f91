/** Usage, costs and requests in the console: every figure is the API's (rule 11.3). */
import { readFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect } from "vitest";
import { axe, desk, openBrowser, openPage, settled, signIn } from "./browser.ts";
import { consoleTest as test } from "./console-test.ts";
import { api, ask, booked, theWorld } from "./world.ts";

let browser: Browser;
let page: Page;
let faults: readonly string[];
const { url, admin, inference } = theWorld();

beforeAll(async () => {
  browser = await openBrowser();
  ({ page, faults } = await openPage(browser, url, desk));
  await ask(2);
  await booked();
  await signIn(page, url, admin);
});
afterAll(async () => {
  await browser?.close();
});

/** The cells of each row of a table. */
const cells = async (name: string): Promise<string[][]> => {
  const rows = await page.getByRole("table", { name, exact: true }).getByRole("row").all();
  const texts = rows.slice(1).map((row) => row.locator(".cell").allTextContents());
  return await Promise.all(texts);
};
const download = async (): Promise<string[]> => {
  const [saved] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download CSV" }).click(),
  ]);
  return readFileSync(await saved.path(), "utf8")
    .trim()
    .split("\r\n");
};
const byRow = (one: readonly string[], other: readonly string[]) => (one.join() < other.join() ? -1 : 1);
const plain = (figure: string) => figure.replaceAll(",", "");

interface UsageResult {
  readonly model: string;
  readonly num_model_requests: number;
  readonly input_tokens: number;
  readonly input_cached_tokens: number;
  readonly output_tokens: number;
}

test("usage by model is the report's, to the token, on the page and in the file", async () => {
  await page.goto(`${url}/console/usage?group=model`);
  await settled(page);
  const { data } = await api(admin, "GET", "/v1/organization/usage/completions?group_by=model");
  const expected = (data as { results: UsageResult[] }[])
    .flatMap(({ results }) => results)
    .map((one) =>
      [one.model, one.num_model_requests, one.input_tokens, one.input_cached_tokens, one.output_tokens].map(
        String,
      ),
    )
    .toSorted(byRow);
  expect(expected.length).toBeGreaterThan(2);
  expect((await cells("Model")).map((row) => row.map(plain)).toSorted(byRow)).toEqual(expected);
  const [, ...lines] = await download();
  expect(lines.map((line) => line.split(",").slice(1)).toSorted(byRow)).toEqual(expected);
});

test("a link opens the same view, and an empty range is told as one", async () => {
  await page.goto(`${url}/console/usage`);
  await page.getByLabel("Interval").selectOption("hour");
  await page.getByLabel("Group by").selectOption("api_key_id");
  await settled(page);
  await page.reload();
  await settled(page);
  expect(await page.getByLabel("Interval").inputValue()).toBe("hour");
  // Other files of tests have keys of their own in this world, in whichever order they run.
  expect((await cells("Key")).map(([name]) => name)).toContain("default");
  await page.goto(`${url}/console/usage?from=2026-01-01&to=2026-01-02`);
  await page.getByText("Nothing was used in this range").waitFor();
});

test("costs by model and by line item sum to what was used, to the micro-credit", async () => {
  for (const group of ["model", "line_item", "api_key_id"]) {
    await page.goto(`${url}/console/costs?group=${group}`);
    await settled(page);
    const credit = await api(admin, "GET", "/v1/organization/credits");
    const [, ...lines] = await download();
    const micros = (text = "0") => {
      const [whole = "0", fraction = ""] = text.split(".");
      return BigInt(whole) * 1_000_000n + BigInt(fraction.padEnd(6, "0"));
    };
    const rows = lines.map((line) => line.split(",").slice(-2));
    const total = rows.pop();
    expect(micros(total?.[0])).toBe(micros(String(credit["used"])));
    expect(rows.reduce((sum, [credits]) => sum + micros(credits), 0n)).toBe(micros(total?.[0]));
    // A rupiah is a hundredth of a credit.
    for (const [credits, rupiah] of rows) expect(micros(rupiah)).toBe(micros(credits) * 100n);
  }
  const grants = await cells("Grants");
  expect(grants.map(([name, , , amount]) => [name, amount])).toEqual([["welcome", "100,000"]]);
});

test("usage and costs are told by tier and by tag, and of one tag alone, as the link says", async () => {
  for (const [team, times] of [
    ["ml", 2],
    ["search", 1],
  ] as const)
    for (let time = 0; time < times; time += 1)
      await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${inference}`,
          "content-type": "application/json",
          "x-gapura-tags": `team=${team}`,
        },
        body: JSON.stringify({ model: "demo-chat", messages: [{ role: "user", content: "Hello" }] }),
      });
  const report = async (query: string) =>
    (await api(admin, "GET", `/v1/organization/usage/completions?${query}`))["results"] as (UsageResult & {
      service_tier: string;
      credits: string;
      tag: { value: string } | null;
    })[];
  await booked();
  expect(await report("group_by=tag:team")).toHaveLength(3);

  await page.goto(`${url}/console/usage`);
  await page.getByLabel("Group by").selectOption("tag");
  await page.getByLabel("Tag", { exact: true }).fill("team");
  await expect.poll(async () => (await cells("team").catch(() => [])).length).toBe(3);
  await page.reload();
  await settled(page);
  const byTeam = (await cells("team")).map(([name, requests]) => [name, requests]);
  expect(byTeam).toEqual(
    expect.arrayContaining([
      ["ml", "2"],
      ["search", "1"],
    ]),
  );

  await page.goto(`${url}/console/costs?group=tag&tag=team`);
  await settled(page);
  const expected = (await report("group_by=tag:team")).map(({ tag, credits }) => [
    tag?.value ?? "Without it",
    credits,
  ]);
  expect((await cells("team")).slice(0, -1).map(([name, credits]) => [name, plain(credits ?? "")])).toEqual(
    expected,
  );

  await page.getByLabel("Group by").selectOption("service_tier");
  await page.getByLabel("Tag value").fill("ml");
  const [tier] = await report("group_by=service_tier&tags[team]=ml");
  await expect.poll(() => cells("Tier").catch(() => [])).toHaveLength(2);
  await settled(page);
  expect((await cells("Tier")).map(([name, credits]) => [name, plain(credits ?? "")])).toEqual([
    ["standard", tier?.credits],
    ["Total", tier?.credits],
  ]);
  await page.goto(`${url}/console/usage?tier=priority`);
  await page.getByText("Nothing was used in this range").waitFor();
});

test("whoever groups by a tag is asked which one", async () => {
  for (const view of ["usage", "costs"]) {
    await page.goto(`${url}/console/${view}`);
    await page.getByLabel("Group by").selectOption("tag");
    await page.getByText("Name the tag to group by.").waitFor();
    await page.getByLabel("Tag", { exact: true }).fill("team");
    await page.getByText("Name the tag to group by.").waitFor({ state: "detached" });
  }
});

test("four hundred days of costs are asked for in parts and told whole", async () => {
  await page.goto(`${url}/console/costs`);
  await page.getByRole("button", { name: "400 days" }).click();
  await settled(page);
  const [from, to] = await Promise.all(["From", "To"].map((name) => page.getByLabel(name).inputValue()));
  expect((Date.parse(to ?? "") - Date.parse(from ?? "")) / 86_400_000).toBe(399);
  const { used } = await api(admin, "GET", "/v1/organization/credits");
  const charged = page.locator(".stat").filter({ hasText: "Charged in this range" }).locator(".stat-value");
  expect(plain((await charged.textContent()) ?? "")).toBe(used);
  for (const group of ["model", "line_item"]) {
    await page.getByLabel("Group by").selectOption(group);
    await settled(page);
    expect(plain((await cells(group === "model" ? "Model" : "Line item")).at(-1)?.[1] ?? "")).toBe(used);
  }
});

test("old figures under a new filter are told as old from the first drawing on", async () => {
  await page.goto(`${url}/console/usage`);
  await settled(page);
  // All that is drawn between the choice and the effects, which run after the browser has painted.
  const busy: unknown = await page.evaluate(`(() => {
    const [label] = [...document.querySelectorAll("label")].filter((one) => one.textContent === "Batch or live");
    label.control.value = "false";
    label.control.dispatchEvent(new Event("input", { bubbles: true }));
    return new Promise((done) => queueMicrotask(done)).then(
      () => document.querySelector("section.section").ariaBusy,
    );
  })()`);
  expect(new URL(page.url()).searchParams.get("batch")).toBe("false");
  expect(busy).toBe("true");
});

test("figures of another question are seen to be such while the new ones are on their way, or have failed", async () => {
  await page.goto(`${url}/console/usage`);
  await settled(page);
  const opacity = () =>
    page.evaluate<number>("Number(getComputedStyle(document.querySelector('.stats')).opacity)");
  expect(await opacity()).toBe(1);
  const { promise: due, resolve: answer } = Promise.withResolvers<void>();
  await page.route("**/v1/organization/usage/completions?*", async (route) => {
    await due;
    await route.fulfill({ status: 503, json: { error: { message: "The store is away.", code: "x" } } });
  });
  await page.getByLabel("Batch or live").selectOption("false");
  await expect.poll(opacity).toBeLessThan(1);
  answer();
  await page.getByRole("alert").getByText("The store is away.").waitFor();
  expect(await opacity()).toBeLessThan(1);
  await page.unroute("**/v1/organization/usage/completions?*");
  await page.getByRole("button", { name: "Try again" }).click();
  await expect.poll(opacity).toBe(1);
});

test("what is typed into a filter is asked for once, and nothing else is shown under it", async () => {
  await page.goto(`${url}/console/requests`);
  await settled(page);
  const asked: string[] = [];
  await page.route("**/v1/organization/requests?*", async (route) => {
    const model = new URL(route.request().url()).searchParams.get("model") ?? "";
    asked.push(model);
    // Whoever asks twice gets the second answer first.
    if (model !== "demo-chat") await new Promise((done) => setTimeout(done, 1500));
    await route.continue().catch(() => {});
  });
  const field = page.getByRole("main").getByLabel("Model");
  await field.pressSequentially("demo-messages", { delay: 40 });
  await expect.poll(() => asked).toEqual(["demo-messages"]);
  await field.fill("demo-chat");
  await settled(page);
  const models = async () => [...new Set((await cells("Requests")).map(([, model]) => model))];
  expect(await models()).toEqual(["demo-chat"]);
  await new Promise((done) => setTimeout(done, 1600));
  expect([await models(), asked]).toEqual([["demo-chat"], ["demo-messages", "demo-chat"]]);
  await page.unroute("**/v1/organization/requests?*");
});

test("what was wrong with one question is not told of the next one", async () => {
  await page.goto(`${url}/console/requests?status=999`);
  const problem = page.getByRole("main").getByRole("alert");
  await problem.getByText("status must be").waitFor();
  const { promise: due, resolve: answer } = Promise.withResolvers<void>();
  await page.route("**/v1/organization/requests?*", async (route) => {
    await due;
    await route.continue();
  });
  await page.getByRole("main").getByLabel("Status").fill("200");
  await problem.waitFor({ state: "detached" });
  answer();
  await page.getByRole("table", { name: "Requests" }).waitFor();
  await page.unrouteAll();
});

test("usage of batches and of all else is told apart", async () => {
  await page.goto(`${url}/console/usage`);
  await page.getByLabel("Batch or live").selectOption("false");
  await settled(page);
  const [live] = (
    (await api(admin, "GET", "/v1/organization/usage/completions?batch=false"))["results"] as UsageResult[]
  ).map((result) => result.num_model_requests);
  const requests = page.locator(".stat").filter({ hasText: "Requests" }).locator(".stat-value");
  expect(plain((await requests.textContent()) ?? "")).toBe(String(live));
  await page.goto(`${url}/console/usage?batch=true&to=2026-01-02`);
  await page.getByText("Nothing was used in this range").waitFor();
  expect(await page.getByLabel("Batch or live").inputValue()).toBe("true");
});

test("a month of costs is exported as FOCUS, with the key that is signed in", async () => {
  await page.goto(`${url}/console/costs`);
  await page.getByRole("button", { name: "FOCUS export" }).click();
  const dialog = page.getByRole("dialog", { name: "FOCUS export" });
  expect(await axe(page)).toEqual([]);
  const month = new Date().toISOString().slice(0, 7);
  expect(await dialog.getByLabel("Month").inputValue()).toBe(month);
  const [saved] = await Promise.all([
    page.waitForEvent("download"),
    dialog.getByRole("button", { name: "Download" }).click(),
  ]);
  expect(saved.suggestedFilename()).toBe(`focus-${month}.csv`);
  expect(readFileSync(await saved.path(), "utf8")).toMatch(/BilledCost/);
});

test("requests of one key or project are found by filters that stand in the link", async () => {
  const made = await api(admin, "POST", "/v1/organizations/api_keys", { name: "sought" });
  const [key, id] = [String(made["key"]), String(made["id"])];
  const question = { model: "demo-chat", messages: [{ role: "user", content: "Hello" }] };
  await api(key, "POST", "/v1/chat/completions", question);
  await api(inference, "POST", "/v1/chat/completions", question);
  await page.goto(`${url}/console/requests`);
  await page.getByLabel("Follow live").check();
  await page.getByLabel("Key", { exact: true }).selectOption(id);
  await expect
    .poll(async () => (await cells("Requests").catch(() => [])).length, { timeout: 15_000 })
    .toBe(1);
  expect((await cells("Requests"))[0]?.[2]).toBe("sought");
  await page.reload();
  await settled(page);
  expect(await page.getByLabel("Key", { exact: true }).inputValue()).toBe(id);
  expect(await cells("Requests")).toHaveLength(1);
  await page.goto(`${url}/console/requests?key=${id}&project=elsewhere`);
  await page.getByText("No request matches").waitFor();
});

test("a key that was deleted is told to be, and one that was made meanwhile by its name", async () => {
  const made = async (name: string) => await api(admin, "POST", "/v1/organizations/api_keys", { name });
  const use = async (key: unknown) =>
    await api(String(key), "POST", "/v1/chat/completions", {
      model: "demo-chat",
      messages: [{ role: "user", content: "Hello" }],
    });
  const { id: gone, key } = await made("soon gone");
  await use(key);
  await api(admin, "DELETE", `/v1/organization/projects/default/api_keys/${String(gone)}`);
  await page.goto(`${url}/console/requests`);
  await settled(page);
  const keyCells = page.getByRole("table", { name: "Requests" }).getByRole("cell");
  await keyCells.getByText(`Deleted key ${String(gone)}`).waitFor();
  await page.getByLabel("Follow live").check();
  const { key: fresh } = await made("made meanwhile");
  await use(fresh);
  await keyCells.getByText("made meanwhile", { exact: true }).waitFor();
  await booked();
  await page.goto(`${url}/console/usage?group=api_key_id`);
  await page.getByRole("rowheader", { name: `Deleted key ${String(gone)}` }).waitFor();
});

test("a status that is none is said to be none, as it filters nothing", async () => {
  await page.goto(`${url}/console/requests`);
  await settled(page);
  const status = page.getByRole("main").getByLabel("Status");
  const hint = page.getByText("Three digits, such as 503.");
  expect(await hint.count()).toBe(0);
  await status.fill("5xx");
  await hint.waitFor();
  await status.fill("503");
  await hint.waitFor({ state: "detached" });
});

test("a failed request is found by its status, and tells what happened", async () => {
  const refused = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${inference}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "nowhere", messages: [{ role: "user", content: "Hello" }] }),
  });
  const id = refused.headers.get("x-request-id") ?? "none";
  await page.goto(`${url}/console/requests?status=404`);
  await page.getByLabel("Follow live").check();
  const found = page.getByRole("table", { name: "Requests" }).getByRole("row").filter({ hasText: id });
  await found.getByText("model_not_found").waitFor();
  await found.getByRole("link", { name: "Details" }).click();
  await page.getByRole("heading", { name: id }).waitFor();
  // Its address is a link that opens it again, and the list it was found in.
  await page.reload();
  await page.getByText("It was answered without calling a model.").waitFor();
  await settled(page);
  expect(await axe(page)).toEqual([]);
  await page.getByRole("link", { name: "All requests" }).click();
  await found.waitFor();
  expect(new URL(page.url()).search).toBe("?status=404");
  // Other tests of this world fail requests of their own meanwhile: what the page shows is what its own question was answered.
  const [answer] = await Promise.all([
    page.waitForResponse((response) => response.url().includes("/v1/organization/requests?")),
    page.getByRole("link", { name: "Overview" }).click(),
  ]);
  const { data } = (await answer.json()) as {
    data: { id: string; status: number; error_code: string | null; tries: unknown[] }[];
  };
  const failures = data.filter(({ status, error_code: code }) => status >= 400 || code !== null);
  const failed = failures.map((request) => request.id);
  expect(failed).toContain(id);
  // What its caller asked for wrongly is no fault of a model or the service.
  const notCallers = failures.filter(
    ({ status, tries }) => status < 400 || status >= 500 || (status === 429 && tries.length > 0),
  );
  const byWhom =
    notCallers.length === 0
      ? "all by the callers"
      : `${notCallers.length} by a model or the service, the others by the callers`;
  await page.getByText(`; ${byWhom}`).waitFor();
  await page.getByRole("table", { name: "Last failures" }).waitFor();
  expect((await cells("Last failures")).map(([first]) => first)).toEqual(failed.slice(0, 5));
  expect(faults).toEqual([]);
});

test("what became of each try of a failed request is said in words, and not in the service's own alone", async () => {
  const script = { error: { status: 500, message: "boom" } };
  const failed = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${inference}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "demo-chat",
      messages: [{ role: "user", content: `{{script: ${JSON.stringify(script)}}}` }],
    }),
  });
  const id = failed.headers.get("x-request-id") ?? "none";
  await expect
    .poll(() => api(admin, "GET", `/v1/organization/requests/${id}`), { timeout: 15_000 })
    .toHaveProperty("tries");
  await page.goto(`${url}/console/requests?request=${id}`);
  const tries = page.locator(".card").filter({ hasText: "Tries" }).getByRole("listitem");
  await tries.filter({ hasText: "server_error" }).getByText("The provider failed.").first().waitFor();
});

/** One request as many, each with an id of its own. */
const manyRequests = async (change: Record<string, unknown>, count: number, hasMore = false) =>
  await page.route("**/v1/organization/requests?*", async (route) => {
    const asked = new URL(route.request().url());
    // The ids that are made up here are no cursors of the service.
    asked.searchParams.delete("after");
    const response = await route.fetch({ url: asked.href });
    const answer = (await response.json()) as { readonly data: readonly object[] };
    const data = Array.from({ length: count }, (_, index) => ({
      ...answer.data[0],
      ...change,
      id: `req_many_${index}`,
    }));
    await route.fulfill({
      response,
      json: { ...answer, data, has_more: hasMore, last_id: `req_many_${count - 1}` },
    });
  });

test("older requests are shown from their first row on, wherever the newer ones were left", async () => {
  await manyRequests({}, 101, true);
  await page.goto(`${url}/console/requests`);
  await settled(page);
  for (const range of ["51–100 of 101", "101–101 of 101"]) {
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText(range).waitFor();
  }
  await page.getByRole("link", { name: "Older requests" }).click();
  await page.getByRole("link", { name: "Newest requests" }).waitFor();
  await settled(page);
  await page.getByText("1–50 of 101").waitFor();
  await page.unroute("**/v1/organization/requests?*");
});

test("a link to a page that follows what is gone leads back to the newest", async () => {
  await page.goto(`${url}/console/requests?after=req_gone&model=demo-chat`);
  await page.getByRole("alert").getByText("after").waitFor();
  await page.getByRole("link", { name: "Newest requests" }).click();
  await page.getByRole("table", { name: "Requests" }).waitFor();
  expect(page.url()).toBe(`${url}/console/requests?model=demo-chat`);
  expect(await page.getByRole("alert").count()).toBe(0);
});

test("the pages of a list keep the focus, say where they are and number their rows", async () => {
  await manyRequests({}, 101);
  await page.goto(`${url}/console/requests`);
  await settled(page);
  const next = page.getByRole("button", { name: "Next" });
  await next.focus();
  for (const range of ["51–100 of 101", "101–101 of 101"]) {
    await page.keyboard.press("Enter");
    await page.getByRole("status").getByText(range).waitFor();
    expect(await next.evaluate("document.activeElement.textContent")).toBe("Next");
  }
  expect(await next.isDisabled()).toBe(true);
  const table = page.getByRole("table", { name: "Requests" });
  expect(await table.getAttribute("aria-rowcount")).toBe("102");
  expect(await table.getByRole("row").last().getAttribute("aria-rowindex")).toBe("102");
  await page.unroute("**/v1/organization/requests?*");
});

test("milliseconds are written as every other figure is", async () => {
  await manyRequests({ duration_ms: 1_234_567, first_byte_ms: 120_345, status: 200, error_code: null }, 1);
  await page.goto(`${url}/console/requests`);
  await settled(page);
  const [row = []] = await cells("Requests");
  expect(row).toEqual(expect.arrayContaining(["1,234,567 ms", "120,345 ms"]));
  await page.goto(`${url}/console/`);
  await page.locator(".stat").filter({ hasText: "p95" }).getByText("120,345 ms").waitFor();
  await page.unroute("**/v1/organization/requests?*");
});

test("each day's charge stands on Costs, to the micro-credit, and the days are the total", async () => {
  await page.goto(`${url}/console/costs`);
  await settled(page);
  const { data } = await api(admin, "GET", `/v1/organization/costs?start_time=${startOfRange()}&limit=180`);
  const expected = (
    data as { readonly start_time: number; readonly results: { readonly credits: string }[] }[]
  )
    .filter(({ results }) => results.length > 0)
    .map(({ start_time: start, results }) => [
      new Date(start * 1000).toISOString().slice(0, 10),
      results[0]?.credits,
    ]);
  const rows = (await cells("By day")).map(([day, credits = ""]) => [day, plain(credits)]);
  const total = rows.pop();
  expect(rows).toEqual(expected.toReversed());
  expect(total?.[1]).toBe(plain((await cells("Model")).at(-1)?.[1] ?? ""));
});
const startOfRange = () => Math.floor(Date.now() / 86_400_000 - 29) * 86_400;

test("a total stands beneath each page of a long list", async () => {
  await page.route("**/v1/organization/usage/completions?*", async (route) => {
    const response = await route.fetch();
    const answer = (await response.json()) as { readonly results: readonly object[] };
    const results = Array.from({ length: 60 }, (_, index) => ({ ...answer.results[0], model: `m-${index}` }));
    await route.fulfill({ response, json: { ...answer, results } });
  });
  await page.goto(`${url}/console/costs`);
  await page.getByText("1–50 of 60").waitFor();
  expect((await cells("Model")).map(([name]) => name).slice(-2)).toEqual(["m-49", "Total"]);
  await page.unroute("**/v1/organization/usage/completions?*");
});

test("a request is found by its id, wherever it was told", async () => {
  const { data } = await api(admin, "GET", "/v1/organization/requests?limit=1");
  const [{ id }] = data as [{ readonly id: string }];
  await page.goto(`${url}/console/requests?status=200`);
  await page.getByLabel("Request ID").fill(` ${id} `);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: id }).waitFor();
  expect(new URL(page.url()).searchParams.get("request")).toBe(id);
  await page.goBack();
  await page.getByRole("table", { name: "Requests" }).waitFor();
});

test("what is no id opens no request, and the page stays at hand", async () => {
  for (const id of [".", "..", "a/b?c"]) {
    await page.goto(`${url}/console/requests`);
    await page.getByLabel("Request ID").fill(id);
    await page.getByRole("button", { name: "Open request" }).click();
    await page.getByRole("main").getByRole("alert").getByText("There is no such request").waitFor();
    await page.getByRole("link", { name: "All requests" }).click();
    await page.getByRole("table", { name: "Requests" }).waitFor();
  }
  expect(faults).toEqual([]);
});

test("a list without a filter says that there is nothing, one with a filter that nothing matches", async () => {
  await page.route("**/v1/organization/requests?*", (route) =>
    route.fulfill({ json: { object: "list", data: [], has_more: false, first_id: null, last_id: null } }),
  );
  await page.goto(`${url}/console/requests`);
  await page.getByText("There is no request yet").waitFor();
  await page.getByLabel("Error code").fill("nothing");
  await page.getByText("No request matches these filters").waitFor();
  await page.unroute("**/v1/organization/requests?*");
});

test("a range is typed as it is by whoever has a keyboard alone: a year comes digit by digit", async () => {
  const asked: string[] = [];
  page.on("request", (request) => {
    if (request.url().includes("/usage/completions")) asked.push(request.url());
  });
  await page.goto(`${url}/console/usage?from=2026-01-10&to=2026-03-10`);
  await settled(page);
  for (const [field, digits, day] of [
    ["From", "02052026", "2026-02-05"],
    ["To", "03082026", "2026-03-08"],
  ] as const) {
    await page.getByLabel(field).focus();
    await page.keyboard.type(digits, { delay: 30 });
    expect(await page.getByLabel(field).inputValue()).toBe(day);
  }
  await settled(page);
  expect(new URL(page.url()).search).toBe("?from=2026-02-05&to=2026-03-08");
  // Nothing is asked of the days in the year 2, 20 and 202.
  expect(asked.filter((address) => /start_time=-/.test(address))).toEqual([]);
});
