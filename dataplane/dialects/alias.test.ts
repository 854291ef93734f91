import fc from "fast-check";
import { expect, test } from "vitest";
import { aliasOfChatId, aliasOfId, aliasOfName } from "./alias.ts";

test("rule 2.8: plain ids and names are kept", () => {
  expect(aliasOfId("toolu_01-A")).toBe("toolu_01-A");
  expect(aliasOfName("x".repeat(64))).toBe("x".repeat(64));
});

test("rule 2.8: names with the same first 64 characters do not collide", () => {
  expect(aliasOfName(`${"n".repeat(64)}a`)).not.toBe(aliasOfName(`${"n".repeat(64)}b`));
});

test("rule 2.8: every alias is plain, and its own alias", () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 200 }), (text) => {
      for (const alias of [aliasOfId, aliasOfName]) {
        expect(alias(text)).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
        expect(alias(alias(text))).toBe(alias(text));
      }
    }),
  );
});

test("Chat upstreams take ids of 40 characters", () => {
  expect(aliasOfChatId("c".repeat(40))).toBe("c".repeat(40));
  expect(aliasOfChatId("c".repeat(41))).toMatch(/^call_[0-9a-f]{32}$/);
  expect(aliasOfChatId("c".repeat(41))).not.toBe(aliasOfChatId("c".repeat(42)));
});
