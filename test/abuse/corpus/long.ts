/** Bodies of few long parts, or of deep ones. */
import type { Attack } from "../attack.ts";
import { asked, listed, MiB, nested, quoted } from "../bodies.ts";
import { BUSY, infer } from "./make.ts";

export const long: readonly Attack[] = [
  infer("messages", "one string of 30 MiB", () => asked("m-messages", quoted("a", 30 * MiB)), {
    expected: [200, ...BUSY],
    short: true,
  }),
  infer(
    "chat",
    "one string of 30 MiB with escaped quotes to a Messages upstream",
    () => asked("m-messages", quoted('\\"', 30 * MiB)),
    {
      parallel: 2,
      expected: [200, ...BUSY],
      short: true,
    },
  ),
  infer(
    "chat",
    "one string of 30 MiB of \\u escapes to a Responses upstream",
    () => asked("m-responses", quoted("\\u00e9", 30 * MiB)),
    {
      parallel: 2,
      expected: [200, ...BUSY],
    },
  ),
  infer("messages", "30 MiB of CJK to a Chat upstream", () => asked("m-chat", quoted("漢字", 10 * MiB)), {
    parallel: 2,
    expected: [200, ...BUSY],
  }),
  infer(
    "messages",
    "30 keys of a megabyte",
    () => asked("m-messages", '"a"', `,${listed("", (n) => `${quoted(`k${n}`, MiB)}:1`, 30, "")}`),
    {
      expected: [200, 400, ...BUSY],
    },
  ),
  infer(
    "messages",
    "30 MiB of white space",
    () => `{${" ".repeat(30 * MiB)}${asked("m-messages", '"a"').slice(1)}`,
    {
      expected: [200, ...BUSY],
    },
  ),
  infer(
    "messages",
    "a byte that is no UTF-8 at the end of 30 MiB",
    () =>
      Buffer.concat([
        Buffer.from(asked("m-messages", quoted("a", 30 * MiB)).slice(0, -6)),
        Buffer.from([0xff]),
      ]),
    {
      expected: [400, ...BUSY],
    },
  ),
  infer(
    "messages",
    "30 MiB that end in the middle",
    () => asked("m-messages", quoted("a", 30 * MiB)).slice(0, -20),
    {
      expected: [400, ...BUSY],
    },
  ),
  infer(
    "messages",
    "40 MiB of short lines of JSON that is none",
    () => listed("{", '"a" 1\n', 5_000_000, "}"),
    {
      expected: [413, "closed", ...BUSY],
    },
  ),
  infer("messages", "a model's name of 30 MiB", () => asked("a".repeat(30 * MiB), '"a"'), {
    expected: [404, 400, ...BUSY],
  }),
  infer("messages", "100,000 arrays in each other", () => asked("m-messages", nested(100_000)), {
    expected: [400, ...BUSY],
    short: true,
  }),
  infer(
    "messages",
    "120 arrays in each other, 100,000 times",
    () => asked("m-messages", '"a"', `,"extra":${listed("[", nested(120), 100_000, "]")}`),
    {
      expected: [200, 400, ...BUSY],
    },
  ),
];
