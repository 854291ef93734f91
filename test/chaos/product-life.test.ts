/** The whole product, started as a user starts it: what it makes of killed programs, and of its own end in each way. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { processesOn } from "../fakes/processes-on.ts";
import { text } from "../fakes/upstream/script.ts";
import { printedAndLogged } from "../integration/product.ts";
import { SharedProduct } from "../integration/shared-product.ts";

const shared = new SharedProduct();
const { data } = shared;

const answer = "Hello from the other side, said slowly.";
const ask = () => shared.openai.responses.create({ model: "m-responses", input: "Hello" });
const models = () => shared.openai.models.list();

test.each([
  ["data plane", () => readRun().programs["dataplane/main.ts"]],
  ["Redis", () => Number(readFileSync(join(data, "redis", "redis.pid"), "utf8"))],
  ["Postgres", () => Number(readFileSync(join(data, "postgres", "postmaster.pid"), "utf8").split("\n")[0])],
])("a killed %s is started again", async (_, pid) => {
  process.kill(pid() ?? 0, "SIGKILL");
  await sleep(300);
  const answers = () => ask().then(({ model }) => model, String);
  await expect.poll(answers, { timeout: 30_000, interval: 200 }).toBe("m-responses");
});

test("a restart on the same data keeps the keys", async () => {
  const before = shared.keys;
  await shared.product.stop();
  await shared.start();
  expect(shared.keys).toEqual(before);
  shared.upstream.next(text(answer));
  expect((await ask()).output_text).toBe(answer);
});

test("SIGKILL of npm leaves nothing that blocks the next start", async () => {
  await shared.product.stop("SIGKILL");
  await shared.start();
  expect((await models()).data).toHaveLength(3);
});

test("SIGINT to the whole group, twice, stops in order", async () => {
  const group = -(shared.product.process.pid ?? 0);
  process.kill(group, "SIGINT");
  await sleep(20);
  process.kill(group, "SIGINT");
  await shared.product.stop("SIGINT");
  await expect.poll(() => processesOn(data), { timeout: 10_000 }).toEqual([]);
  await shared.start();
  expect((await models()).data).toHaveLength(3);
});

test("no key was printed or logged in all of it, neither a client's nor a provider's", () => {
  const everything = printedAndLogged(shared.product, data);
  for (const secret of [shared.keys.inference, shared.keys.admin, "provider-key-of-acme"])
    expect(everything).not.toContain(secret);
});

function readRun(): { readonly programs: Readonly<Record<string, number>> } {
  return JSON.parse(readFileSync(join(data, "run.json"), "utf8")) as {
    programs: Record<string, number>;
  };
}
