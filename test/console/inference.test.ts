/** What needs an inference key: models, batches, files, the playground; and what a hostile model can do: nothing. */
import { readFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect } from "vitest";
import { axe, desk, openBrowser, openPage, settled, signIn } from "./browser.ts";
import { consoleTest as test } from "./console-test.ts";
import { api, pricedModel, theWorld } from "./world.ts";

let browser: Browser;
let page: Page;
let faults: readonly string[];
const {
  url,
  admin,
  inference,
  keys: { many },
} = theWorld();

beforeAll(async () => {
  browser = await openBrowser();
  ({ page, faults } = await openPage(browser, url, desk));
  await signIn(page, url, admin);
});
afterAll(async () => {
  await browser?.close();
});

/** The key stands in memory alone: whoever loads the page anew gives it again. */
const open = async (view: string) => {
  await page.goto(`${url}/console/${view}`);
  await page.getByLabel("Inference key").fill(inference);
  await page.getByRole("button", { name: "Use key" }).click();
  await page.getByText("With the inference key").waitFor();
  await settled(page);
};
const send = async (text: string) => {
  await page.getByLabel("User message").fill(text);
  await page.getByRole("button", { name: "Send" }).click();
};
const scripted = (step: object) => `{{script: ${JSON.stringify(step)}}}`;
const answer = () => page.getByRole("region", { name: /^demo-/ });

test("an admin key is no inference key; one that is stays in memory alone, from view to view", async () => {
  await page.goto(`${url}/console/models`);
  await page.getByLabel("Inference key").fill(admin);
  await page.getByRole("button", { name: "Use key" }).click();
  await page.getByRole("alert").getByText("This is an admin key.").waitFor();
  await page.getByLabel("Inference key").fill(inference);
  await page.getByRole("button", { name: "Use key" }).click();
  await page.getByRole("row").filter({ hasText: "demo-chat" }).waitFor();
  expect(
    await page.evaluate("JSON.stringify([{ ...sessionStorage }, { ...localStorage }, location.href])"),
  ).not.toContain(inference);
  await page.getByRole("link", { name: "Files" }).click();
  await page.getByText("Storage used").or(page.getByRole("meter")).first().waitFor();
});

test("another organization's key is refused: its files and batches would stand under this one's name", async () => {
  await page.goto(`${url}/console/files`);
  const field = page.getByLabel("Inference key");
  await field.fill(many.inference);
  await page.getByRole("button", { name: "Use key" }).click();
  await page.getByRole("alert").getByText("belongs to another organization").waitFor();
  await field.fill(inference);
  await page.getByRole("button", { name: "Use key" }).click();
  await page.getByRole("meter", { name: "Storage used" }).waitFor();
});

test("a model has its prices as the API tells them, and snippets with this address", async () => {
  await open("models?model=demo-messages");
  const { pricing } = (await api(inference, "GET", "/v1/models/demo-messages")) as {
    pricing: Record<string, string>;
  };
  const row = page.getByRole("table", { name: "Prices" }).getByRole("row").nth(1);
  expect((await row.locator(".cell").allTextContents()).slice(1)).toEqual(
    ["input", "output", "cache_read", "cache_write_5m", "cache_write_1h"].map((name) => pricing[name]),
  );
  for (const client of ["curl", "OpenAI SDK", "Anthropic SDK", "Codex", "Claude Code"]) {
    await page.getByRole("button", { name: client }).click();
    await page.getByRole("region", { name: "Code" }).getByText(url).first().waitFor();
  }
});

test("a batch ends before one's eyes; its failed lines tell why, its results come as a file", async () => {
  const params = { max_tokens: 20, messages: [{ role: "user", content: "Hello" }] };
  const { id } = await api(inference, "POST", "/v1/messages/batches", {
    requests: [
      { custom_id: "good", params: { ...params, model: "demo-messages" } },
      { custom_id: "bad", params: { ...params, model: "nowhere" } },
    ],
  });
  await open("batches");
  const row = page.getByRole("row").filter({ hasText: String(id) });
  await row.getByText("ended").waitFor();
  await row.getByRole("button", { name: "Failed lines" }).click();
  await page.getByRole("dialog").getByRole("row").filter({ hasText: "bad" }).waitFor();
  await page.keyboard.press("Escape");
  const [saved] = await Promise.all([
    page.waitForEvent("download"),
    row.getByRole("button", { name: "Download results" }).click(),
  ]);
  expect(
    readFileSync(await saved.path(), "utf8")
      .trim()
      .split("\n"),
  ).toHaveLength(2);
});

test("of more failed lines than a page holds it is said that there are more", async () => {
  const params = { model: "nowhere", max_tokens: 20, messages: [{ role: "user", content: "Hello" }] };
  const { id } = await api(inference, "POST", "/v1/messages/batches", {
    requests: [{ custom_id: "bad", params }],
  });
  await open("batches");
  await page.route("**/v1/messages/batches/*/results", (route) =>
    route.fulfill({
      contentType: "application/x-jsonl",
      body: Array.from({ length: 10_001 }, (_, index) =>
        JSON.stringify({ custom_id: `line-${index}`, result: { type: "expired" } }),
      ).join("\n"),
    }),
  );
  const row = page.getByRole("row").filter({ hasText: String(id) });
  await row.getByRole("button", { name: "Failed lines" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("1–50 of 10,000").waitFor();
  await dialog.getByText("reading stops after 10,000 failed lines or 256.0 MiB").waitFor();
  await page.keyboard.press("Escape");
  await page.unrouteAll();
});

test("the question whether a batch shall be cancelled has one button that cancels, and one that lets it run", async () => {
  const slow = scripted({
    answer: { parts: [{ type: "text", text: "At last." }] },
    faults: { delayHeadersMs: 10_000 },
  });
  const { id } = await api(inference, "POST", "/v1/messages/batches", {
    requests: [
      {
        custom_id: "slow",
        params: { model: "demo-messages", max_tokens: 20, messages: [{ role: "user", content: slow }] },
      },
    ],
  });
  await open("batches");
  const row = page.getByRole("row").filter({ hasText: String(id) });
  const ask = async () => {
    await row.getByRole("button", { name: "Cancel", exact: true }).click();
    const dialog = page.getByRole("dialog", { name: `Cancel ${String(id)}?` });
    // It opens after the drawing that follows the click.
    await dialog.waitFor();
    expect(await dialog.getByRole("button").allTextContents()).toEqual(["Let it run", "Cancel batch"]);
    return dialog;
  };
  await (await ask()).getByRole("button", { name: "Let it run" }).click();
  await row.getByText("in progress").waitFor();
  await (await ask()).getByRole("button", { name: "Cancel batch" }).click();
  await row.getByText(/cancelling|ended/).waitFor();
});

test("a key that has ended is asked for again, also where a file was to be fetched with it", async () => {
  const made = await api(admin, "POST", "/v1/organizations/api_keys", { name: "ends soon" });
  const form = new FormData();
  form.set("purpose", "user_data");
  form.set("file", new Blob(["words"]), "ends-soon.txt");
  const headers = { authorization: `Bearer ${inference}` };
  expect((await fetch(`${url}/v1/files`, { method: "POST", headers, body: form })).status).toBe(200);
  const other = await openPage(browser, url, desk);
  await signIn(other.page, url, admin);
  await other.page.goto(`${url}/console/files`);
  const field = other.page.getByLabel("Inference key");
  await field.fill(String(made["key"]));
  await other.page.getByRole("button", { name: "Use key" }).click();
  const row = other.page.getByRole("row").filter({ hasText: "ends-soon.txt" });
  await row.waitFor();
  await api(admin, "POST", `/v1/organizations/api_keys/${String(made["id"])}`, { status: "inactive" });
  await row.getByRole("button", { name: "Download", exact: true }).click();
  await field.waitFor();
  await other.page.context().close();
});

test("a batch that failed at its input is seen to have failed, with the reason of each line", async () => {
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new Blob(['{"custom_id": "one"}\nnot JSON']), "bad.jsonl");
  const uploaded = await fetch(`${url}/v1/files`, {
    method: "POST",
    headers: { authorization: `Bearer ${inference}` },
    body: form,
  });
  const { id: input } = (await uploaded.json()) as { id: string };
  const { id } = await api(inference, "POST", "/v1/batches", {
    input_file_id: input,
    endpoint: "/v1/responses",
    completion_window: "24h",
  });
  await open("batches");
  const row = page.getByRole("row").filter({ hasText: String(id) });
  await row.locator(".badge.bad").getByText("failed").waitFor();
  await row.getByRole("button", { name: "Failed lines" }).click();
  const lines = page.getByRole("dialog").getByRole("row");
  await lines.filter({ hasText: "2" }).getByText("invalid_json_line").waitFor();
  expect(await lines.count()).toBe(3);
  await page.keyboard.press("Escape");
});

test("the prices that were searched for stand in the address, and open again", async () => {
  await open("costs?search=demo-chat");
  const rows = page.getByRole("table", { name: "Prices" }).getByRole("rowheader").locator(".cell");
  await expect.poll(() => rows.allTextContents()).toEqual(["demo-chat"]);
  await page.getByLabel("Search").fill("demo-messages");
  await expect.poll(() => new URL(page.url()).searchParams.get("search")).toBe("demo-messages");
});

test("prices stand on Costs as they apply now, with tiers and announced changes, and as the API tells them", async () => {
  const other = await openPage(browser, url, desk);
  await signIn(other.page, url, many.admin);
  await other.page.goto(`${url}/console/costs`);
  await other.page.getByLabel("Inference key").fill(many.inference);
  await other.page.getByRole("button", { name: "Use key" }).click();
  await other.page.getByLabel("Search").fill(pricedModel);
  const table = other.page.getByRole("table", { name: "Prices" });
  await expect.poll(() => table.getByRole("row").count()).toBe(5);
  const { pricing } = (await api(many.inference, "GET", `/v1/models/${pricedModel}`)) as {
    pricing: {
      input: string;
      output: string;
      tiers: { input: string; output: string }[];
      changes: { input: string; output: string }[];
    };
  };
  const rows = await table.getByRole("row").all();
  const cells = await Promise.all(
    rows.slice(1).map(async (row) => (await row.locator(".cell").allTextContents()).slice(0, 4)),
  );
  expect(cells).toEqual([
    [pricedModel, "Every request", pricing.input, pricing.output],
    [pricedModel, "Input over 50,000 tokens", pricing.tiers[0]?.input, pricing.tiers[0]?.output],
    [pricedModel, "Tier priority", "× 2", "× 2"],
    [
      pricedModel,
      "From 2099-01-01 00:00 UTC Announced",
      pricing.changes[0]?.input,
      pricing.changes[0]?.output,
    ],
  ]);
  expect(await axe(other.page)).toEqual([]);
  expect(other.faults).toEqual([]);
  await other.page.context().close();
});

test("a model's health is judged by its requests, and leads to them", async () => {
  const ask = async (faults: object) => {
    const step = { answer: { parts: [{ type: "text", text: "Some words of an answer." }] }, faults };
    const answer = await fetch(`${url}/v1/messages`, {
      method: "POST",
      headers: { authorization: `Bearer ${many.inference}`, "content-type": "application/json" },
      body: JSON.stringify({
        model: pricedModel,
        max_tokens: 100,
        stream: true,
        messages: [{ role: "user", content: scripted(step) }],
      }),
    });
    await answer.text().catch(() => "");
  };
  const other = await openPage(browser, url, desk);
  await signIn(other.page, url, many.admin);
  await other.page.goto(`${url}/console/models?model=${pricedModel}`);
  await other.page.getByLabel("Inference key").fill(many.inference);
  await other.page.getByRole("button", { name: "Use key" }).click();
  await other.page.getByText("Not called lately").waitFor();
  await ask({});
  await ask({});
  await ask({ noTerminal: true });
  const shows = async (count: string) => {
    // Records are written some moments after the answer; the page asks again by itself, more seldom than a test waits.
    await other.page.getByRole("link", { name: "All models" }).click();
    await other.page.getByLabel("Search").fill(pricedModel);
    await other.page.getByRole("link", { name: "Details" }).click();
    await other.page.getByText("Health").waitFor();
    await settled(other.page);
    return (await other.page.getByText(count).count()) > 0;
  };
  await expect.poll(() => shows("1 of 3 failed"), { timeout: 30_000, interval: 300 }).toBe(true);
  await other.page.getByText("Some failures").waitFor();
  await other.page.getByRole("link", { name: "Its requests" }).click();
  await expect
    .poll(() => other.page.getByRole("table", { name: "Requests" }).getByRole("row").count())
    .toBe(4);
  // An answer that broke off is no good one, whatever its status.
  expect(await other.page.locator("td .badge.bad").allTextContents()).toEqual(["200"]);
  expect(other.faults).toEqual([]);
  await other.page.context().close();
});

test("files and batches beyond the most that a page holds are reached, and it is said how many it holds", async () => {
  const pages = (path: string) =>
    page.route(
      ({ pathname }) => pathname === path,
      async (route) => {
        const response = await route.fetch({ url: `${url}${path}?limit=1` });
        const answer = (await response.json()) as { readonly data: readonly object[] };
        const after = new URL(route.request().url()).searchParams.get("after") ?? "";
        const data = Array.from({ length: 1000 }, (_, index) => ({
          ...answer.data[0],
          id: `batch_${Number(after.split("_")[1] ?? 0) + index + 1}`,
        }));
        await route.fulfill({ response, json: { ...answer, data, has_more: true } });
      },
    );
  await api(inference, "POST", "/v1/messages/batches", {
    requests: [
      {
        custom_id: "one",
        params: { model: "demo-messages", max_tokens: 9, messages: [{ role: "user", content: "Hello" }] },
      },
    ],
  });
  const form = new FormData();
  form.set("purpose", "user_data");
  form.set("file", new Blob(["x"]), "one.txt");
  await fetch(`${url}/v1/files`, {
    method: "POST",
    headers: { authorization: `Bearer ${inference}` },
    body: form,
  });
  await open("batches");
  expect(await page.getByText("at once").count()).toBe(0);
  expect(await page.getByRole("link", { name: "Older batches" }).count()).toBe(0);
  await pages("/v1/messages/batches");
  await page.getByText("At most 2,000 of either kind at once").waitFor();
  const first = page.getByRole("main").getByRole("rowheader").first();
  await page.getByRole("link", { name: "Older batches" }).click();
  await first.filter({ hasText: "batch_2001" }).waitFor();
  await page.reload();
  await open("batches");
  await pages("/v1/files");
  await page.getByRole("link", { name: "Files", exact: true }).click();
  await page.getByText("10,000 at once").waitFor();
  await page.getByRole("link", { name: "Older files" }).click();
  await page.getByText("batch_10001", { exact: true }).waitFor();
  // A filter holds on each page, and is shown to, also where it leaves nothing.
  await open(`files${new URL(page.url()).search}&purpose=vision`);
  await page.getByText("No file matches these filters").waitFor();
  expect(await page.getByLabel("Purpose").inputValue()).toBe("vision");
  await page.getByLabel("Purpose").selectOption("");
  await page.getByLabel("Search").fill("BATCH_19999");
  await expect.poll(() => page.getByRole("main").getByRole("rowheader").count()).toBe(1);
  await page.getByLabel("Search").fill("");
  await page.getByRole("link", { name: "Newest files" }).click();
  await page.getByText("batch_1", { exact: true }).waitFor();
  await page.unrouteAll();
});

test("a file is listed with its size, and deleted after a question that names it", async () => {
  const form = new FormData();
  form.set("purpose", "user_data");
  form.set("file", new Blob(["x".repeat(2048)]), "notes & more.txt");
  await fetch(`${url}/v1/files`, {
    method: "POST",
    headers: { authorization: `Bearer ${inference}` },
    body: form,
  });
  await open("files");
  const row = page.getByRole("row").filter({ hasText: "notes & more.txt" });
  await row.getByText("2.0 KiB").waitFor();
  await row.getByRole("button", { name: "Delete" }).click();
  await page
    .getByRole("dialog", { name: "notes & more.txt" })
    .getByRole("button", { name: "Delete" })
    .click();
  await row.waitFor({ state: "detached" });
});

test.for(["messages", "chat", "responses"])(
  "the playground streams %s with tools, sources, tokens and cost",
  async (dialect) => {
    await open(`playground?dialect=${dialect}&model=demo-chat`);
    await page.getByLabel("Web search").check();
    await send("Search the web for tea");
    await answer().getByRole("heading", { name: "Sources" }).waitFor();
    await answer()
      .getByText(/\d+ in, \d+ out/)
      .waitFor();
    await answer().locator("dd").last().getByText(/^\d/).waitFor();
    await page.getByRole("button", { name: "As code" }).click();
    await page.getByText("$GAPURA_KEY").waitFor();
    expect(await axe(page)).toEqual([]);
  },
);

test("a hostile answer is text: no script, no picture, no link but http, whatever its length", async () => {
  await open("playground?model=demo-messages");
  const markdown = [
    "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>",
    "[run](javascript:window.hurt=1) [data](data:text/html,x) ![p](https://evil.test/p.png) [fine](https://fine.test/)",
    "\u202Eright to left\u202C \u0645\u0631\u062D\u0628\u0627 👩‍👩‍👧‍👦",
  ].join("\n\n");
  // What a hostile page would have a search cite.
  const cite = (url: string) => ({
    type: "web_search_result_location",
    url,
    title: "<img src=x onerror='window.hurt = 1'>",
    cited_text: "",
    encrypted_index: "x",
  });
  const citations = [cite("javascript:window.hurt=1"), cite("data:text/html,<script>window.hurt=1</script>")];
  await send(scripted({ answer: { parts: [{ type: "text", text: markdown, citations }] } }));
  await answer().getByRole("link", { name: "fine" }).waitFor();
  await answer().getByText("<img src=x onerror='window.hurt = 1'>", { exact: true }).first().waitFor();
  const foreign = answer().locator("p", { hasText: "\u0645\u0631\u062D\u0628\u0627" });
  expect(await foreign.textContent()).toContain("👩‍👩‍👧‍👦");
  expect(await page.evaluate("getComputedStyle(document.querySelector('.answer p')).unicodeBidi")).toBe(
    "plaintext",
  );
  expect(await answer().getByRole("link").count()).toBe(1);
  expect(await answer().getByRole("link").getAttribute("rel")).toContain("noopener");
  expect(await answer().locator("img, script, iframe").count()).toBe(0);
  expect(await page.evaluate("window.hurt")).toBeUndefined();
  expect(faults).toEqual([]);
});

test("an answer that breaks off says so and keeps what came; Stop ends one that hangs", async () => {
  await open("playground?model=demo-messages");
  const half = { parts: [{ type: "text", text: "Half of it, and then nothing more." }] };
  await send(scripted({ answer: half, faults: { noTerminal: true } }));
  await answer().getByRole("alert").getByText("The answer broke off").waitFor();
  await answer().getByText("Half of it").waitFor();

  const before = Date.now();
  await send(scripted({ answer: half, faults: { stallAtEvent: 4 } }));
  await answer().getByText(/^Ha/).waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await answer().getByText("Stopped.").waitFor();
  expect(await page.getByRole("button", { name: "Send" }).isEnabled()).toBe(true);
  // The call upstream has ended as well: the request is over and recorded.
  await expect
    .poll(
      async () => {
        const { data } = await api(admin, "GET", "/v1/organization/requests?limit=1");
        return (data as { created_at: number; streamed: boolean }[]).some(
          ({ created_at: at, streamed }) => streamed && at * 1000 >= before - 1000,
        );
      },
      { timeout: 15_000 },
    )
    .toBe(true);
});

test("however deep and long an answer is, the page stays at hand", async () => {
  await open("playground?model=demo-messages");
  await page.evaluate(
    "window.longest = 0; new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration); }).observe({ type: 'longtask' })",
  );
  const parts = (text: string) => ({ answer: { parts: [{ type: "text", text }], deltaChars: 60_000 } });
  await send(scripted(parts(`${"> - ".repeat(20_000)}deep\n\n${"**a ".repeat(4_000)}the end`)));
  await answer().getByText("the end").waitFor();
  await page.getByRole("button", { name: "Send" }).waitFor();
  await settled(page);
  await send(scripted(parts(`${"**Two megabytes.** ".repeat(110_000)}the very end`)));
  // Typing two megabytes at once is the test's own burden.
  await page.evaluate("window.longest = 0");
  await answer()
    .getByText(/the very end$/)
    .waitFor();
  await settled(page);
  // Measured: 0.1 s, and 18 s when all of it was one block of text.
  expect(await page.evaluate<number>("window.longest")).toBeLessThan(2_000);
  await page.getByLabel("User message").fill("still at hand");
  expect(faults).toEqual([]);
});

test("Stop ends both of two answers that are compared, and tells what each cost", async () => {
  await open("playground?model=demo-messages&compare=demo-chat");
  const ids: Promise<string | null>[] = [];
  page.on("response", (response) => {
    if (response.url().endsWith("/v1/messages")) ids.push(response.headerValue("request-id"));
  });
  const half = { parts: [{ type: "text", text: "Half of it, and then nothing more." }] };
  await send(scripted({ answer: half, faults: { stallAtEvent: 4 } }));
  const panes = ["demo-messages", "demo-chat"].map((name) => page.getByRole("region", { name }));
  for (const pane of panes) await pane.getByText(/^Ha/).waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  for (const pane of panes) await pane.getByText("Stopped.").waitFor();
  // A stalled request is recorded only once its upstream's call was given up.
  expect(ids).toHaveLength(2);
  for (const id of await Promise.all(ids))
    await expect
      .poll(() => api(admin, "GET", `/v1/organization/requests/${id}`), { timeout: 15_000 })
      .toHaveProperty("credits");
  for (const pane of panes) await pane.locator("dd").last().getByText(/^\d/).waitFor();
  page.removeAllListeners("response");
});

test("of two answers that are compared, one that had ended is not told to be stopped", async () => {
  await open("playground?model=demo-messages&compare=demo-chat");
  // The second model never answers.
  await page.route("**/v1/messages", async (route) => {
    const { model } = route.request().postDataJSON() as { readonly model: string };
    if (model === "demo-messages") await route.continue();
  });
  await send(scripted({ answer: { parts: [{ type: "text", text: "All of it." }] } }));
  const [ended, stopped] = ["demo-messages", "demo-chat"].map((name) => page.getByRole("region", { name }));
  await ended?.locator("dd").last().getByText(/^\d/).waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await stopped?.getByText("Stopped.").waitFor();
  expect(await ended?.getByText("Stopped.").count()).toBe(0);
  await page.unroute("**/v1/messages");
});

test("a conversation goes on: the next question is sent with what was said, until a new one begins", async () => {
  await open("playground?model=demo-messages");
  const region = () => page.getByRole("region", { name: "demo-messages" });
  await send(scripted({ answer: { parts: [{ type: "text", text: "<b>Seven</b> gates." }] } }));
  await region().getByText("gates.").waitFor();
  await page.getByRole("button", { name: "Ask further" }).click();
  const before = page.getByRole("region", { name: "Said before" });
  await before.getByText("<b>Seven</b> gates.", { exact: true }).waitFor();
  expect(await page.evaluate("document.activeElement.labels?.[0]?.textContent")).toBe("User message");
  expect(await page.getByLabel("User message").inputValue()).toBe("");
  const [request] = await Promise.all([
    page.waitForRequest((one) => one.url().endsWith("/v1/messages")),
    send("And where?"),
  ]);
  expect(request.postDataJSON()).toMatchObject({
    messages: [
      { role: "user" },
      { role: "assistant", content: "<b>Seven</b> gates." },
      { role: "user", content: "And where?" },
    ],
  });
  await region()
    .getByText(/\d+ in, \d+ out/)
    .waitFor();
  await page.getByRole("button", { name: "As code" }).click();
  await page.getByText("And where?").last().waitFor();
  expect(await page.locator("pre").first().textContent()).toContain("<b>Seven</b> gates.");
  expect(await axe(page)).toEqual([]);
  await page.getByRole("button", { name: "New conversation" }).click();
  await before.waitFor({ state: "detached" });
  expect(faults).toEqual([]);
});

test("two models answer beside each other", async () => {
  await open("playground?model=demo-messages&compare=demo-chat");
  await send("Hello");
  await page
    .getByRole("region", { name: "demo-messages" })
    .getByText(/\d+ in, \d+ out/)
    .waitFor();
  await page
    .getByRole("region", { name: "demo-chat" })
    .getByText(/\d+ in, \d+ out/)
    .waitFor();
});
