import { createServer } from "node:http";
import { connect, type AddressInfo, type Socket } from "node:net";
import { expect, test } from "vitest";
import { sampleKeys } from "../../test/fakes/sample-snapshot.ts";
import { startTestServer, statusOn } from "../../test/fakes/test-server.ts";
import { ApiError } from "../lib/api-error.ts";
import { boundChunks } from "./chunked-bodies.ts";
import { inferenceRoutes } from "./routes/inference.ts";

const MiB = 1024 * 1024;
const text = JSON.stringify({ model: "m", input: "abcdefgh".repeat(8_000) });
const inChunksOf = (bytes: number) =>
  Array.from({ length: Math.ceil(text.length / bytes) }, (_, n) => {
    const chunk = text.slice(n * bytes, (n + 1) * bytes);
    return `${chunk.length.toString(16)}\r\n${chunk}\r\n`;
  }).join("");

function post(port: number, path: string, body: string): Socket {
  const socket = connect(port, "127.0.0.1").on("error", () => {});
  socket.write(
    `POST ${path} HTTP/1.1\r\nhost: x\r\nx-api-key: ${sampleKeys.inference}\r\n` +
      `content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n`,
  );
  socket.write(`${body}0\r\n\r\n`);
  return socket;
}

test("a body in chunks of one byte arrives whole, takes its turns, and little memory", async () => {
  const bodies: Buffer[] = [];
  await using server = await startTestServer([
    inferenceRoutes({
      meter: { open: () => Promise.reject(new Error("not metered here")) },
      serve: ({ body }) => {
        bodies.push(body);
        return Promise.reject(new ApiError("invalid_request", "seen"));
      },
    }),
  ]);
  const before = process.memoryUsage.rss();
  const began = performance.now();
  const socket = post(server.port, "/v1/responses", inChunksOf(1));
  expect(await statusOn(socket)).toBe("400");
  expect(bodies[0]?.toString()).toBe(text);
  // Six reads of 64 KiB, most of which cost what 11 MiB do.
  expect(performance.now() - began).toBeGreaterThan(400);
  expect(process.memoryUsage.rss() - before).toBeLessThan(64 * MiB);
  socket.destroy();
});

test.each([
  { bytes: 1, pieces: 16 },
  { bytes: 100, pieces: 16 },
  { bytes: 1_025, pieces: 63 },
  { bytes: 20_000, pieces: 4 },
])("a body in chunks of $bytes waits for its reader in few pieces", async ({ bytes, pieces }) => {
  const { promise: body, resolve } = Promise.withResolvers<Buffer[]>();
  const server = createServer((request, response) => {
    // Long enough for all of it to wait, so far as Node lets it.
    setTimeout(() => {
      const seen: Buffer[] = [];
      request.on("data", (piece: Buffer) => seen.push(piece));
      request.on("end", () => {
        response.end();
        resolve(seen);
      });
    }, 100);
  });
  boundChunks(server);
  server.listen(0, "127.0.0.1");
  await expect.poll(() => server.listening).toBe(true);
  const socket = post((server.address() as AddressInfo).port, "/", inChunksOf(bytes));
  const seen = await body;
  expect(Buffer.concat(seen).toString()).toBe(text);
  expect(seen.length).toBeLessThanOrEqual(pieces);
  socket.destroy();
  server.close();
});
