/** However long names, figures and refusals are, they are read whole, and the page stays as wide as its window. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect } from "vitest";
import { desk, openBrowser, openPage, settled, signIn } from "./browser.ts";
import { consoleTest as test } from "./console-test.ts";
import { addOneOfEach, ask, theWorld } from "./world.ts";

let browser: Browser;
const { url, admin, inference } = theWorld();

const LONG_WORD = "unbreakable".repeat(30);
const LONG_NAME = `name-${"abcdefghij".repeat(6)}`.slice(0, 63);
const LONG_MODEL = "vendor/modelname".repeat(13).slice(0, 200);
const LONG_MAIL = `${"localpart".repeat(27).slice(0, 242)}@example.com`;
const credit = {
  granted: "123456789012345678.123456",
  used: "0.000001",
  available: "123456789012345678.123455",
  held: "999999999999.999999",
};

beforeAll(async () => {
  browser = await openBrowser();
  await ask();
  await addOneOfEach(
    { name: "roomy", limits: { credits: { amount: "5000", per: "month" }, requests_per_minute: 1000 } },
    `${"roomy".repeat(40)}.txt`,
  );
});
afterAll(async () => {
  await browser?.close();
});

type Json = Record<string, unknown>;
/** Answers of a path as the product gives them, but changed. */
const changed = (page: Page, path: string, change: (answer: Json) => Json) =>
  page.route(
    ({ pathname }) => pathname === path,
    async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: change((await response.json()) as Json) });
    },
  );
const each =
  (change: (one: Json) => Json) =>
  (answer: Json): Json => ({ ...answer, data: (answer["data"] as Json[]).map(change) });

/** As its link opens it, without the page itself being loaded anew. */
const opened = async (page: Page, view: string) => {
  await page.evaluate(
    `history.pushState(null, "", "/console/${view}"); dispatchEvent(new PopStateEvent("popstate"))`,
  );
  await page.getByRole("main").locator(".section, form").first().waitFor();
  await settled(page);
};
const useKey = async (page: Page) => {
  await page.getByLabel("Inference key").fill(inference);
  await page.getByRole("button", { name: "Use key" }).click();
  await page.getByLabel("Inference key").waitFor({ state: "detached" });
  await settled(page);
};
const pageWidth = (page: Page) => page.evaluate<number>("document.documentElement.scrollWidth");

/** Tables that hide a part of themselves, and names that have no room to be read. */
const crowded = (page: Page) =>
  page.evaluate<string[]>(`[
    ...Array.from(document.querySelectorAll(".table-frame"))
      .filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)
      .map((frame) => frame.querySelector("table").ariaLabel + ": " + frame.scrollWidth + " > " + frame.clientWidth),
    ...Array.from(document.querySelectorAll("tbody tr > *"))
      .filter((cell) => cell.textContent.length > 60 && cell.clientWidth < 110)
      .map((cell) => cell.clientWidth + " px: " + cell.textContent),
  ]`);

test.each([360, 1280])("a refusal of one long word stays within %d px", async (width) => {
  const { page } = await openPage(browser, url, { ...desk, width });
  await signIn(page, url, admin);
  await page.route("**/v1/**", (route) =>
    route.fulfill({ status: 503, json: { error: { message: `No ${LONG_WORD}`, code: "x" } } }),
  );
  for (const view of ["keys", "usage", "costs", "requests", `requests?request=req_${LONG_WORD}`, ""]) {
    await opened(page, view);
    await page.getByRole("main").getByRole("alert").first().waitFor();
    expect([view, await pageWidth(page)]).toEqual([view, width]);
  }
  await page.context().close();
});

describe.each([360, 768, 1280, 1440, 1920])("at %d px", (width) => {
  test("a figure of eighteen digits stands in one line", async () => {
    const { page } = await openPage(browser, url, { ...desk, width });
    await changed(page, "/v1/organization/credits", (answer) => ({ ...answer, ...credit }));
    await signIn(page, url, admin);
    for (const view of ["", "costs"]) {
      await opened(page, view);
      await page.locator(".stat-value").getByText("123,456,789,012,345,678.123455").waitFor();
      const lines = await page.evaluate<string[]>(`Array.from(document.querySelectorAll(".stat-value"))
        .filter((value) => value.getClientRects().length > 1 || value.getBoundingClientRect().right > value.closest(".stat").getBoundingClientRect().right)
        .map((value) => value.textContent)`);
      expect([view, lines]).toEqual([view, []]);
      expect([view, await pageWidth(page)]).toEqual([view, width]);
    }
    await page.context().close();
  });
});

describe.each([1280, 1440, 1920])("at %d px no table hides a column", (width) => {
  const views = [
    "",
    "keys",
    "usage?group=model",
    "requests",
    "models",
    "costs",
    "batches",
    "files",
    "configuration",
  ];
  const judge = async (page: Page) => {
    await opened(page, "models");
    await useKey(page);
    for (const view of views) {
      await opened(page, view);
      await page.getByRole("main").getByRole("table").first().waitFor();
      expect([view, await crowded(page)]).toEqual([view, []]);
      expect([view, await pageWidth(page)]).toEqual([view, width]);
    }
    await page.context().close();
  };

  test("with ordinary names", async () => {
    const { page } = await openPage(browser, url, { ...desk, width });
    await signIn(page, url, admin);
    await judge(page);
  });

  test("with names as long as they may be", async () => {
    const { page } = await openPage(browser, url, { ...desk, width });
    await changed(
      page,
      "/v1/organizations/api_keys",
      each((key) => ({ ...key, name: LONG_NAME })),
    );
    await changed(
      page,
      "/v1/organization/projects",
      each((project) => ({ ...project, name: LONG_NAME })),
    );
    await page.route(
      ({ pathname }) => pathname === "/v1/organization/users",
      (route) =>
        route.fulfill({
          json: {
            object: "list",
            has_more: false,
            first_id: null,
            last_id: null,
            data: [
              {
                object: "organization.user",
                id: "usr_0123456789abcdefghijklmn",
                name: LONG_MAIL,
                role: "member",
                project_id: null,
                added_at: 1_795_000_000,
                last_used_at: 1_795_000_000,
                limits: null,
                standing: [],
              },
            ],
          },
        }),
    );
    await changed(
      page,
      "/v1/organization/requests",
      each((request) => ({
        ...request,
        model: LONG_MODEL,
        status: 502,
        error_code: "upstream_unavailable",
        duration_ms: 1_234_567,
        first_byte_ms: 123_456,
        credits: "12345.678901",
      })),
    );
    await changed(
      page,
      "/v1/models",
      each((model) => ({ ...model, display_name: LONG_MODEL.slice(0, 128) })),
    );
    await signIn(page, url, admin);
    await judge(page);
  });
});

test("what stands at a bar of a chart stays on the page, whatever its series are called", async () => {
  const { page } = await openPage(browser, url, desk);
  await changed(page, "/v1/organization/usage/completions", (answer) => ({
    ...answer,
    data: (answer["data"] as { readonly results: readonly Json[] }[]).map((bucket) => ({
      ...bucket,
      results: bucket.results.map((result) => ({ ...result, model: LONG_MODEL })),
    })),
  }));
  await signIn(page, url, admin);
  await opened(page, "usage?group=model");
  await page.locator(".plot").hover();
  await page.locator(".plot-tip").waitFor();
  expect(await pageWidth(page)).toBe(desk.width);
  await page.context().close();
});
