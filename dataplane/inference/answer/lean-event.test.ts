import { afterEach, expect, test, vi } from "vitest";
import { JsonReader } from "../../lib/json-reader.ts";
import { leanData } from "./lean-event.ts";

afterEach(() => vi.restoreAllMocks());

test("unread members within each other are looked through once for their blobs", () => {
  const text = "a".repeat(10_000);
  const nested = `${'{"logprobs":'.repeat(100)}{"encrypted_content":"blob","x":"${text}"}${"}".repeat(100)}`;
  const data = `{"type":"response.new","new":${nested}}`;
  const bytes = Buffer.from(`data: ${data}\n\n`);
  const skips = vi.spyOn(JsonReader.prototype, "skip");
  const places = {
    start: 0,
    end: bytes.length,
    nameStart: 0,
    nameEnd: 0,
    dataStart: 6,
    dataEnd: bytes.length - 2,
    dataLines: 1,
    closed: true,
  };
  const lean = leanData(bytes, places, { dialect: "responses", isRelayed: true });
  expect(lean.isRead).toBe(true);
  expect(lean.body.toString()).toBe(data);
  // The outermost member, and the texts in the event.
  expect(skips.mock.calls.length).toBeLessThan(10);
});
