/** The console on the real product: signing in, what stands on every page, the policy, axe (rules 11.1–11.6). */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect } from "vitest";
import { axe, desk, openBrowser, openPage, phone, settled, signIn } from "./browser.ts";
import { consoleTest as test } from "./console-test.ts";
import { api, ask, theWorld } from "./world.ts";

const views = [
  "Overview",
  "Keys",
  "Usage",
  "Costs",
  "Requests",
  "Models",
  "Batches",
  "Files",
  "Playground",
  "Configuration",
];
/** Scripts, styles and texts that come before the first view, as they are sent. */
const FIRST_LOAD_BYTES = 200 * 1024;
/** What one more view adds to it: its own files, and its questions to the API. */
const VIEW_BYTES = 64 * 1024;
const VIEW_CALLS = 9;

let browser: Browser;
const { url, admin, inference, keys } = theWorld();

beforeAll(async () => {
  browser = await openBrowser();
  await ask();
});
afterAll(async () => {
  await browser?.close();
});

const storage = (page: Page) =>
  page.evaluate<string>(
    "JSON.stringify({ session: { ...sessionStorage }, local: { ...localStorage }, cookie: document.cookie, url: location.href })",
  );

describe("signing in", () => {
  test("a key of the wrong kind and a wrong one get one clear sentence each", async () => {
    const { page, faults } = await openPage(browser, url, desk);
    await page.goto(`${url}/console/`);
    for (const [key, sentence] of [
      [inference, "This is an inference key."],
      // Copied from a page, with an invisible character at its end.
      [`${admin}\u200b`, "This admin key is not valid here."],
      ["", "Enter an admin key."],
      ["sk-adm-svc-wrong", "This admin key is not valid here."],
    ] as const) {
      await page.getByLabel("Admin key").fill(key);
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("alert").filter({ hasText: sentence }).waitFor();
    }
    expect(faults).toEqual([]);
    await page.context().close();
  });

  test("the key stays in memory alone unless asked to stay, and signing out forgets it", async () => {
    const { page } = await openPage(browser, url, desk);
    await signIn(page, url, admin, false);
    expect(await storage(page)).not.toContain(admin);
    await page.reload();
    await page.getByLabel("Admin key").waitFor();

    await signIn(page, url, admin, true);
    const kept = JSON.parse(await storage(page)) as Record<string, unknown>;
    expect(JSON.stringify(kept["session"])).toContain(admin);
    expect(JSON.stringify([kept["local"], kept["cookie"], kept["url"]])).not.toContain(admin);
    await page.goto(`${url}/console/keys`);
    await page.getByRole("heading", { level: 1, name: "Keys" }).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Admin key").waitFor();
    expect(await storage(page)).not.toContain(admin);
    await page.context().close();
  });
});

test("where a browser keeps nothing for pages, the console works and forgets", async () => {
  const { page, faults } = await openPage(browser, url, desk);
  // As Chromium does for whoever blocks all cookies.
  await page.addInitScript(
    `for (const name of ["localStorage", "sessionStorage"])
      Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });`,
  );
  await signIn(page, url, admin, true);
  await page.getByLabel("Theme").selectOption("dark");
  await page.reload();
  await page.getByLabel("Admin key").waitFor();
  expect(faults).toEqual([]);
  await page.context().close();
});

describe.each([
  ["a desk, light", desk],
  ["a phone, dark", phone],
])("on %s", (_, look) => {
  test("every view has its name, its title and its address; axe finds nothing, and nobody else is called", async () => {
    const { page, faults } = await openPage(browser, url, look);
    await signIn(page, url, admin);
    for (const name of views) {
      if (look === phone) await page.getByRole("button", { name: "Menu" }).click();
      await page.getByRole("navigation").getByRole("link", { name, exact: true }).click();
      await page.getByRole("main").getByRole("heading", { level: 1, name }).waitFor();
      await settled(page);
      expect(await page.title()).toBe(`${name} · Gapura`);
      expect([name, await page.getByText("All days and times are UTC.").count()]).toEqual([name, 1]);
      expect([name, await axe(page)]).toEqual([name, []]);
      expect([name, await page.evaluate("document.documentElement.scrollWidth")]).toEqual([name, look.width]);
      if (look === phone) continue;
      await page.reload();
      await page.getByRole("heading", { level: 1, name }).waitFor();
    }
    expect(faults).toEqual([]);
    await page.context().close();
  });
});

test("a view is fetched again when the service is back, and nobody is signed out for it", async () => {
  const { page, faults } = await openPage(browser, url, desk);
  await signIn(page, url, admin, false);
  const problem = page.getByRole("main").getByText("The service does not answer.");
  const tryAgain = page.getByRole("main").getByRole("button", { name: "Try again" });
  await page.route("**/*", (route) => route.abort());
  await page.getByRole("navigation").getByRole("link", { name: "Usage", exact: true }).click();
  await problem.waitFor();
  await Promise.all([
    page.waitForEvent("requestfailed", (request) => request.method() === "HEAD"),
    tryAgain.click(),
  ]);
  await problem.waitFor();
  await page.unroute("**/*");
  await tryAgain.click();
  await page.getByLabel("Interval").waitFor();
  expect(faults).toEqual([]);
  // Files of an old build are gone for good: the page itself is loaded anew, and knows nobody.
  await page.route("**/assets/costs*", (route) => route.fulfill({ status: 404 }));
  await page.getByRole("navigation").getByRole("link", { name: "Costs", exact: true }).click();
  await tryAgain.click();
  await page.getByLabel("Admin key").waitFor();
  await page.context().close();
});

test("an error page of what stands in front of the service is told in words", async () => {
  const { page } = await openPage(browser, url, desk);
  const badGateway = { status: 502, contentType: "text/html", body: "<html>Bad gateway</html>" };
  const told = page.getByRole("alert").getByText("something in front of it did, with HTTP 502");
  await page.route("**/v1/**", (route) => route.fulfill(badGateway));
  await page.goto(`${url}/console/`);
  await page.getByLabel("Admin key").fill(admin);
  await page.getByRole("button", { name: "Sign in" }).click();
  await told.waitFor();
  await page.unroute("**/v1/**");
  await signIn(page, url, admin, false);
  await page.route("**/v1/**", (route) => route.fulfill(badGateway));
  await page.getByRole("navigation").getByRole("link", { name: "Keys", exact: true }).click();
  await told.waitFor();
  await page.context().close();
});

test("what cannot be drawn takes nothing else from the page, and is drawn again when it can", async () => {
  const { page, faults } = await openPage(browser, url, desk);
  await signIn(page, url, admin);
  const link = (name: string) => page.getByRole("navigation").getByRole("link", { name, exact: true });
  const problem = page.getByRole("alert").getByText("failed in your browser");
  // An answer that no version of the service gives.
  await page.route("**/v1/organization/requests?*", (route) =>
    route.fulfill({ json: { object: "list", data: null, has_more: false, last_id: null } }),
  );
  await link("Requests").click();
  await problem.waitFor();
  expect([await page.title(), await page.getByText("Available credit").count()]).toEqual([
    "Requests · Gapura",
    1,
  ]);
  expect(faults.filter((fault) => fault.startsWith("error:")).length).toBeGreaterThan(0);
  await link("Keys").click();
  await page.getByRole("button", { name: "Create key" }).waitFor();
  await link("Requests").click();
  await problem.waitFor();
  await page.unroute("**/v1/organization/requests?*");
  await page.getByRole("main").getByRole("button", { name: "Try again" }).click();
  await page.getByRole("table", { name: "Requests" }).waitFor();
  // Around a view too.
  await page.route("**/v1/organization/credits", (route) =>
    route.fulfill({ json: { object: "organization.credits", available: null } }),
  );
  await problem.waitFor();
  await page.getByRole("table", { name: "Requests" }).waitFor();
  await page.context().close();
});

test("the organization and its credit stand on every page, as the API tells them", async () => {
  const { page } = await openPage(browser, url, desk);
  await signIn(page, url, admin);
  const { available } = await api(admin, "GET", "/v1/organization/credits");
  const [whole = "", fraction] = String(available).split(".");
  const figure = `${Number(whole).toLocaleString("en")}${fraction === undefined ? "" : `.${fraction}`}`;
  for (const name of views) {
    await page.getByRole("link", { name, exact: true }).click();
    const banner = page.getByRole("banner");
    await banner.getByText("Demo").waitFor();
    await banner.getByText(figure, { exact: true }).waitFor();
  }
  await page.context().close();
});

test("without credit every page says what will fail, and it does", async () => {
  const { page, faults } = await openPage(browser, url, phone);
  await signIn(page, url, keys.empty.admin);
  const refused = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${keys.empty.inference}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "demo-chat", messages: [{ role: "user", content: "Hello" }] }),
  });
  expect(refused.status).toBe(402);
  for (const name of views) {
    await page.getByRole("button", { name: "Menu" }).click();
    await page.getByRole("navigation").getByRole("link", { name, exact: true }).click();
    await page.getByRole("main").getByRole("heading", { level: 1, name }).waitFor();
    await page.getByRole("status").getByText("No credit is left. Requests, new batches").waitFor();
  }
  expect(await axe(page)).toEqual([]);
  expect(faults).toEqual([]);
  await page.context().close();
});

test("the whole way by keyboard: sign in, another view, a dialog and back", async () => {
  const { page } = await openPage(browser, url, desk);
  await page.goto(`${url}/console/keys`);
  await page.getByLabel("Admin key").waitFor();
  await page.keyboard.type(admin);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Keys" }).waitFor();
  await settled(page);
  const focused = () => page.evaluate<string>("document.activeElement.textContent.trim()");
  for (let presses = 0; (await focused()) !== "Create key" && presses < 40; presses += 1) {
    await page.keyboard.press("Tab");
    expect(
      await page.evaluate("getComputedStyle(document.activeElement).outlineStyle"),
      `focus is seen on ${await focused()}`,
    ).not.toBe("none");
  }
  await page.keyboard.press("Enter");
  await page.getByRole("dialog", { name: "Create key" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await expect.poll(focused).toBe("Create key");
  await page.context().close();
});

test("another language is one more file of texts", async () => {
  const { page } = await openPage(browser, url, desk);
  await page.goto(`${url}/console/`);
  await page.getByLabel("Language").selectOption("id");
  await page.getByRole("heading", { level: 1, name: "Masuk" }).waitFor();
  expect(await page.evaluate("document.documentElement.lang")).toBe("id");
  await page.context().close();
});

test("the first load is small, each view adds little, and nothing holds the page for long", async () => {
  const { page } = await openPage(browser, url, desk);
  await page.addInitScript(
    "window.longest = 0; new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration); }).observe({ type: 'longtask', buffered: true })",
  );
  let sizes: Promise<number>[] = [];
  let calls = 0;
  page.on("requestfinished", (request) => {
    if (request.url().includes("/v1/")) calls += 1;
    else sizes.push(request.sizes().then(({ responseBodySize }) => responseBodySize));
  });
  const bytes = async () => (await Promise.all(sizes)).reduce((total, size) => total + size, 0);
  await page.goto(`${url}/console/`);
  await page.getByLabel("Admin key").waitFor();
  expect(sizes.length).toBeLessThan(12);
  expect(await bytes()).toBeGreaterThan(5_000);
  expect(await bytes()).toBeLessThan(FIRST_LOAD_BYTES);
  await signIn(page, url, admin);
  for (const name of views) {
    await settled(page);
    [sizes, calls] = [[], 0];
    await page.getByRole("link", { name, exact: true }).click();
    await page.getByRole("main").getByRole("heading", { level: 1, name }).waitFor();
    await settled(page);
    expect([name, sizes.length < 12]).toEqual([name, true]);
    expect(await bytes(), name).toBeLessThan(VIEW_BYTES);
    // The balance is asked for again every ten seconds.
    expect(calls, name).toBeLessThanOrEqual(VIEW_CALLS);
  }
  expect(await page.evaluate<number>("window.longest")).toBeLessThan(1_000);
  await page.context().close();
});
