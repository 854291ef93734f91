/** Everything is reached by keyboard alone and read aloud rightly: each dialog and each view, in both looks (rule 11.5). */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect } from "vitest";
import { axe, desk, openBrowser, openPage, phone, settled, signIn, type Look } from "./browser.ts";
import { consoleTest as test } from "./console-test.ts";
import { addOneOfEach, api, ask, theWorld } from "./world.ts";

let browser: Browser;
const { url, admin, inference } = theWorld();

beforeAll(async () => {
  browser = await openBrowser();
  await ask();
  await addOneOfEach({ name: "reached" }, "reached.txt");
});
afterAll(async () => {
  await browser?.close();
});

const goTo = async (page: Page, view: string) => {
  const menu = page.getByRole("button", { name: "Menu" });
  if (await menu.isVisible()) await menu.click();
  await page.getByRole("navigation").getByRole("link", { name: view, exact: true }).click();
  await page.getByRole("main").getByRole("heading", { level: 1, name: view }).waitFor();
  await settled(page);
};

describe.each([
  ["a desk, dark", { ...desk, theme: "dark" }],
  ["a phone, light", { ...phone, theme: "light" }],
] satisfies [string, Look][])("on %s", (_, look) => {
  test("axe finds nothing in any dialog, nor in what an inference key opens; none is wider than the page", async () => {
    const { page, faults } = await openPage(browser, url, look);
    await signIn(page, url, admin);
    const judged: string[] = [];
    const judge = async (what: string) => {
      judged.push(what);
      expect([what, await axe(page)]).toEqual([what, []]);
      expect([what, await page.evaluate("document.documentElement.scrollWidth")]).toEqual([what, look.width]);
    };
    const dialog = async (view: string, row: string | null, button: string) => {
      const within = row === null ? page : page.getByRole("row").filter({ hasText: row });
      await within.getByRole("button", { name: button, exact: true }).first().click();
      await page.getByRole("dialog").waitFor();
      await judge(`${view}: ${button}`);
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
    };
    await goTo(page, "Keys");
    for (const button of ["Rename", "Limits", "Deactivate", "Delete"])
      await dialog("Keys", "reached", button);
    await dialog("Projects", "proj_", "Limits");
    await page.getByRole("button", { name: "Create key" }).click();
    await page.getByText("More limits").click();
    await judge("Keys: all limits");
    await page.keyboard.press("Escape");
    await goTo(page, "Costs");
    await dialog("Costs", null, "FOCUS export");
    await goTo(page, "Requests");
    await page.getByRole("link", { name: "Details" }).first().click();
    await page.getByRole("heading", { name: "Tries" }).waitFor();
    await settled(page);
    await judge("one request");

    await goTo(page, "Models");
    await page.getByLabel("Inference key").fill(inference);
    await page.getByRole("button", { name: "Use key" }).click();
    await page.getByRole("table", { name: "Models" }).waitFor();
    await judge("Models");
    await page.getByRole("link", { name: "Details" }).first().click();
    await page.getByText("Call it").waitFor();
    await judge("one model");
    await goTo(page, "Costs");
    await page.getByRole("table", { name: "Prices" }).waitFor();
    await judge("Costs: prices");
    await goTo(page, "Batches");
    await page.getByRole("button", { name: "Failed lines" }).first().waitFor();
    await judge("Batches");
    await dialog("Batches", null, "Failed lines");
    await goTo(page, "Files");
    await judge("Files");
    await dialog("Files", "reached.txt", "Delete");
    await goTo(page, "Playground");
    await page.getByLabel("Compare").check();
    await page.getByRole("button", { name: "As code" }).click();
    await judge("Playground");
    expect(judged).toHaveLength(16);
    expect(faults).toEqual([]);
    await page.context().close();
  });
});

/** Boxes of the buttons of each row's actions. */
const actionsOf = async (page: Page) => {
  const rows = await page.locator(".actions").all();
  return await Promise.all(
    rows.map(async (row) => {
      const boxes = await Promise.all(
        (await row.getByRole("button").all()).map((button) => button.boundingBox()),
      );
      return boxes.filter((box) => box !== null);
    }),
  );
};

test.each([
  ["a small desk", { ...desk, width: 900 }],
  ["a phone", phone],
])("on %s no button of a row covers a part of another", async (_, look) => {
  const { page } = await openPage(browser, url, look);
  await signIn(page, url, admin);
  await goTo(page, "Keys");
  const rows = await actionsOf(page);
  expect(rows.some((boxes) => new Set(boxes.map(({ y }) => y)).size > 1)).toBe(true);
  for (const boxes of rows)
    for (const [index, one] of boxes.entries())
      for (const other of boxes.slice(index + 1)) {
        const isBeside = one.x + one.width <= other.x || other.x + other.width <= one.x;
        expect(isBeside || one.y + one.height <= other.y, JSON.stringify([one, other])).toBe(true);
      }
  await page.context().close();
});

test("where the system chooses the colors, what is chosen, how far a limit is used and whose bar is which stays seen", async () => {
  await api(admin, "POST", "/v1/organizations/api_keys", {
    name: "barred",
    limits: { credits: { amount: "5", per: "month" } },
  });
  const { page } = await openPage(browser, url, desk);
  await page.emulateMedia({ forcedColors: "active" });
  await signIn(page, url, admin);
  const colors = (selector: string, which: "color" | "backgroundColor"): Promise<string[]> =>
    page.evaluate(
      `[...document.querySelectorAll(${JSON.stringify(selector)})].map((one) => getComputedStyle(one).${which})`,
    );
  const grounds = (selector: string) => colors(selector, "backgroundColor");
  const links = await colors("nav a", "color");
  expect(links.filter((color) => color === links[0])).toHaveLength(1);
  await page.goto(`${url}/console/usage?group=model`);
  await page.getByRole("figure").waitFor();
  const pressed = await grounds(".button[aria-pressed=true]");
  expect(await grounds(".button[aria-pressed=false]")).not.toContain(pressed[0]);
  const swatches = await grounds(".swatch");
  expect(swatches.length).toBeGreaterThan(1);
  expect(new Set(swatches).size).toBe(swatches.length);
  await goTo(page, "Keys");
  const [meter] = await grounds(".meter");
  expect(await grounds(".meter > span")).not.toContain(meter);
  await page.context().close();
});

test("by keyboard alone: sign in, make a key with limits, find its request, ask a model and stop it", async () => {
  const { page } = await openPage(browser, url, desk);
  const focused = () =>
    page.evaluate<string>(
      "(document.activeElement.labels?.[0] ?? document.activeElement).textContent.trim() + ' ' + getComputedStyle(document.activeElement).outlineStyle",
    );
  /** Presses Tab, once round the page at the most, until something of that name has the focus, and is seen to have it. */
  const tabTo = async (name: string) => {
    const stops = await page.locator("a[href], button, input, select, textarea, summary, [tabindex]").count();
    // One more than there are: the page itself.
    for (let presses = 0; presses <= stops; presses += 1) {
      await page.keyboard.press("Tab");
      const [, found, outline] = /^(.*) (\w+)$/s.exec(await focused()) ?? [];
      if (found !== name) continue;
      expect([name, outline]).not.toEqual([name, "none"]);
      return;
    }
    throw new Error(`Tab does not lead to ${name}`);
  };
  const openView = async (name: string) => {
    await tabTo(name);
    await page.keyboard.press("Enter");
    await page.getByRole("main").getByRole("heading", { level: 1, name }).waitFor();
    await settled(page);
  };
  await page.goto(`${url}/console/`);
  await page.getByLabel("Admin key").waitFor();
  await page.keyboard.type(admin);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  await settled(page);

  await openView("Keys");
  await tabTo("Create key");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog", { name: "Create key" }).waitFor();
  await page.keyboard.type("typed");
  await tabTo("Credit limit");
  await page.keyboard.type("25");
  await tabTo("More limits");
  await page.keyboard.press("Enter");
  await tabTo("Requests a minute");
  await page.keyboard.type("30");
  await page.keyboard.press("Enter");
  const made = page.getByRole("dialog", { name: "“typed” is ready" });
  await made.waitFor();
  const secret = (await made.locator("code").textContent()) ?? "";
  await tabTo("Done");
  await page.keyboard.press("Enter");
  await made.waitFor({ state: "detached" });
  expect(await api(secret, "GET", "/v1/key")).toMatchObject({
    limits: { credits: { amount: "25", per: "month" }, requests_per_minute: 30 },
  });

  await openView("Requests");
  await tabTo("Details");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Tries" }).waitFor();
  // What had the focus is gone: reading goes on at the top of what came.
  expect(await page.evaluate("document.activeElement.tagName")).toBe("H1");

  await openView("Playground");
  await tabTo("Inference key");
  await page.keyboard.type(inference);
  await page.keyboard.press("Enter");
  await page.getByLabel("User message").waitFor();
  await tabTo("User message");
  const half = { parts: [{ type: "text", text: "Half of it, and then nothing more." }] };
  await page.keyboard.insertText(
    `{{script: ${JSON.stringify({ answer: half, faults: { stallAtEvent: 4 } })}}}`,
  );
  await tabTo("Send");
  await page.keyboard.press("Enter");
  await page
    .getByRole("region", { name: /^demo-/ })
    .getByText(/^Ha/)
    .waitFor();
  await tabTo("Stop");
  await page.keyboard.press("Enter");
  await page.getByText("Stopped.").waitFor();
  await page.context().close();
});
