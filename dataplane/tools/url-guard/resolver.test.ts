import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { dnsResolver, resolverAsSystem, UnresolvedName } from "./resolver.ts";

const A = 1;
const AAAA = 28;
/** What the server knows; a name that is missing gets no answer at all. */
const zone: Readonly<Record<string, Readonly<Partial<Record<number, readonly (readonly number[])[]>>>>> = {
  "both.example": {
    [A]: [
      [192, 0, 2, 1],
      [192, 0, 2, 2],
    ],
    [AAAA]: [[0x20, 0x01, 0x0d, 0xb8, ...Array<number>(11).fill(0), 1]],
  },
  "four.example": { [A]: [[192, 0, 2, 3]] },
  "none.example": {},
};
let server: Socket;

/** A name server for the zone: enough of RFC 1035 to answer address questions. */
beforeAll(async () => {
  server = createSocket("udp4", (message, peer) => {
    const labels: string[] = [];
    let at = 12;
    for (let size = message[at] ?? 0; size > 0; size = message[at] ?? 0) {
      labels.push(message.toString("latin1", at + 1, at + 1 + size));
      at += 1 + size;
    }
    const records = zone[labels.join(".").toLowerCase()];
    if (records === undefined) return;
    const type = message.readUInt16BE(at + 1);
    const answers = (records[type] ?? []).map((address) =>
      Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 0, 0, address.length, ...address]),
    );
    const head = Buffer.alloc(12);
    head.writeUInt16BE(message.readUInt16BE(0), 0);
    head.writeUInt16BE(0x8180, 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt16BE(answers.length, 6);
    server.send(Buffer.concat([head, message.subarray(12, at + 5), ...answers]), peer.port, peer.address);
  });
  server.bind(0, "127.0.0.1");
  await once(server, "listening");
});
afterAll(() => server.close());

const resolve = (name: string, signal = AbortSignal.timeout(5_000)) =>
  dnsResolver([`127.0.0.1:${server.address().port}`]).resolve(name, signal);

describe("the resolver", () => {
  test("gives every address of both families", async () => {
    expect(await resolve("both.example")).toEqual(["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
    expect(await resolve("four.example")).toEqual(["192.0.2.3"]);
  });
  test("a name without addresses is an error", async () => {
    await expect(resolve("none.example")).rejects.toThrow("name does not resolve (ENODATA)");
  });
  test("the machine's hosts file is not read", async () => {
    await expect(resolve("localhost", AbortSignal.timeout(300))).rejects.toThrow(/timeout|resolve/);
  });
  test("a silent server is given up with the caller's reason", async () => {
    const started = performance.now();
    await expect(resolve("silent.example", AbortSignal.timeout(100))).rejects.toThrow(/timeout/);
    expect(performance.now() - started).toBeLessThan(2_000);
  });
});

describe("as the system resolves", () => {
  test("names of the hosts file are known", async () => {
    const found = await resolverAsSystem().resolve("localhost", AbortSignal.timeout(5_000));
    expect(found.length).toBeGreaterThan(0);
    for (const address of found) expect(["127.0.0.1", "::1"]).toContain(address);
  });

  test("nobody waits for it beyond the signal", async () => {
    await expect(resolverAsSystem().resolve("localhost", AbortSignal.abort())).rejects.toThrow("aborted");
  });

  test("a name has one look-up at a time, however many wait for it", async () => {
    const asked: string[] = [];
    const ends: ((addresses: readonly string[]) => void)[] = [];
    const resolver = resolverAsSystem((name) => {
      asked.push(name);
      return new Promise((resolved) => ends.push(resolved));
    });
    const signal = AbortSignal.timeout(5_000);
    const impatient = new AbortController();
    const waiting = [resolver.resolve("a.svc", signal), resolver.resolve("a.svc", signal)];
    const gone = resolver.resolve("a.svc", impatient.signal);
    impatient.abort();
    await expect(gone).rejects.toThrow(UnresolvedName);
    ends[0]?.(["10.0.0.1"]);
    expect(await Promise.all(waiting)).toEqual([["10.0.0.1"], ["10.0.0.1"]]);
    expect(asked).toEqual(["a.svc"]);
    const again = resolver.resolve("a.svc", signal);
    ends[1]?.(["10.0.0.2"]);
    expect(await again).toEqual(["10.0.0.2"]);
  });

  test("its fault is told with the system's word for it", async () => {
    const fault = Object.assign(new Error("getaddrinfo EAI_AGAIN a.svc"), { code: "EAI_AGAIN" });
    const resolver = resolverAsSystem(() => Promise.reject(fault));
    await expect(resolver.resolve("a.svc", AbortSignal.timeout(5_000))).rejects.toThrow(
      "name does not resolve (EAI_AGAIN)",
    );
  });
});
