/** What `npm start` says and does when it cannot go on, or may not take its time. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { readKeys, startProduct, temporaryFolder, writeManifests } from "./product.ts";

const root = resolve(import.meta.dirname, "../..");
const folder = temporaryFolder();
let upstream: FakeUpstream;
beforeAll(async () => {
  upstream = await startUpstream();
});
afterAll(async () => {
  await upstream.close();
  folder[Symbol.dispose]();
});

test("a data folder that cannot be written: one sentence, at once", async () => {
  const data = join("/dev/null", "data");
  const start = execFile(process.execPath, [join(root, "hack/start.ts"), "--data", data], {
    timeout: 20_000,
  });
  let output = "";
  for (const stream of [start.stdout, start.stderr]) stream?.on("data", (text: string) => (output += text));
  expect(await once(start, "exit")).toEqual([1, null]);
  expect(output).toBe(
    `gapura: ${data} cannot be written (ENOTDIR): choose a folder of your own with --data\n`,
  );
});

test("rule 14.7: a second Ctrl-C ends all of it within ten seconds, though an answer still runs", async () => {
  const [manifests, data] = [join(folder.path, "manifests"), join(folder.path, "data")];
  writeManifests(manifests, upstream.url);
  const product = await startProduct({ manifests, data });
  const script = { delayBetweenEventsMs: 60_000 };
  const running = fetch(`${product.url}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": readKeys(data).inference,
      "content-type": "application/json",
      "anthropic-version": "2023-06-01",
    },
    body: JSON.stringify({
      model: "m-messages",
      max_tokens: 50,
      stream: true,
      messages: [{ role: "user", content: `{{script: ${JSON.stringify(script)}}}` }],
    }),
  });
  const answer = await running;
  const cut = answer.text().catch(() => "cut");
  const ended = once(product.process, "exit");
  // As a terminal does: everybody in the group hears it.
  const ctrlC = () => process.kill(-(product.process.pid ?? 0), "SIGINT");
  ctrlC();
  await expect.poll(() => product.output(), { timeout: 10_000 }).toContain("Ctrl-C again: at once");
  await new Promise((done) => setTimeout(done, 1_000));
  expect(product.process.exitCode).toBeNull();
  const asked = Date.now();
  ctrlC();
  await ended;
  expect(Date.now() - asked).toBeLessThan(10_000);
  expect(product.output()).toContain("cutting off what still runs");
  await cut;
  // Nothing of it is left to be in the way of the next start.
  const again = spawn("npm", ["run", "--silent", "reconcile", "--", "--data", data], { cwd: root });
  expect((await once(again, "exit"))[0]).toBe(2);
}, 120_000);
