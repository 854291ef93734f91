/** The bytes around references, without a store: everything that is asked for is found. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { callOf, snapshotOf } from "../../../test/fakes/inference.ts";
import { ByteBudget, type ByteLease } from "../../lib/byte-budget.ts";
import { splice } from "../../lib/json-splice.ts";
import type { OutputItems } from "../call.ts";
import { keepItemOf, knownItems, refersToItems, withItemReferences } from "./item-references.ts";
import type { ToolCache } from "../../tools/cache.ts";
import { inspectBody } from "../inspect/body.ts";

const items: Record<string, string> = {
  sealed: '{"type":"reasoning","id":"sealed", "summary":[],"encrypted_content":"abc"}',
  message: '{"type":"message","id":"message","role":"assistant","content":[]}',
};
const known: OutputItems = {
  keep: () => undefined,
  find: async (ids, found) => {
    for (const id of ids) {
      const item = items[id];
      if (item !== undefined) await found(id, Buffer.from(item));
    }
    return [];
  },
};

const budget = new ByteBudget(1024 ** 2);
let lease: ByteLease;
beforeEach(() => {
  lease = budget.lease("org_a");
});
afterEach(() => lease.release());

async function resolve(body: string): Promise<string> {
  const inspected = inspectBody("responses", Buffer.from(body));
  return refersToItems(inspected)
    ? splice(inspected.body, await knownItems(inspected, known, lease)).toString()
    : body;
}
const reference = (id: string) => `{"type":"item_reference","id":"${id}"}`;
const user = '{"role":"user","content":"Hi"}';
const inputOf = (...elements: string[]) => `{"model":"m", "n": 1.0, "input": [ ${elements.join(" , ")} ]}`;

test.each([
  ["a reference", reference("message"), "message"],
  ["a reference without its type", '{"id":"message"}', "message"],
  ["reasoning without its content", '{"type":"reasoning","id":"sealed","summary":[]}', "sealed"],
  [
    "reasoning whose content is null",
    '{"type":"reasoning","id":"sealed","encrypted_content":null}',
    "sealed",
  ],
])("%s becomes the item; every other byte stays", async (_, element, id) => {
  expect(await resolve(inputOf(user, element, user))).toBe(inputOf(user, items[id] ?? "", user));
});

test.each([
  ["an unknown reference, for the refusal", reference("nobody")],
  ["reasoning that nobody kept", '{"type":"reasoning","id":"rs","summary":[]}'],
  ["reasoning with its content", '{"type":"reasoning","id":"sealed","encrypted_content":"xyz"}'],
  ["reasoning in clear text", '{"type":"reasoning","id":"sealed","content":[{"type":"reasoning_text"}]}'],
  ["a message of the same id", '{"type":"message","id":"message","role":"user","content":"Hi"}'],
])("%s stays as it is", async (_, element) => {
  expect(await resolve(inputOf(element, user))).toBe(inputOf(element, user));
});

test("rule 7.2: items are counted as often as they are put in, and refused without room for them", async () => {
  await resolve(inputOf(reference("message"), user, reference("message"), reference("nobody")));
  expect(lease.bytes).toBe(2 * (items["message"] ?? "").length);
  lease.release();
  const others = budget.lease("org_other");
  others.take(budget.total);
  await expect(resolve(inputOf(reference("message")))).rejects.toMatchObject({ code: "unavailable" });
  others.release();
});

/** What knowing all of `ids` costs, with a cache that has each of them. */
async function readAll(ids: readonly string[], item: Buffer): Promise<{ reads: number; error: unknown }> {
  let reads = 0;
  const cache = {
    get: async () => {
      reads += 1;
      return item;
    },
    set: async () => undefined,
  };
  const body = JSON.parse(inputOf(...ids.map(reference))) as object;
  let error: unknown = null;
  await withItemReferences(async (call) => {
    if (call.items === undefined) return;
    await knownItems(inspectBody("responses", call.body), call.items, lease).catch((caught: unknown) => {
      error = caught;
    });
  }, cache)(callOf("responses", snapshotOf([]), body));
  return { reads, error };
}
const thousand = Array.from({ length: 1000 }, (_, index) => `msg_${index}`);

test("rule 7.2: items are counted while they are read, and no more are read than fit", async () => {
  const { reads, error } = await readAll(thousand, Buffer.alloc(1024 ** 2));
  expect(error).toMatchObject({ code: "too_large" });
  expect(reads).toBeLessThan(50);
  expect(lease.bytes).toBeLessThanOrEqual(32 * 1024 ** 2);
});

test("a store that answers nothing is not asked for each of a thousand items", async () => {
  vi.useFakeTimers();
  try {
    let reads = 0;
    const cache = {
      // As the cache does for a store that is frozen.
      get: () => {
        reads += 1;
        return new Promise<null>((resolve) => setTimeout(resolve, 300, null));
      },
      set: async () => undefined,
    };
    let ended = false;
    const call = callOf("responses", snapshotOf([]), { model: "m", input: "x" });
    const serving = withItemReferences(async (seen) => {
      await seen.items?.find(thousand, () => undefined);
      ended = true;
    }, cache)(call);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(ended).toBe(true);
    expect(reads).toBeLessThan(250);
    await serving;
  } finally {
    vi.useRealTimers();
  }
});

test("a reference is not called unknown where the store does not answer, or not in time", async () => {
  const outcome = async (body: object, get: ToolCache["get"]) => {
    const call = callOf("responses", snapshotOf([]), body);
    let error: unknown = null;
    await withItemReferences(
      async ({ items: own }) => {
        if (own === undefined) return;
        await knownItems(inspectBody("responses", call.body), own, lease).catch(
          (caught: unknown) => (error = caught),
        );
      },
      { get, set: async () => undefined },
    )(call);
    return error;
  };
  const unavailable = { code: "unavailable", kind: { status: 503 }, retryAfterSeconds: 1 };
  const silent: ToolCache["get"] = async (_, told) => {
    told?.();
    return null;
  };
  const referring = JSON.parse(inputOf(reference("msg_1"), user)) as object;
  expect(await outcome(referring, silent)).toMatchObject(unavailable);
  // Without its content reasoning is dropped, as where nobody kept it.
  const reasoning = JSON.parse(inputOf('{"type":"reasoning","id":"rs","summary":[]}', user)) as object;
  expect(await outcome(reasoning, silent)).toBe(null);
  // One that has none, for the refusal.
  expect(await outcome(referring, async () => null)).toBe(null);
  let now = performance.now();
  const clock = vi.spyOn(performance, "now").mockImplementation(() => now);
  try {
    const slow = async () => {
      now += 50;
      return Buffer.from(items["message"] ?? "");
    };
    const many = JSON.parse(inputOf(...thousand.map(reference))) as object;
    expect(await outcome(many, slow)).toMatchObject(unavailable);
  } finally {
    clock.mockRestore();
  }
});

test("a thousand small items are all read", async () => {
  const { reads, error } = await readAll(thousand, Buffer.from(items["message"] ?? ""));
  expect(error).toBeNull();
  expect(reads).toBe(1000);
});

test("items are kept unless the client says store: false, and not for batches", async () => {
  const cache = { get: async () => null, set: async () => undefined };
  const keeps = async (dialect: "responses" | "chat", more: object, batchId: string | null = null) => {
    let sink: unknown;
    const call = callOf(dialect, snapshotOf([]), { model: "m", input: "x", messages: [{}], ...more });
    await withItemReferences(async (seen) => {
      sink = keepItemOf(seen, inspectBody(seen.dialect, seen.body));
    }, cache)({ ...call, batchId });
    return sink !== undefined;
  };
  expect(await keeps("responses", {})).toBe(true);
  expect(await keeps("responses", { store: true, tools: [{ parameters: { store: false } }] })).toBe(true);
  expect(await keeps("responses", { store: null })).toBe(true);
  expect(await keeps("responses", { store: false })).toBe(false);
  expect(await keeps("responses", {}, "batch_1")).toBe(false);
  expect(await keeps("chat", {})).toBe(false);
});

test("rule 7.3: what is kept of a large answer is not copied, nor what is too long to be kept", async () => {
  const set = vi.fn(async () => {});
  const item = Buffer.alloc(1024 * 1024, "a");
  await withItemReferences(
    async ({ items: kept }) => {
      kept?.keep("msg_1", item);
      kept?.keep("msg_2", Buffer.alloc(item.length + 1));
      kept?.keep("msg_3", "a".repeat(item.length + 1));
    },
    { get: async () => null, set },
  )(callOf("responses", snapshotOf([]), {}));
  expect(set).toHaveBeenCalledExactlyOnceWith("org_a", expect.stringContaining("msg_1"), item, 3_600_000);
  expect((set.mock.calls as unknown[][])[0]?.[2]).toBe(item);
});
