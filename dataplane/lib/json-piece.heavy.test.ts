import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { JsonPiece } from "./json-piece.ts";

const MiB = 1024 ** 2;

test("a value that comes byte by byte takes little more memory than its bytes", () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const used = () => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const before = used();
  const piece = new JsonPiece();
  piece.push(Buffer.from('"'), 0);
  for (let at = 0; at < MiB / 4; at += 1) {
    const byte = Buffer.allocUnsafeSlow(1);
    byte[0] = 0x61;
    piece.push(byte, 0);
  }
  expect(used() - before).toBeLessThan(4 * MiB);
  piece.push(Buffer.from('"'), 0);
  expect(piece.complete).toBe(true);
  expect(JSON.parse(piece.take().toString())).toBe("a".repeat(MiB / 4));
});
