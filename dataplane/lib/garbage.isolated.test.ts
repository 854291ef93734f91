import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import { countMoved } from "./garbage.ts";

const MIB = 1024 * 1024;
const PIECE = 64 * 1024;

/** The most that buffers took while 512 MiB of them came and went. */
async function peak(each: (bytes: number) => void): Promise<number> {
  const before = process.memoryUsage().arrayBuffers;
  let most = 0;
  for (let at = 0; at < 512 * MIB; at += PIECE) {
    each(Buffer.allocUnsafeSlow(PIECE).length);
    most = Math.max(most, process.memoryUsage().arrayBuffers - before);
    if (at % MIB === 0) await turn();
  }
  return most;
}

test("buffers of contents that are counted go early, and wait for long when they are not", async () => {
  expect(await peak(countMoved)).toBeLessThan(24 * MIB);
  expect(await peak(() => {})).toBeGreaterThan(48 * MIB);
});
