import { expect, test } from "vitest";
import { MAX_SAMPLE_CHARACTERS, TextSample } from "./sample.ts";

function sampleOf(texts: Iterable<string>): TextSample {
  const sample = new TextSample();
  for (const text of texts) sample.add(text);
  return sample;
}
const kept = (sample: TextSample) => sample.kept.join("");

test("up to 256 Ki characters everything is kept as it came", () => {
  const texts = ["a", "", "b".repeat(MAX_SAMPLE_CHARACTERS - 2), "c"];
  const sample = sampleOf(texts);
  expect(sample.kept).toEqual(texts.filter((text) => text !== ""));
  expect([sample.characters, sample.factor]).toEqual([MAX_SAMPLE_CHARACTERS, 1]);
});

test("of more, no more than that is kept, however it comes", () => {
  const numbered = Array.from({ length: 300_000 }, (_, index) => String(index).padStart(7, "0"));
  const parts = sampleOf(numbered);
  const whole = sampleOf([numbered.join("")]);
  expect(parts.kept).toEqual(whole.kept);
  expect(parts.characters).toBe(2_100_000);
  expect(kept(parts).length).toBeLessThanOrEqual(MAX_SAMPLE_CHARACTERS);
  expect(kept(parts).length).toBeGreaterThan(MAX_SAMPLE_CHARACTERS / 2 - 1024);
  expect(parts.factor).toBeCloseTo(2_100_000 / kept(parts).length, 10);
});

test.each([MAX_SAMPLE_CHARACTERS + 1, 300_000, 1_000_001, 40_000_000])(
  "what is kept of %d characters stands all over them",
  (length) => {
    const half = Math.floor(length / 2);
    const sample = sampleOf(["a".repeat(half), "b".repeat(length - half)]);
    const text = kept(sample);
    expect(text.length).toBeLessThanOrEqual(MAX_SAMPLE_CHARACTERS);
    const share = text.split("a").length / text.length;
    expect(Math.abs(share - 0.5)).toBeLessThan(0.02);
    expect(Math.abs(sample.factor * text.length - length)).toBeLessThan(1);
  },
);
