/** Keys and projects in the console, against the API. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect } from "vitest";
import { axe, desk, openBrowser, openPage, settled, signIn } from "./browser.ts";
import { consoleTest as test } from "./console-test.ts";
import { api, theWorld } from "./world.ts";

let browser: Browser;
let page: Page;
let faults: readonly string[];
const { url, admin } = theWorld();

beforeAll(async () => {
  browser = await openBrowser();
  ({ page, faults } = await openPage(browser, url, desk));
  await signIn(page, url, admin);
});
afterAll(async () => {
  await browser?.close();
});

const row = (name: string) =>
  page.getByRole("table", { name: "Keys" }).getByRole("row").filter({ hasText: name });
const statusOf = async (key: string) =>
  (await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).status;
const press = async (name: string, button: string) => {
  await row(name).getByRole("button", { name: button }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(name).first().waitFor();
  return dialog;
};

test("a key's whole life: made, shown once, renamed, switched off and on, deleted", async () => {
  await page.goto(`${url}/console/keys`);
  await page.getByRole("button", { name: "Create key" }).click();
  const creating = page.getByRole("dialog", { name: "Create key" });
  await creating.getByLabel("Name").fill("<b>night</b> batch");
  await creating.getByLabel("Credit limit").fill("12.5");
  await creating.getByLabel("Per").selectOption("week");
  await creating.getByRole("button", { name: "Create key" }).click();
  const shown = page.getByRole("dialog", { name: "“<b>night</b> batch” is ready" });
  const secret = (await shown.locator("code").textContent()) ?? "";
  expect(secret).toMatch(/^sk-svc-[0-9A-Za-z]{40}$/);
  expect(await axe(page)).toEqual([]);
  await shown.getByRole("button", { name: "Copy" }).click();
  await shown.getByRole("button", { name: "Copied" }).waitFor();
  await shown.getByRole("button", { name: "Done" }).click();
  await row("<b>night</b> batch").waitFor();
  expect(await page.content()).not.toContain(secret);
  expect(await statusOf(secret)).toBe(200);
  expect(await api(secret, "GET", "/v1/key")).toMatchObject({
    limits: { credits: { amount: "12.5", per: "week" } },
  });

  const renaming = await press("<b>night</b> batch", "Rename");
  await renaming.getByLabel("Name").fill("night");
  await renaming.getByRole("button", { name: "Rename" }).click();
  await row("night").getByText("Active").waitFor();

  await (await press("night", "Deactivate")).getByRole("button", { name: "Deactivate" }).click();
  await row("night").getByText("Inactive").waitFor();
  expect(await statusOf(secret)).toBe(401);
  await (await press("night", "Activate")).getByRole("button", { name: "Activate" }).click();
  await row("night").getByText("Active", { exact: true }).waitFor();
  expect(await statusOf(secret)).toBe(200);

  await (await press("night", "Delete")).getByRole("button", { name: "Delete" }).click();
  await row("night").waitFor({ state: "detached" });
  expect(await statusOf(secret)).toBe(401);
  expect(faults).toEqual([]);
});

test("a declared key says where it stands and offers no change", async () => {
  await page.goto(`${url}/console/keys`);
  await row("default").getByText("Declared in Organization default/demo").waitFor();
  expect(await row("default").getByRole("button").count()).toBe(0);
});

test("filters stand in the address and open again; what matches nothing says so", async () => {
  for (const name of ["alpha one", "alpha two"])
    await api(admin, "POST", "/v1/organizations/api_keys", { name });
  await page.goto(`${url}/console/keys?search=alpha`);
  await settled(page);
  await row("alpha two").waitFor();
  expect(await row("Declared in").count()).toBe(0);
  await page.getByLabel("Search").fill("alpha one");
  await row("alpha two").waitFor({ state: "detached" });
  expect(new URL(page.url()).searchParams.get("search")).toBe("alpha one");
  await page.getByLabel("Status").selectOption("inactive");
  await page.getByText("No key matches these filters.").waitFor();
});

test("a refusal of the service is shown in its own words, and nothing is lost", async () => {
  await page.goto(`${url}/console/keys`);
  await page.getByRole("button", { name: "Create key" }).click();
  const dialog = page.getByRole("dialog", { name: "Create key" });
  await dialog.getByLabel("Name").fill("kept");
  await page.route("**/api_keys", (route) =>
    route.request().method() === "POST"
      ? route.fulfill({
          status: 503,
          json: { error: { message: "The ledger is away.", code: "unavailable" } },
        })
      : route.continue(),
  );
  await dialog.getByRole("button", { name: "Create key" }).click();
  await dialog.getByRole("alert").getByText("The ledger is away.").waitFor();
  expect(await dialog.getByLabel("Name").inputValue()).toBe("kept");
  await page.unroute("**/api_keys");
});
