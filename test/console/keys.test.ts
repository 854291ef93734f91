/** Keys and projects in the console, against the API. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect } from "vitest";
import { axe, desk, openBrowser, openPage, settled, signIn } from "./browser.ts";
import { consoleTest as test } from "./console-test.ts";
import { api, theWorld } from "./world.ts";

let browser: Browser;
let page: Page;
let faults: readonly string[];
const { url, admin, keys } = theWorld();

beforeAll(async () => {
  browser = await openBrowser();
  ({ page, faults } = await openPage(browser, url, desk));
  await signIn(page, url, admin);
});
afterAll(async () => {
  await browser?.close();
});

const row = (name: string) =>
  page
    .getByRole("table", { name: /^(Keys|Kunci)$/ })
    .getByRole("row")
    .filter({ hasText: name });
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
  // It is shown once: no Escape takes it away, and what was not copied is not said to be.
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  expect(await shown.locator("code").textContent()).toBe(secret);
  await page.evaluate(
    `navigator.clipboard.writeText = () => Promise.reject(new Error("none")); document.execCommand = () => false`,
  );
  await shown.getByRole("button", { name: "Copy" }).click();
  await shown.getByRole("button", { name: "Not copied" }).waitFor();
  await page.evaluate(`delete navigator.clipboard.writeText; delete document.execCommand`);
  await shown.getByRole("button", { name: "Not copied" }).click();
  await shown.getByRole("button", { name: "Copied", exact: true }).waitFor();
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

test("the name of a key is counted in characters, as the service counts it", async () => {
  await page.goto(`${url}/console/keys`);
  await page.getByRole("button", { name: "Create key" }).click();
  const dialog = page.getByRole("dialog", { name: "Create key" });
  await dialog.getByLabel("Name").focus();
  // As a person pastes it: `fill` goes past the field's own limits.
  await page.keyboard.insertText("🔑".repeat(501));
  await dialog.getByRole("button", { name: "Create key" }).click();
  await dialog.getByRole("alert").getByText("name must have 1 to 500 characters").waitFor();
  await dialog.getByLabel("Name").press("End");
  await dialog.getByLabel("Name").press("Backspace");
  await dialog.getByRole("button", { name: "Create key" }).click();
  await page.getByRole("dialog", { name: "is ready" }).getByRole("button", { name: "Done" }).click();
  const { data } = await api(admin, "GET", "/v1/organizations/api_keys");
  const made = (data as { id: string; name: string }[]).find(({ name }) => name === "🔑".repeat(500));
  // Other tests measure the page.
  const path = `/v1/organization/projects/default/api_keys/${made?.id}`;
  expect(await api(admin, "DELETE", path)).toMatchObject({ deleted: true });
});

test("in Indonesian a limit has a comma, and a thousand with a dot is not taken for one credit", async () => {
  const made = await api(admin, "POST", "/v1/organizations/api_keys", { name: "berbatas" });
  const other = await openPage(browser, url, desk);
  await signIn(other.page, url, admin);
  await other.page.getByLabel("Language").selectOption("id");
  await other.page.getByRole("navigation").getByRole("link", { name: "Kunci", exact: true }).click();
  const own = other.page.getByRole("row").filter({ hasText: "berbatas" });
  await own.getByRole("button", { name: "Batas" }).click();
  const dialog = other.page.getByRole("dialog");
  await dialog.getByLabel("Batas kredit").fill("1.000");
  await dialog.locator("input:invalid").waitFor();
  await dialog.getByLabel("Batas kredit").fill("0,25");
  await dialog.getByRole("button", { name: "Simpan batas" }).click();
  await own.getByText("0 dari 0,25 kredit per bulan").waitFor();
  expect(await api(String(made["key"]), "GET", "/v1/key")).toMatchObject({
    limits: { credits: { amount: "0.25", per: "month" } },
  });
  await other.page.context().close();
});

test("a limit that is none is shown where it is folded away, instead of nothing that happens", async () => {
  const other = await openPage(browser, url, desk);
  await signIn(other.page, url, admin);
  await other.page.goto(`${url}/console/keys`);
  await other.page.getByRole("button", { name: "Create key" }).click();
  const dialog = other.page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("folded");
  await dialog.getByText("More limits").click();
  await dialog.getByLabel("Requests a minute").fill("1,000");
  await dialog.getByText("More limits").click();
  await dialog.getByLabel("Requests a minute").waitFor({ state: "hidden" });
  await dialog.getByRole("button", { name: "Create key" }).click();
  await expect
    .poll(() => other.page.evaluate("document.activeElement.labels[0]?.textContent"))
    .toBe("Requests a minute");
  await other.page.context().close();
});

test("a key that has expired is not told to be active", async () => {
  const expires_at = new Date(Date.now() + 5_000).toISOString();
  const made = await api(admin, "POST", "/v1/organizations/api_keys", { name: "short-lived", expires_at });
  expect(made["key"]).toMatch(/^sk-svc-/);
  await expect.poll(() => statusOf(String(made["key"])), { timeout: 15_000 }).toBe(401);
  await page.goto(`${url}/console/keys`);
  await row("short-lived").getByText("Expired", { exact: true }).waitFor();
  await page.getByLabel("Status").selectOption("active");
  await row("short-lived").waitFor({ state: "detached" });
  await page.getByLabel("Status").selectOption("expired");
  await row("short-lived").waitFor();
});

const projectRow = () =>
  page.getByRole("table", { name: "Projects" }).getByRole("row").filter({ hasText: "default" });

test("limits of a key are changed, shown with what is spent of them, and cleared", async () => {
  const made = await api(admin, "POST", "/v1/organizations/api_keys", {
    name: "limited",
    limits: { requests_per_minute: 50, concurrent_requests: 4 },
  });
  const secret = String(made["key"]);
  const limitsNow = async () => (await api(secret, "GET", "/v1/key"))["limits"];
  await page.goto(`${url}/console/keys`);
  const first = await press("limited", "Limits");
  await first.getByLabel("Credit limit").fill("750.5");
  await first.getByLabel("Per").selectOption("total");
  await first.getByLabel("Models").fill("demo-chat, demo-mess*");
  await first.getByLabel("Requests at once").fill("");
  await first.getByLabel("Expires").fill("2027-12-31T10:20");
  expect(await axe(page)).toEqual([]);
  await first.getByRole("button", { name: "Save limits" }).click();
  await row("limited").getByText("0 of 750.5 credits in total").waitFor();
  await row("limited").getByText("50 requests a minute · demo-chat, demo-mess*").waitFor();
  await row("limited").getByText("2027-12-31 10:20").waitFor();
  expect(await limitsNow()).toEqual({
    credits: { amount: "750.5", per: "total" },
    models: ["demo-chat", "demo-mess*"],
    requests_per_minute: 50,
    tokens_per_minute: null,
    concurrent_requests: null,
  });

  await api(secret, "POST", "/v1/chat/completions", {
    model: "demo-chat",
    messages: [{ role: "user", content: "Hello" }],
  });
  const { standing } = (await api(secret, "GET", "/v1/key")) as { standing: { spent: string }[] };
  expect(Number(standing[0]?.spent)).toBeGreaterThan(0);
  await page.reload();
  const bar = row("limited").getByRole("meter");
  expect(await bar.getAttribute("aria-valuetext")).toBe(`${standing[0]?.spent} of 750.5 credits in total`);
  expect(Number(await bar.getAttribute("aria-valuenow"))).toBe(Number(standing[0]?.spent));

  const second = await press("limited", "Limits");
  for (const name of ["Credit limit", "Models", "Requests a minute", "Expires"])
    await second.getByLabel(name).fill("");
  await second.getByRole("button", { name: "Save limits" }).click();
  await row("limited").getByRole("meter").waitFor({ state: "detached" });
  expect(await api(secret, "GET", "/v1/key")).toMatchObject({ limits: null, expires_at: null });
});

test("limits of a project are changed and stand beside those of its keys; a refusal keeps what was typed", async () => {
  await page.goto(`${url}/console/keys`);
  await projectRow().getByRole("button", { name: "Limits" }).click();
  const dialog = page.getByRole("dialog", { name: "Limits of “default”" });
  await dialog.getByLabel("Credit limit").fill("9000000001");
  await dialog.getByRole("button", { name: "Save limits" }).click();
  await dialog.getByRole("alert").getByText("limits.credits.amount: must be at most 9000000000").waitFor();
  await dialog.getByLabel("Credit limit").fill("90000");
  await dialog.getByLabel("Per").selectOption("day");
  await dialog.getByRole("button", { name: "Save limits" }).click();
  await projectRow()
    .getByText(/ of 90,000 credits a day/)
    .waitFor();
  await row("Organization default/demo")
    .getByText(/^Project: .* of 90,000 credits a day/)
    .waitFor();
  const { data } = await api(admin, "GET", "/v1/organization/projects");
  const [{ id, limits } = { id: "", limits: null }] = data as { id: string; limits: unknown }[];
  expect(limits).toMatchObject({ credits: { amount: "90000", per: "day" } });
  await api(admin, "POST", `/v1/organization/projects/${id}`, { limits: null });
});

test("a declared key says where it stands and offers no change", async () => {
  await page.goto(`${url}/console/keys`);
  const declared = row("Organization default/demo");
  await declared.getByText("Declared in Organization default/demo").waitFor();
  expect(await declared.getByRole("button").count()).toBe(0);
});

test("a project whose limits are declared shows them, says where they stand and offers no change", async () => {
  const other = await openPage(browser, url, desk);
  await signIn(other.page, url, keys.empty.admin);
  await other.page.goto(`${url}/console/keys`);
  const projects = other.page.getByRole("table", { name: "Projects" }).getByRole("row");
  const ruled = projects.filter({ hasText: "ruled" });
  await ruled.getByText("Its limits are declared in Organization default/empty;").waitFor();
  await ruled.getByText("0 of 5,000 credits a month").waitFor();
  expect(await ruled.getByRole("button", { name: "Limits" }).count()).toBe(0);
  await projects.filter({ hasText: "None" }).getByRole("button", { name: "Limits" }).waitFor();
  const { data } = await api(keys.empty.admin, "GET", "/v1/organization/projects");
  const declaredIn = (data as { name: string; limits_declared_in: string | null }[]).map(
    ({ name, limits_declared_in: place }) => [name, place],
  );
  expect(Object.fromEntries(declaredIn)).toEqual({ default: null, ruled: "Organization default/empty" });
  expect(other.faults).toEqual([]);
  await other.page.context().close();
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

test("people and projects are found as keys are, however many pages of them there are", async () => {
  const list = (path: string, of: (index: number, one: object) => object) =>
    page.route(
      ({ pathname }) => pathname === path,
      async (route) => {
        const response = await route.fetch();
        const answer = (await response.json()) as { readonly data: readonly object[] };
        const made = Array.from({ length: 120 }, (_, index) => of(index, answer.data[0] ?? {}));
        await route.fulfill({ response, json: { ...answer, data: [...answer.data, ...made] } });
      },
    );
  const person = { role: "member", added_at: 1_795_000_000, last_used_at: null, limits: null, standing: [] };
  await list("/v1/organization/users", (index) => {
    const project_id = index === 117 ? "proj_115" : null;
    return { ...person, id: `usr_${index}`, name: `person ${index}`, project_id };
  });
  await list("/v1/organization/projects", (index, project) => {
    return { ...project, id: `proj_${index}`, name: `team ${index}` };
  });
  const names = (table: string) =>
    page.getByRole("table", { name: table }).getByRole("rowheader").allTextContents();
  await page.goto(`${url}/console/keys?search=person+117`);
  await expect.poll(() => names("People")).toEqual(["Nameperson 117usr_117"]);
  await page.getByText("No project matches these filters.").waitFor();
  await page.getByLabel("Search").fill("TEAM 115");
  await expect.poll(() => names("Projects")).toEqual(["Nameteam 115"]);
  await page.getByText("Nobody matches these filters.").waitFor();
  await page.goto(`${url}/console/keys?project=proj_115`);
  await expect.poll(() => names("Projects")).toEqual(["Nameteam 115"]);
  await expect.poll(() => names("People")).toEqual(["Nameperson 117usr_117"]);
  await page.unrouteAll();
});

test("of hundreds of projects a new key comes into none that its form does not show", async () => {
  const path = "/v1/organization/projects";
  await page.route(
    ({ pathname }) => pathname === path,
    async (route) => {
      const response = await route.fetch();
      const answer = (await response.json()) as { readonly data: readonly object[] };
      const made = Array.from({ length: 300 }, (_, index) => ({
        ...answer.data[0],
        id: `proj_${index}`,
        name: `team ${index}`,
      }));
      await route.fulfill({ response, json: { ...answer, data: [...answer.data, ...made] } });
    },
  );
  const asked: string[] = [];
  await page.route(`**${path}/*/api_keys`, async (route) => {
    asked.push(new URL(route.request().url()).pathname.split("/").at(-2) ?? "");
    await route.fulfill({ status: 400, json: { error: { message: "Not now." } } });
  });
  await page.goto(`${url}/console/keys`);
  await page.getByRole("button", { name: "Create key" }).click();
  const dialog = page.getByRole("dialog");
  const project = dialog.getByLabel("Project");
  const create = dialog.getByRole("button", { name: "Create key" });
  await dialog.getByLabel("Name").fill("half");
  for (const some of ["eam 29", "team x"]) {
    await project.fill(some);
    await create.click();
    expect([await project.inputValue(), asked]).toEqual([some, []]);
  }
  await project.fill("team 299");
  await create.click();
  await dialog.getByText("Not now.").waitFor();
  // Emptied and left, it shows what still holds.
  await project.fill("");
  await create.click();
  await expect.poll(() => asked).toEqual(["proj_299", "proj_299"]);
  expect(await project.inputValue()).toBe("team 299");
  await page.unrouteAll();
});

/** Three pages of sixty keys. @param before called for each with the number of keys before it; false: the page fails */
async function routeThreePages(before: (first: number) => Promise<boolean>): Promise<void> {
  const { data } = (await api(admin, "GET", "/v1/organizations/api_keys?limit=1")) as { data: object[] };
  await page.route("**/v1/organizations/api_keys?*", async (route) => {
    const after = new URL(route.request().url()).searchParams.get("after") ?? "key-0";
    const first = Number(after.slice("key-".length));
    if (!(await before(first)))
      return await route.fulfill({ status: 400, json: { error: { message: "broken" } } });
    const keys = Array.from({ length: 60 }, (_, index) => ({ ...data[0], id: `key-${first + index + 1}` }));
    await route.fulfill({ json: { object: "list", data: keys, has_more: first < 120 } });
  });
}

test("whoever reads far down in a long list is still there when it is read again, page after page", async () => {
  await routeThreePages(async () => {
    await new Promise((done) => setTimeout(done, 300));
    return true;
  });
  await page.goto(`${url}/console/keys`);
  await settled(page);
  const next = page.getByRole("button", { name: "Next" });
  for (let turn = 0; turn < 3; turn += 1) await next.click();
  const shown = page.getByText("151–180 of 180");
  await shown.waitFor();
  await page.getByRole("button", { name: "Create key" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("while reading");
  await page.getByRole("dialog").getByRole("button", { name: "Create key" }).click();
  await page.getByRole("button", { name: "Done" }).click();
  await settled(page);
  await shown.waitFor();
  await page.unrouteAll();
});

test("a list that broke off is seen to grow when it is asked for again", async () => {
  const last = Promise.withResolvers<void>();
  let isBroken = true;
  // The second one fails, and the third one takes its time.
  await routeThreePages(async (first) => {
    if (first === 120) await last.promise;
    return first !== 60 || !isBroken;
  });
  await page.goto(`${url}/console/keys`);
  await page.getByText("1–50 of 60").waitFor();
  const problem = page.getByRole("main").getByRole("alert");
  await problem.waitFor();
  isBroken = false;
  await problem.getByRole("button", { name: "Try again" }).click();
  await page.getByText("1–50 of 120").waitFor();
  expect(await problem.count()).toBe(0);
  last.resolve();
  await page.getByText("1–50 of 180").waitFor();
  await page.unrouteAll();
});

test("a whole key that somebody looks for is found, and does not stand in the address", async () => {
  const made = await api(admin, "POST", "/v1/organizations/api_keys", { name: "found by its key" });
  const secret = String(made["key"]);
  await page.goto(`${url}/console/keys`);
  await settled(page);
  await page.getByLabel("Search").fill(secret);
  await row("found by its key").waitFor();
  expect(await row("Declared in").count()).toBe(0);
  expect(page.url()).toBe(`${url}/console/keys?search=${secret.slice(0, "sk-svc-".length + 6)}`);
  // An admin key of one's own may be base64.
  for (const shown of ["sk-adm-svc-abcdef", "sk-adm-svc-a+b/c-"]) {
    await page.getByLabel("Search").fill(`${shown}+ghij/kl-mn_op==`);
    await page.getByText("No key matches these filters.").waitFor();
    await expect.poll(() => new URL(page.url()).searchParams.get("search")).toBe(shown);
  }
  await page.goto(`${url}/console/requests`);
  await page.getByLabel("Request ID").fill(secret);
  await page.getByRole("button", { name: "Open request" }).click();
  await page.getByRole("main").getByRole("alert").waitFor();
  expect(page.url()).not.toContain(secret);
});

test("keys that share a name are told apart wherever one of them is chosen", async () => {
  const ids: string[] = [];
  for (let turn = 0; turn < 2; turn += 1)
    ids.push(String((await api(admin, "POST", "/v1/organizations/api_keys", { name: "twin" }))["id"]));
  for (const view of ["usage", "requests"]) {
    await page.goto(`${url}/console/${view}`);
    await settled(page);
    const shown = await page.getByLabel("Key", { exact: true }).locator("option").allTextContents();
    const twins = shown.filter((text) => text.startsWith("twin"));
    expect([view, twins.toSorted()]).toEqual([view, ids.map((id) => `twin (${id})`).toSorted()]);
  }
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

test("what is under way is not closed by pressing Escape again and again, and its refusal is seen", async () => {
  await api(admin, "POST", "/v1/organizations/api_keys", { name: "hurried" });
  await page.goto(`${url}/console/keys`);
  const { promise: due, resolve: answer } = Promise.withResolvers<void>();
  await page.route("**/api_keys/*", async (route) => {
    await due;
    await route.fulfill({ status: 503, json: { error: { message: "The ledger is away.", code: "x" } } });
  });
  const dialog = await press("hurried", "Delete");
  await Promise.all([
    page.waitForRequest((request) => request.method() === "DELETE"),
    dialog.getByRole("button", { name: "Delete" }).click(),
  ]);
  for (let presses = 0; presses < 3; presses += 1) await page.keyboard.press("Escape");
  answer();
  await dialog.getByRole("alert").getByText("The ledger is away.").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.unroute("**/api_keys/*");
});

test("a refused question keeps the focus; once its key is gone, reading goes on at the top", async () => {
  await api(admin, "POST", "/v1/organizations/api_keys", { name: "doomed" });
  await page.goto(`${url}/console/keys`);
  await row("doomed").getByRole("button", { name: "Delete" }).focus();
  await page.keyboard.press("Enter");
  const action = page.getByRole("dialog").getByRole("button", { name: "Delete" });
  const error = { message: "The ledger is away.", code: "unavailable" };
  await page.route("**/api_keys/*", (route) => route.fulfill({ status: 503, json: { error } }));
  await action.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").getByText("The ledger is away.").waitFor();
  const focused = () => page.evaluate<string>("document.activeElement.textContent");
  await expect.poll(() => action.isEnabled()).toBe(true);
  expect(await focused()).toBe("Delete");
  await page.unroute("**/api_keys/*");
  await page.keyboard.press("Enter");
  await row("doomed").waitFor({ state: "detached" });
  await expect.poll(focused).toBe("Keys");
});
