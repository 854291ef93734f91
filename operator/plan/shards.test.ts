import { createHash, randomBytes } from "node:crypto";
import { gunzipSync, gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { MAX_PART_BYTES, MAX_SHARD_BYTES } from "../../dataplane/config/schema.ts";
import type { RoutingContent } from "./compiled.ts";
import {
  type SlotState,
  decodeSlots,
  encode,
  isSameContent,
  nextSlot,
  nextSerial,
  serialize,
} from "./shards.ts";

const content = (name: string): RoutingContent => ({
  schemaVersion: 1,
  routes: [],
  policies: {},
  organizations: [],
  objects: [{ kind: "PriceTable", namespace: "default", name, uid: "u", generation: 1 }],
});
const files = (encoded: ReturnType<typeof encode>) => {
  if (!encoded.ok) throw new Error(`${encoded.excess.bytes} bytes too many`);
  return new Map(encoded.files.map(({ name, bytes }) => [name, bytes]));
};
const slotA = (map: ReadonlyMap<string, Uint8Array>) => decodeSlots(map)[0];

describe("files of a slot", () => {
  test("come back as they were", () => {
    const written = encode("a", 5, serialize(content("x")), { "default/s/k": "väl\u0000ue" });
    expect(slotA(files(written))).toEqual({
      slot: "a",
      serial: 5,
      indexText: written.ok && written.indexText,
      hash: serialize(content("x")).hash,
      published: { routing: { ...content("x"), serial: 5 }, credentials: { "default/s/k": "väl\u0000ue" } },
    });
  });

  test("that are known are not unpacked again, unless a piece was damaged meanwhile", () => {
    const whole = files(encode("a", 5, serialize(content("x")), { c: "v" }));
    const known = decodeSlots(whole);
    expect(decodeSlots(whole, known)[0]).toBe(known[0]);
    const damaged = decodeSlots(new Map([...whole, ["a-0.gz", Buffer.from("x")]]), known);
    expect(damaged[0]?.published).toBe(null);
    expect(decodeSlots(whole, damaged)[0]).toEqual(known[0]);
  });

  test("hold the JSON of the whole, however many entries it has", () => {
    for (const count of [0, 1, 100, 101, 20_000]) {
      const objects = Array.from({ length: count }, (_, index) => content(`ä${index}`).objects).flat();
      const whole: RoutingContent = { ...content("x"), policies: {}, objects };
      const text = JSON.stringify(whole);
      const serialized = serialize(whole);
      expect(serialized.hash).toBe(createHash("sha256").update(text).digest("hex"));
      const routing = [...files(encode("a", 7, serialized, {}))].filter(([name]) => /^a-\d/.test(name));
      const packed = Buffer.concat(routing.map(([, bytes]) => bytes));
      expect(gunzipSync(packed).toString()).toBe(`{"serial":7,${text.slice(1)}`);
    }
  });

  test("are the same bytes each time, and the hash does not know the serial", () => {
    const [one, two] = [
      encode("b", 5, serialize(content("x")), {}),
      encode("b", 5, serialize(content("x")), {}),
    ];
    expect(one).toEqual(two);
    const other = encode("b", 6, serialize(content("x")), {});
    expect(other.ok && one.ok && other.index.hash === one.index.hash).toBe(true);
  });

  test("rule 6.3: a missing, cut, changed or swapped piece makes the slot incomplete", () => {
    const whole = files(encode("a", 5, serialize(content("x")), { c: "v" }));
    const other = files(encode("a", 6, serialize(content("y")), { c: "w" }));
    for (const name of whole.keys()) {
      const without = new Map(whole);
      without.delete(name);
      expect(slotA(without)?.published, `without ${name}`).toBeNull();
      const cut = new Map(whole).set(name, Buffer.from(whole.get(name) ?? []).subarray(0, -1 - 1));
      expect(slotA(cut)?.published, `cut ${name}`).toBeNull();
      const swapped = new Map(whole).set(name, other.get(name) ?? Buffer.alloc(0));
      expect(slotA(swapped)?.published, `swapped ${name}`).toBeNull();
    }
  });

  test("a large part is cut into pieces of at most 700 KiB, and one that has no room is refused", () => {
    // Random hex shrinks by half, so 3 MB make three pieces.
    const noise = (bytes: number) => content(randomBytes(bytes).toString("hex"));
    const three = encode("a", 1, serialize(noise(2_000_000)), {});
    const pieces = [...files(three)].filter(([name]) => /^a-\d\.gz$/.test(name));
    expect(pieces.length).toBeGreaterThan(2);
    expect(pieces.every(([, bytes]) => bytes.length <= MAX_SHARD_BYTES)).toBe(true);
    expect(slotA(files(three))?.published).not.toBeNull();
    expect(
      encode("a", 1, serialize(content("x")), { c: randomBytes(1_500_000).toString("hex") }),
    ).toMatchObject({
      ok: false,
      excess: { part: "credentials", bytes: expect.any(Number) },
    });
  });

  test("a part that unpacks to more than a data plane reads is refused, however small it is packed", () => {
    const whole = serialize(content("x"));
    const room = MAX_PART_BYTES - `{"serial":1,`.length + 1;
    expect(encode("a", 1, { ...whole, bytes: room }, {}).ok).toBe(true);
    expect(encode("a", 1, { ...whole, bytes: room + 5 }, {})).toEqual({
      ok: false,
      excess: { part: "routing", bytes: 5, unpacked: true },
    });
    const unpacked = gunzipSync(Buffer.concat([gzipSync("{"), ...whole.members]));
    expect(whole.bytes).toBe(unpacked.length);
  });
});

describe("what is compiled anew", () => {
  const [source] = content("x").objects;
  const policy = { source: source!, webSearch: null, webFetch: null, xSearch: null };
  const full: RoutingContent = {
    ...content("x"),
    policies: { "default/p": { ...policy, callsPerMinute: 1, iterations: 1, parallelCalls: 1 } },
  };
  test("is known to be the same when its entries are", () => {
    expect(isSameContent(full, { ...full, objects: [...full.objects] })).toBe(true);
    expect(isSameContent(full, { ...full, policies: structuredClone(full.policies) })).toBe(true);
  });
  test.for<[string, Partial<RoutingContent>]>([
    ["another schema", { schemaVersion: 2 }],
    ["one object more", { objects: [...full.objects, source!] }],
    ["another object", { objects: [{ ...source!, generation: 2 }] }],
    ["no policy", { policies: {} }],
    ["another policy", { policies: { "default/p": { ...full.policies["default/p"]!, iterations: 2 } } }],
  ])("is not with %s", ([, change]) => {
    expect(isSameContent(full, { ...full, ...change })).toBe(false);
  });
});

describe("the slot that is written next", () => {
  const state = (slot: "a" | "b", serial: number | null, complete = true): SlotState => ({
    slot,
    serial,
    hash: null,
    published: complete && serial !== null ? { routing: { ...content("x"), serial }, credentials: {} } : null,
  });
  test.for([
    { title: "nothing is published", slots: [state("a", null), state("b", null)], settled: null, slot: "a" },
    { title: "one is complete and settled", slots: [state("a", 1), state("b", null)], settled: 1, slot: "b" },
    {
      title: "one is pending, none settled",
      slots: [state("a", 1), state("b", null)],
      settled: null,
      slot: "b",
    },
    {
      title: "a newer one is pending: it is overwritten",
      slots: [state("a", 1), state("b", 2)],
      settled: 1,
      slot: "b",
    },
    { title: "the newer one is settled", slots: [state("a", 1), state("b", 2)], settled: 2, slot: "a" },
    {
      title: "after a restart nobody knows who holds what",
      slots: [state("a", 9), state("b", 2)],
      settled: null,
      slot: "a",
    },
    {
      title: "the newer one is damaged",
      slots: [state("a", 1), state("b", 2, false)],
      settled: null,
      slot: "b",
    },
  ])("where pods acknowledge: $title", ({ slots, settled, slot }) => {
    expect(nextSlot(slots, settled, true)).toBe(slot);
  });

  test("where nobody acknowledges the older one is overwritten", () => {
    expect(nextSlot([state("a", 1), state("b", 2)], null, false)).toBe("a");
    expect(nextSlot([state("a", 3), state("b", 2)], null, false)).toBe("b");
  });

  test("a serial grows also when the clock goes back or the newest slot is damaged", () => {
    expect(nextSerial([state("a", 100), state("b", 200, false)], 50)).toBe(201);
    expect(nextSerial([state("a", null), state("b", null)], 50)).toBe(50);
  });
});
