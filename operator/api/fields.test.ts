import { expect, test } from "vitest";
import { AMOUNT, byteQuantity, bytesOf, NAME, objectName } from "./fields.ts";

test.each([
  ["0", 0],
  ["1024", 1024],
  ["10Gi", 10_737_418_240],
  ["500Mi", 524_288_000],
  ["1Ki", 1024],
  ["2Ti", 2_199_023_255_552],
  ["3k", 3000],
  ["5G", 5_000_000_000],
])("%s are %i bytes", (text, bytes) => {
  expect(bytesOf(text)).toBe(bytes);
  expect(byteQuantity("Bytes.", "1Gi").safeParse(text).success).toBe(true);
});

test.each(["", "10 Gi", "10GiB", "-1", "1.5Gi", "1e9", "Gi", "9999999Ti"])("%j is refused", (text) => {
  expect(byteQuantity("Bytes.", "1Gi").safeParse(text).success).toBe(false);
});

test.each([AMOUNT, NAME.message])("what a pattern wants is told in words: %s", (message) => {
  expect(message).toMatch(/^must /);
});

test.each(["a", "a.b", "a-b.c-d", "0.1"])("%j is the name of an object", (text) => {
  expect(objectName().safeParse(text).success).toBe(true);
});
test.each(["a..b", "a.-b", "a-.b", ".a", "a.", "A", ""])("%j is none", (text) => {
  expect(objectName().safeParse(text).success).toBe(false);
});
