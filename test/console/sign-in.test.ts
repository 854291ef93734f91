/** Signing in to the console at a real provider, from end to end (rules 11.2, 13.3). */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import { freePort } from "../../hack/free-port.ts";
import { CONSOLE_CLIENT, startProvider, type RunningProvider } from "../fakes/provider/provider.ts";
import { startProduct, temporaryFolder, writeManifests, type Product } from "../integration/product.ts";
import { axe, desk, openBrowser, openPage, phone, settled, type Watched } from "./browser.ts";
import { consoleTest } from "./console-test.ts";

const folder = temporaryFolder();
let provider: RunningProvider;
let product: Product;
let browser: Browser;
let watched: Watched;
let page: Page;

beforeAll(async () => {
  const port = await freePort();
  const origin = `http://127.0.0.1:${port}`;
  provider = await startProvider([], [`${origin}/console/sign-in/org_people`]);
  provider.claims.set("olga", { groups: ["owners"], name: "Olga <b>Owner</b>" });
  provider.claims.set("vera", { groups: ["finance"] });
  provider.claims.set("mia", { groups: ["ml"] });
  const manifests = join(folder.path, "manifests");
  writeManifests(manifests, "http://127.0.0.1:9");
  writeFileSync(
    join(manifests, "people.yaml"),
    `
apiVersion: gapura.dev/v1alpha1
kind: Organization
metadata: {name: people}
spec:
  id: org_people
  displayName: People of ours
  credits: {grants: [{name: first, amount: "1000"}]}
  identity:
    issuer: ${provider.issuer}
    audiences: ["${provider.audience}"]
    allowCIDRs: [127.0.0.1/32]
    console: {clientID: ${CONSOLE_CLIENT}}
    rules:
    - {claims: {groups: owners}, role: Admin}
    - {claims: {groups: finance}, role: Viewer}
    - {claims: {groups: ml}, role: Member}
`,
  );
  const authority = join(folder.path, "authority.pem");
  writeFileSync(authority, provider.ca);
  product = await startProduct({
    manifests,
    data: join(folder.path, "data"),
    port,
    environment: { NODE_EXTRA_CA_CERTS: authority },
  });
  browser = await openBrowser();
});
afterAll(async () => {
  await browser?.close();
  await product?.stop();
  await provider?.[Symbol.asyncDispose]();
  folder[Symbol.dispose]();
});
beforeEach(async () => {
  provider.personSeconds = 600;
  watched = await openPage(browser, product.url, desk, [new URL(provider.issuer).host]);
  ({ page } = watched);
});
afterEach(async () => {
  await page.context().close();
  expect(watched.faults).toEqual([]);
});

const address = (more = "") => `${product.url}/console/sign-in/org_people${more}`;
const heading = (name: string) => page.getByRole("heading", { level: 1, name }).waitFor();
const atProvider = () => page.getByRole("button", { name: /^Sign in at 127\.0\.0\.1:/ });

const view = (name: string) => page.getByRole("navigation").getByRole("link", { name, exact: true });

async function signInAs(name: string, { stay = false, to = "" } = {}): Promise<void> {
  await page.goto(address(to === "" ? "" : `?to=${encodeURIComponent(to)}`));
  if (stay) await page.getByLabel("Stay signed in").check();
  await atProvider().click();
  await page.getByLabel("Name").fill(name);
  await page.getByRole("button", { name: "Go on" }).click();
}

/** Everything that this tab keeps, and its address: no token but where it was asked to stay. */
const kept = async () => ({
  session: await page.evaluate("JSON.stringify({ ...sessionStorage })"),
  local: await page.evaluate("JSON.stringify({ ...localStorage })"),
  // The provider, on another port, is the same site.
  cookies: (await page.context().cookies()).filter(({ name }) => !name.startsWith("_")).length,
  url: page.url(),
});

consoleTest("an owner signs in, sees the organization, and nothing of it is kept anywhere", async () => {
  await signInAs("olga");
  await heading("Overview");
  await page.getByText("People of ours").waitFor();
  await settled(page);
  const found = await kept();
  expect(found).toMatchObject({ session: "{}", cookies: 0, url: `${product.url}/console/` });
  expect(found.local).not.toContain("eyJ");
  // An owner may change things.
  await view("Keys").click();
  await page.getByRole("button", { name: "Create key" }).first().click();
  await page.getByLabel("Name").fill("made by a person");
  await page.getByRole("dialog").getByRole("button", { name: "Create key" }).click();
  await page.getByText("sk-svc-").first().waitFor();
  await page.reload();
  // Not asked to stay, a page that is loaded anew knows nobody.
  await page.getByLabel("Admin key").waitFor();
});

consoleTest("whoever stays is still there after a reload, at the view that was open", async () => {
  await signInAs("olga", { stay: true, to: "/console/usage?group=model" });
  await heading("Usage");
  expect(page.url()).toBe(`${product.url}/console/usage?group=model`);
  expect((await kept()).session).toContain("eyJ");
  await page.reload();
  await heading("Usage");
  expect(page.url()).toBe(`${product.url}/console/usage?group=model`);
  await page.goto(`${product.url}/console/costs`);
  await heading("Costs");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("button", { name: "Sign out here too" }).click();
  await atProvider().waitFor();
  expect((await kept()).session).toBe("{}");
  expect(provider.asked.some((path) => path.includes("eyJ"))).toBe(false);
  expect(provider.asked).toContain("/token/revocation");
  // The provider asks for the name again.
  await atProvider().click();
  await page.getByLabel("Name").waitFor();
});

consoleTest(
  "a token is renewed before it ends, and whom the provider no longer knows is signed out",
  async () => {
    // Ends within the half minute in which it is renewed before each use.
    provider.personSeconds = 20;
    const renewals = () => provider.asked.filter((path) => path === "/token").length;
    await signInAs("olga");
    await heading("Overview");
    const before = renewals();
    await view("Costs").click();
    await heading("Costs");
    await settled(page);
    expect(renewals()).toBeGreaterThan(before);
    // Its sessions, codes and refresh tokens are gone with its keys.
    provider.rotate();
    await view("Usage").click();
    await expect
      .poll(() => page.getByRole("alert").textContent())
      .toBe("Your sign-in has ended. Sign in again.");
  },
);

consoleTest(
  "whoever signs in again after a sign-in has ended is back at the view that was open",
  async () => {
    await signInAs("olga");
    await heading("Overview");
    await view("Usage").click();
    await settled(page);
    await page.route("**/v1/organization/**", (route) =>
      route.fulfill({
        status: 401,
        json: { error: { message: "It has expired.", code: "invalid_api_key" } },
      }),
    );
    await page.getByLabel("Interval").selectOption("hour");
    await expect
      .poll(() => page.getByRole("alert").textContent())
      .toBe("Your sign-in has ended. Sign in again.");
    await page.unroute("**/v1/organization/**");
    await atProvider().click();
    await heading("Usage");
    expect(page.url()).toBe(`${product.url}/console/usage?interval=hour`);
  },
);

consoleTest(
  "a viewer sees everything, people by their names as well, and is offered no change; an owner is",
  async () => {
    const changes = () =>
      page.getByRole("main").getByRole("button", { name: /^(Create key|Limits|Delete|Rename)$/ });
    for (const [name, offered] of [
      ["olga", true],
      ["vera", false],
    ] as const) {
      await page.context().clearCookies();
      await signInAs(name);
      await heading("Overview");
      await view("Keys").click();
      await settled(page);
      expect((await changes().count()) > 0).toBe(offered);
      const people = page.getByRole("table", { name: "People" });
      await people.getByRole("row", { name: /Olga <b>Owner<\/b>.*Admin/ }).waitFor();
      expect(await page.getByText("Your role, Viewer, changes none of them.").count()).toBe(offered ? 0 : 1);
      if (!offered) {
        await people.getByRole("row", { name: /No name in the token.*Viewer/ }).waitFor();
        expect(await axe(page)).toEqual([]);
      }
    }
  },
);

consoleTest("a member and a person without a rule are told that the console is not for them", async () => {
  for (const name of ["mia", "nobody"]) {
    await signInAs(name);
    await expect
      .poll(() => page.getByRole("alert").textContent())
      .toMatch(/does not let you into its console/);
    expect(await kept()).toMatchObject({ session: "{}", url: address() });
    await page.context().clearCookies();
  }
});

consoleTest("what the provider refuses is told in its words, and the address is clean again", async () => {
  await page.goto(address());
  await atProvider().click();
  await page.getByRole("button", { name: "Cancel" }).click();
  await expect
    .poll(() => page.getByRole("alert").textContent())
    .toBe("Your provider did not sign you in: access_denied: the person would rather not");
  expect(await kept()).toMatchObject({ session: "{}", url: address() });
});

consoleTest("an answer that this tab did not ask for signs nobody in", async () => {
  const asked = () => provider.asked.filter((path) => path === "/token").length;
  const before = asked();
  // Somebody else's code in a link.
  await page.goto(address("?code=stolen&state=guessed"));
  await expect.poll(() => page.getByRole("alert").textContent()).toMatch(/not begun in this tab/);
  // A way that was begun, but another state.
  await atProvider().click();
  await page.getByLabel("Name").waitFor();
  await page.goto(address("?code=stolen&state=guessed"));
  await expect.poll(() => page.getByRole("alert").textContent()).toMatch(/not begun in this tab/);
  expect(asked()).toBe(before);
  expect((await kept()).url).toBe(address());
});

consoleTest(
  "only the page of an organization with a provider may call one, and an unknown one says so",
  async () => {
    const policyOf = async (path: string) =>
      (await fetch(`${product.url}${path}`)).headers.get("content-security-policy") ?? "";
    expect(await policyOf("/console/sign-in/org_people")).toContain(`connect-src 'self' ${provider.issuer};`);
    for (const path of [
      "/console/",
      "/console/keys",
      "/console/sign-in/org_acme",
      "/console/sign-in/%E0%A4%A",
    ])
      expect(await policyOf(path)).toContain("connect-src 'self';");
    await page.goto(`${product.url}/console/sign-in/org_acme`);
    await expect.poll(() => page.getByRole("alert").textContent()).toMatch(/no organization here/);
    await page.getByRole("link", { name: "Use an admin key instead" }).click();
    await page.getByLabel("Admin key").waitFor();
    // Where a link leads after signing in is a view of this console.
    await signInAs("olga", { to: "https://elsewhere.example/x" });
    await heading("Overview");
  },
);

consoleTest("the page for signing in is for everybody: axe finds nothing, on a telephone too", async () => {
  await page.goto(address());
  await atProvider().waitFor();
  await settled(page);
  expect(await axe(page)).toEqual([]);
  await page.setViewportSize(phone);
  expect(await page.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
  // By keyboard alone: the box, the button, the link.
  await page.getByLabel("Stay signed in").focus();
  await page.keyboard.press("Tab");
  expect(await page.evaluate("document.activeElement.textContent")).toMatch(/^Sign in at/);
});
