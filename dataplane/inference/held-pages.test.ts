/** Rule 7.2: the leases of a request's pages are held until the request is over, and no longer, however it ends. */
import { beforeEach, describe, expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { text, toolCall } from "../../test/fakes/upstream/script.ts";
import { callOn, nameOf, ways } from "../../test/fakes/ways.ts";
import { ByteBudget } from "../lib/byte-budget.ts";

const budget = new ByteBudget(1e9);
/** Bytes of the budget in use when each tool call began. */
let seen: number[];
/** Bytes of each page, and whether its lease was kept. */
let bytes: number;
let kept: boolean[];
/** A tool call waits for this, if set. */
let ends: PromiseWithResolvers<void> | null;
beforeEach(() => {
  seen = [];
  bytes = 100;
  kept = [];
  ends = null;
});

const { fake, serve } = await serveOneUpstream(async (_name, _input, { organization, keep }) => {
  seen.push(budget.used);
  await ends?.promise;
  const lease = budget.pageLease(organization.id);
  lease.take(bytes);
  kept.push(keep(lease));
  return { kind: "hits", hits: [], posts: 0, profiles: 0 };
});
const searching = toolCall("web_search", { query: "gates" });
const tools = ways.filter(({ path }) => path === "tools");

describe.each(tools.map((way) => [nameOf(way), way] as const))("%s", (_, way) => {
  test("through all of a request's iterations", async () => {
    fake.next(searching, searching, text("done"));
    await serve(callOn(fake.url, way));
    expect(seen).toEqual([0, 100]);
    expect(budget.used).toBe(0);
  });

  test("not beyond an upstream that fails", async () => {
    fake.next(searching, { error: { status: 500 } });
    await serve(callOn(fake.url, way)).catch(() => undefined);
    expect(seen).toEqual([0]);
    expect(budget.used).toBe(0);
  });
});

test("rule 1.17: with the pages that it was brought a request has at most 32 MiB", async () => {
  bytes = 12 * 1024 * 1024;
  fake.next(searching, searching, searching, text("done"));
  await serve(callOn(fake.url, { path: "tools", client: "chat", upstream: "chat", stream: false }));
  expect(kept).toEqual([true, true, false]);
  expect(seen).toEqual([0, bytes, 2 * bytes]);
  expect(budget.used).toBe(0);
});

test("not beyond a client that left, also where a call ends after it", async () => {
  ends = Promise.withResolvers();
  fake.next(searching, text("done"));
  const call = callOn(fake.url, { path: "tools", client: "chat", upstream: "chat", stream: true });
  const served = serve(call).catch(() => undefined);
  await expect.poll(() => seen).toEqual([0]);
  call.sink.closed.abort();
  ends.resolve();
  await served;
  expect(budget.used).toBe(0);
});
