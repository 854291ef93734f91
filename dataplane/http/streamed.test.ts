import { once } from "node:events";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { startTestServer } from "../../test/fakes/test-server.ts";
import type { Routes } from "./route.ts";
import { takenFrom } from "./stalled-clients.ts";
import { streamed } from "./streamed.ts";

test("a HEAD has the headers of what a GET streams, and reads nothing of it", async () => {
  let read = 0;
  async function* contents() {
    for (const piece of ["one ", "two"]) {
      read += 1;
      yield piece;
    }
  }
  const routes: Routes = (app) => {
    app.get("/v1/pieces", { config: { access: "none" } }, (request, reply) =>
      reply
        .type("text/csv")
        .header("content-length", "7")
        .send(streamed(request, reply, contents)),
    );
  };
  await using server = await startTestServer([routes]);
  const told = ({ status, headers }: Response) => [
    status,
    headers.get("content-type"),
    headers.get("content-length"),
  ];
  const head = await server.fetch("/v1/pieces", { method: "HEAD" });
  expect(await head.text()).toBe("");
  const whole = await server.fetch("/v1/pieces");
  // The GET came later on, so that a HEAD would have read by now.
  expect([await whole.text(), read]).toEqual(["one two", 2]);
  expect(told(head)).toEqual(told(whole));
});

const MiB = 1024 * 1024;

test("of what a client does not take no more than one piece is read", async () => {
  let read = 0;
  let taken = () => 0;
  async function* contents() {
    for (let piece = 0; piece < 64; piece += 1) {
      read += MiB;
      yield Buffer.alloc(MiB, "a");
    }
  }
  const routes: Routes = (app) => {
    app.get("/v1/pieces", { config: { access: "none" } }, (request, reply) => {
      taken = () => takenFrom(request.raw.socket);
      return reply.header("content-length", 64 * MiB).send(streamed(request, reply, contents));
    });
  };
  await using server = await startTestServer([routes]);
  const client = connect(server.port, "127.0.0.1");
  client.write("GET /v1/pieces HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
  // What the client's side and the kernel take is not ours.
  await expect.poll(() => read).toBeGreaterThan(0);
  for (let before = -1; read > before; await sleep(200)) before = read;
  expect(read - taken()).toBeLessThanOrEqual(MiB);
  let came = 0;
  client.on("data", (bytes) => (came += bytes.length));
  await once(client, "close");
  expect([read, came > 64 * MiB]).toEqual([64 * MiB, true]);
});
