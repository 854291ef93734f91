/** Plays the example of docs/billing.md, "Limits of keys and projects", against the whole product. */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { startUpstream } from "../fakes/upstream/server.ts";
import { text } from "../fakes/upstream/script.ts";
import { fetchServed, readKeys, startProduct, temporaryFolder, writeManifests } from "./product.ts";

const run = promisify(execFile);
const page = readFileSync(resolve(import.meta.dirname, "../../docs/billing.md"), "utf8");
const section = /## Limits of keys and projects\n([\s\S]*?)\n### /.exec(page)?.[1] ?? "";
const [make = "", show = "", change = ""] = blocks("sh");
const [standing = ""] = blocks("json");

function blocks(language: string): string[] {
  return [...section.matchAll(new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``, "g"))].map(
    ([, block = ""]) => block,
  );
}

test("a key is made, shown and changed as the page says", async () => {
  using folder = temporaryFolder();
  const upstream = await startUpstream();
  upstream.model("upstream-chat", text("fine", { input: 1_000, output: 100 }));
  const [manifests, data] = [join(folder.path, "manifests"), join(folder.path, "data")];
  writeManifests(manifests, upstream.url);
  const product = await startProduct({ manifests, data });
  try {
    const env = { PATH: process.env["PATH"], GAPURA: product.url, ADMIN_KEY: readKeys(data).admin };
    /** Without the page's jq, which a machine may not have: the whole answer is read. */
    const play = async (block: string, more: Readonly<Record<string, string>> = {}) => {
      const { stdout } = await run("bash", ["-c", block.replace(/ \| jq .*/, "")], {
        env: { ...env, ...more },
      });
      return JSON.parse(stdout) as Readonly<Record<string, unknown>>;
    };
    const { id, key } = await play(make);
    const holder = { KEY: String(key), KEY_ID: String(id) };
    const ask = async () => {
      const answer = await fetchServed(`${product.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${holder.KEY}`, "content-type": "application/json" },
        body: JSON.stringify({ model: "m-chat", messages: [{ role: "user", content: "Hello" }] }),
      });
      await answer.text();
      return answer.status;
    };
    expect(await ask()).toBe(200);
    expect(await play(show, holder)).toMatchObject({ standing: [JSON.parse(standing)] });
    expect([await ask(), await ask()]).toEqual([200, 402]);
    expect(await play(change, holder)).toMatchObject({ limits: { credits: { amount: "5", per: "month" } } });
    await expect.poll(ask).toBe(200);
  } finally {
    await product.stop();
    await upstream.close();
  }
}, 240_000);
