/** A real browser on the real product: what the tests of the console and its screenshots stand on. */
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { findChromium } from "../../hack/chromium.ts";

export interface Look {
  readonly width: number;
  readonly height: number;
  readonly theme: "light" | "dark";
}
export const desk: Look = { width: 1440, height: 900, theme: "light" };
export const phone: Look = { width: 390, height: 844, theme: "dark" };

/** @throws Error when no Chromium is to be had here. */
export async function openBrowser(): Promise<Browser> {
  const { path, environment } = await findChromium((line) => process.stderr.write(`console: ${line}\n`));
  return await chromium.launch({
    executablePath: path,
    env: { ...process.env, ...environment },
    // A container has neither a user namespace nor a shared memory of its own.
    // Nothing but this machine is to be found.
    args: [
      "--no-sandbox",
      "--disable-dev-shm-usage",
      "--disable-gpu",
      "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    ],
  });
}

/** What a page did that it must never do. */
export interface Watched {
  readonly page: Page;
  /** Requests to another host, violations of the policy, errors of scripts. */
  readonly faults: readonly string[];
}

/** A page that belongs to nobody else, watched. @param others hosts that it may ask too, with certificates of their own */
export async function openPage(
  browser: Browser,
  url: string,
  { width, height, theme }: Look,
  others: readonly string[] = [],
): Promise<Watched> {
  const context: BrowserContext = await browser.newContext({
    viewport: { width, height },
    colorScheme: theme,
    reducedMotion: "reduce",
    acceptDownloads: true,
    ignoreHTTPSErrors: others.length > 0,
  });
  const page = await context.newPage();
  const faults: string[] = [];
  const { host } = new URL(url);
  page.on("request", (request) => {
    const asked = new URL(request.url());
    if (/^https?:$/.test(asked.protocol) && asked.host !== host && !others.includes(asked.host))
      faults.push(`request to ${request.url()}`);
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("console", (message) => {
    if (/content security policy|trusted ?type|refused to/i.test(message.text())) faults.push(message.text());
  });
  return { page, faults };
}

export async function signIn(page: Page, url: string, adminKey: string, stay = true): Promise<void> {
  await page.goto(`${url}/console/`);
  await page.getByLabel("Admin key").fill(adminKey);
  if (stay) await page.getByLabel("Stay signed in").check();
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
}

/** Everything that a view loads has come. */
export async function settled(page: Page): Promise<void> {
  await page.locator("[aria-busy=true], .skeleton").first().waitFor({ state: "detached" });
}

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What axe finds, whatever its weight: one line each. */
export async function axe(page: Page): Promise<string[]> {
  await page.evaluate(axeSource);
  const found: unknown = await page.evaluate(
    "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations.map(({ id, impact, nodes }) => `${id} (${impact}): ${nodes.map(({ target, failureSummary }) => target + ' ' + failureSummary).slice(0, 3).join(' | ')}`))",
  );
  return found as string[];
}
