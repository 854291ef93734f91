/** What HTTP lets a connection do. */
import { setTimeout as sleep } from "node:timers/promises";
import { dialectPath } from "../../../dataplane/dialects/dialect.ts";
import type { Attack } from "../attack.ts";
import { MiB } from "../bodies.ts";
import { keys } from "../world.ts";
import { BUSY, raw } from "./make.ts";

const head = (path: string, key: string, more: readonly string[]) =>
  [`POST ${path} HTTP/1.1`, "host: abuse", `authorization: Bearer ${key}`, ...more, "", ""].join("\r\n");

const trickled = head(dialectPath.messages, keys.rich, [
  "content-type: application/json",
  "content-length: 1000000",
]);
export const connections: readonly Attack[] = [
  raw(
    "a body that is announced and never sent, without credit, 200 at once",
    { parallel: 200, expected: [402, ...BUSY], short: true },
    async (write) => {
      const length = `content-length: ${30 * MiB}`;
      write(head(dialectPath.messages, keys.poor, ["content-type: application/json", length]));
    },
  ),
  raw(
    "a body that comes by a byte each 100 ms",
    { parallel: 200, expected: [408, "closed", ...BUSY] },
    async (write) => {
      write(trickled);
      for (let sent = 0; sent < 600 && write(" "); sent += 1) await sleep(100);
    },
  ),
  raw("chunks of one byte", { parallel: 20, expected: [400, 413, "closed", ...BUSY] }, async (write) => {
    write(
      head(dialectPath.messages, keys.rich, ["content-type: application/json", "transfer-encoding: chunked"]),
    );
    for (let sent = 0; sent < 200 && write("1\r\na\r\n".repeat(1_000)); sent += 1) await sleep(1);
    write("0\r\n\r\n");
  }),
  raw(
    "a thousand requests in one packet",
    { parallel: 8, expected: [200, 401, 429, "closed", 503] },
    async (write) => {
      write("GET /v1/models HTTP/1.1\r\nhost: abuse\r\n\r\n".repeat(1_000));
    },
  ),
  raw("connections that say nothing", { parallel: 500, expected: [408, "closed"] }, async () => {}),
];
