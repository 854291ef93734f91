/** Bodies that unpack to much more than they weigh. */
import type { Attack } from "../attack.ts";
import { asked, gzipped, lazily, MiB, quoted, zstandard } from "../bodies.ts";
import { keys } from "../world.ts";
import { BUSY, MAX_BODY, gzip, infer } from "./make.ts";

const letters = lazily(() => gzipped(asked("m-chat", quoted("a", MAX_BODY - 1024))));

export const compressed: readonly Attack[] = [
  infer("chat", "32 MiB of one letter, gzipped, without credit, 120 at once", letters, {
    key: keys.poor,
    parallel: 120,
    headers: gzip,
    expected: [402, ...BUSY],
    short: true,
  }),
  infer("chat", "32 MiB of one letter, gzipped, 60 at once", letters, {
    parallel: 60,
    headers: gzip,
    expected: [200, ...BUSY],
    short: true,
  }),
  infer(
    "chat",
    "32 MiB of one letter, zstandard, 40 at once",
    () => zstandard(asked("m-chat", quoted("a", MAX_BODY - 1024))),
    {
      parallel: 40,
      headers: { "content-encoding": "zstd" },
      expected: [200, ...BUSY],
    },
  ),
  infer("messages", "a gigabyte of spaces, gzipped", () => gzipped(Buffer.alloc(1024 * MiB, 0x20)), {
    headers: gzip,
    parallel: 16,
    expected: [413, ...BUSY],
  }),
  infer(
    "messages",
    "gzip that is cut",
    () => gzipped(asked("m-messages", quoted("b", MiB))).subarray(0, 500),
    {
      headers: gzip,
      expected: [400, ...BUSY],
    },
  ),
];
