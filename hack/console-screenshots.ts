/**
 * Takes the pictures of docs/console.md from a running `npm start` with the demo manifests:
 *   node hack/ensure.mjs hack/console-screenshots.ts http://127.0.0.1:8080 .gapura
 * For prices of every sort, demo-messages has `tiers`, `serviceTiers` and `changes` of its own in the picture of Costs.
 */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { desk, openBrowser, openPage, phone, settled, signIn, type Look } from "../test/console/browser.ts";

const [url = "http://127.0.0.1:8080", data = ".gapura"] = process.argv.slice(2);
const key = (name: string, file: string) =>
  readFileSync(join(data, "secrets", "default", name, file), "utf8").trim();
const folder = resolve(import.meta.dirname, "../docs/images");

const pictures: readonly { readonly name: string; readonly view: string; readonly look: Look }[] = [
  { name: "overview", view: "", look: desk },
  { name: "costs", view: "costs", look: desk },
  { name: "playground", view: "playground?model=demo-chat", look: { ...desk, theme: "dark" } },
  { name: "keys-phone", view: "keys", look: phone },
];

const browser = await openBrowser();
try {
  for (const { name, view, look } of pictures) {
    const { page } = await openPage(browser, url, look);
    await signIn(page, url, key("demo-admin", "admin-key"));
    await page.goto(`${url}/console/${view}`);
    await settled(page);
    if (/^(playground|costs)/.test(view)) {
      await page.getByLabel("Inference key").fill(key("demo-key", "api-key"));
      await page.getByRole("button", { name: "Use key" }).click();
    }
    if (view === "costs") {
      await page.getByRole("table", { name: "Prices" }).waitFor();
      await page.evaluate("scrollTo(0, document.documentElement.scrollHeight)");
    }
    if (view.startsWith("playground")) {
      await page.getByLabel("User message").fill("Search the web: what is a gapura?");
      await page.getByLabel("Web search").check();
      await page.getByRole("button", { name: "Send" }).click();
      await page.getByRole("heading", { name: "Sources" }).waitFor();
      await settled(page);
      // The cost is known a moment later.
      await page
        .getByRole("region", { name: /^demo-/ })
        .locator("dd")
        .last()
        .getByText(/^\d/)
        .waitFor();
    }
    await page.screenshot({ path: join(folder, `console-${name}.png`) });
    await page.context().close();
  }
} finally {
  await browser.close();
}
