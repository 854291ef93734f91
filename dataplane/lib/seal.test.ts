import { createCipheriv, randomBytes } from "node:crypto";
import { deflateRawSync } from "node:zlib";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseSealKeys, sealing } from "./seal.ts";

const keyText = (id: string) => `${id}:${randomBytes(32).toString("base64")}`;
const older = keyText("2026-01");
const newer = keyText("2026-11");
const ours = sealing(parseSealKeys(older))("org_a");

/** Any text that UTF-8 can hold. */
const text = fc.string({ unit: "grapheme", maxLength: 2000 });

describe("sealing", () => {
  test("what is sealed opens again, whatever it is", () => {
    fc.assert(
      fc.property(text, (plain) => {
        expect(ours.open(ours.seal(plain))).toBe(plain);
      }),
    );
  });

  test("another organization cannot open it", () => {
    const theirs = sealing(parseSealKeys(older))("org_b");
    fc.assert(
      fc.property(text, (plain) => {
        expect(theirs.open(ours.seal(plain))).toBeNull();
      }),
    );
  });

  test("one changed character anywhere damages it", () => {
    fc.assert(
      fc.property(text, fc.nat(), fc.constantFrom("A", "b", "_", "=", "é"), (plain, at, other) => {
        const sealed = ours.seal(plain);
        const index = at % sealed.length;
        fc.pre(sealed[index] !== other);
        expect(ours.open(sealed.slice(0, index) + other + sealed.slice(index + 1))).toBeNull();
      }),
    );
  });

  test("the same bytes, written otherwise, are damaged", () => {
    const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let written = 0;
    for (const plain of ["", "a", "ab", "abc", "abcd"]) {
      const sealed = ours.seal(plain);
      for (const letter of letters) {
        const other = sealed.slice(0, -1) + letter;
        if (other === sealed) continue;
        // The last letter has bits that are in no byte.
        if (Buffer.from(other, "base64url").equals(Buffer.from(sealed, "base64url"))) written += 1;
        expect(ours.open(other)).toBeNull();
      }
    }
    expect(written).toBeGreaterThan(10);
  });

  test("a part of it, or more than it, is damaged", () => {
    const sealed = ours.seal("some reasoning");
    for (let length = 0; length < sealed.length; length += 1)
      expect(ours.open(sealed.slice(0, length))).toBeNull();
    expect(ours.open(`${sealed}AAAA`)).toBeNull();
    expect(ours.open(`${sealed}\n`)).toBeNull();
  });

  test("arbitrary text opens to nothing and never throws", () => {
    const bytes = fc.uint8Array({ maxLength: 200 }).map((array) => Buffer.from(array).toString("base64url"));
    fc.assert(
      fc.property(fc.oneof(fc.string(), bytes), (garbage) => {
        expect(ours.open(garbage)).toBeNull();
      }),
    );
  });

  test("the same text never seals twice to the same envelope", () => {
    expect(ours.seal("x")).not.toBe(ours.seal("x"));
  });

  test("long text is packed", () => {
    expect(ours.seal("reasoning ".repeat(1000)).length).toBeLessThan(400);
  });

  test("an envelope that unpacks to more than it may is refused", () => {
    const keys = parseSealKeys(older);
    const [{ id, key } = { id: "", key: Buffer.alloc(0) }] = keys;
    const header = Buffer.concat([Buffer.from([1, id.length]), Buffer.from(id)]);
    const iv = randomBytes(12);
    const cipher = createCipheriv("aes-256-gcm", key, iv).setAAD(
      Buffer.concat([header, Buffer.from("org_a")]),
    );
    const bomb = cipher.update(deflateRawSync(Buffer.alloc(64 * 1024 * 1024)));
    cipher.final();
    const envelope = Buffer.concat([header, iv, cipher.getAuthTag(), bomb]).toString("base64url");
    expect(sealing(keys)("org_a").open(envelope)).toBeNull();
  });
});

describe("rotation", () => {
  test("the first key seals and all keys open", () => {
    const both = sealing(parseSealKeys(`${newer},${older}`))("org_a");
    expect(both.open(ours.seal("old"))).toBe("old");
    expect(sealing(parseSealKeys(newer))("org_a").open(both.seal("new"))).toBe("new");
    expect(ours.open(both.seal("new"))).toBeNull();
  });

  test.each([
    ["nothing", ""],
    ["a short key", `a:${randomBytes(16).toString("base64")}`],
    ["no id", `:${randomBytes(32).toString("base64")}`],
    ["no key", "a"],
    ["an id twice", `${older},${older}`],
  ])("%s is no list of keys", (_name, list) => {
    expect(() => parseSealKeys(list)).toThrow(/seal key/);
  });
});
