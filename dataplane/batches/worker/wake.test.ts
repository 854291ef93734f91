/** The bell over a Redis that is slow to answer at the wrong moment: nothing escapes, and it rings again afterwards. */
import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { afterEach, expect, test } from "vitest";
import { openRedis } from "../../store/redis.ts";
import { redisWakeUps } from "./wake-ups.ts";

/** Speaks as much of Redis' protocol as a subscriber hears. */
async function startSubscribable() {
  const sockets = new Set<Socket>();
  const listening = new Set<Socket>();
  const seen = { subscribed: 0, asked: 0, answers: true };
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => socket.destroy());
    socket.on("close", () => {
      sockets.delete(socket);
      listening.delete(socket);
    });
    socket.on("data", (bytes: Buffer) => {
      for (const [, name = ""] of bytes.toString().matchAll(/\*\d+\r\n\$\d+\r\n(\w+)/g)) {
        if (name.toLowerCase() === "info") socket.write("$16\r\nredis_mode:one\r\n\r\n");
        else if (name.toLowerCase() === "hello") socket.write("-ERR unknown command 'HELLO'\r\n");
        else if (name.toLowerCase() !== "subscribe") socket.write("+OK\r\n");
        else {
          seen.asked += 1;
          if (!seen.answers) continue;
          seen.subscribed += 1;
          listening.add(socket);
          socket.write("*3\r\n$9\r\nsubscribe\r\n$14\r\ngapura:batches\r\n:1\r\n");
        }
      }
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    seen,
    url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`,
    breakAll: () => {
      for (const socket of sockets) socket.resetAndDestroy();
    },
    ring: () => {
      for (const socket of sockets)
        socket.write("*3\r\n$7\r\nmessage\r\n$14\r\ngapura:batches\r\n$0\r\n\r\n");
    },
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

test("a subscription that is not answered in time ends nothing, and is made again", async () => {
  const server = await startSubscribable();
  const redis = openRedis(server.url, { commandTimeoutMs: 200, onError: () => {} });
  const wakeUps = redisWakeUps(redis);
  let rung = 0;
  wakeUps.listen(() => (rung += 1));
  closing.push(
    () => redis.disconnect(),
    () => wakeUps.close(),
    () => server.close(),
  );
  /** On a slow machine the first subscription may have been too late for itself already. */
  const ringAgain = (): number => {
    server.ring();
    return rung;
  };
  await expect.poll(ringAgain, { timeout: 10_000 }).toBeGreaterThan(0);
  // As Redis on a busy machine: it takes connections and answers late.
  server.seen.answers = false;
  server.breakAll();
  // A rejection that escapes would fail this file.
  await expect.poll(() => server.seen.asked, { timeout: 10_000 }).toBeGreaterThan(3);
  server.seen.answers = true;
  const { subscribed } = server.seen;
  await expect.poll(() => server.seen.subscribed, { timeout: 10_000 }).toBeGreaterThan(subscribed);
  const before = rung;
  await expect.poll(ringAgain, { timeout: 10_000 }).toBeGreaterThan(before);
});
