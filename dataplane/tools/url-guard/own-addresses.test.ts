import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, test, vi } from "vitest";
import { request } from "undici";
import { egressRules } from "./address.ts";
import { guardedDispatcher } from "./dispatcher.ts";
import { OwnUnknown, ownAddresses } from "./own-addresses.ts";
import type { OwnPlace } from "./own-places.ts";
import type { LookUp } from "./resolver.ts";

const nobody: LookUp = () => Promise.reject(new Error("no such name"));
const local = () => ["192.168.7.2", "fe80::1%eth0"];
const own = (places: readonly OwnPlace[], lookUp = nobody) => ownAddresses(places, lookUp, local);

describe("on one machine each listener is closed", () => {
  test("at its address and port, and no other port of the address", async () => {
    const held = own([{ host: "127.0.0.1", port: 9090 }]);
    expect(await held.holds("127.0.0.1", 9090)).toBe(true);
    expect(await held.holds("127.0.0.1", 9400)).toBe(false);
    expect(await held.holds("127.0.0.2", 9090)).toBe(false);
  });

  test("one for all addresses is closed at every address of the machine", async () => {
    const held = own([{ host: "0.0.0.0", port: 9090 }]);
    for (const address of ["127.0.0.1", "127.9.9.9", "::1", "192.168.7.2"])
      expect([address, await held.holds(address, 9090)]).toEqual([address, true]);
    expect(await held.holds("192.168.7.3", 9090)).toBe(false);
    expect(await held.holds("192.168.7.2", 9091)).toBe(false);
  });

  test("however the address is written", async () => {
    const held = own([{ host: "[fd00::5]", port: 6379 }]);
    expect(await held.holds("fd00:0:0::5", 6379)).toBe(true);
  });

  test("as soon as it is there", async () => {
    const listeners: OwnPlace[] = [];
    const held = own(listeners);
    expect(await held.holds("127.0.0.1", 9090)).toBe(false);
    listeners.push({ host: "127.0.0.1", port: 9090 });
    expect(await held.holds("127.0.0.1", 9090)).toBe(true);
  });
});

describe("names", () => {
  test("stand for what they resolve to", async () => {
    const held = own([{ host: "gapura-pods", port: null }], async () => ["10.1.0.7", "10.1.0.8"]);
    expect(await held.holds("10.1.0.8", 80)).toBe(true);
    expect(await held.holds("10.1.0.9", 80)).toBe(false);
    expect(await held.holdsName("gapura-pods.", 443, "org_a")).toBe(true);
    expect(await held.holdsName("alias.of.a.pod", 443, "org_a"), "whatever resolves to it").toBe(true);
  });

  test("one that resolves to nothing here is not ours, one that does not resolve in time might be", async () => {
    const places = [{ host: "10.1.0.7", port: null }];
    for (const owner of ["org_a", null]) {
      expect(await own(places).holdsName("nothing.example", 443, owner)).toBe(false);
      const late = own(places, () => Promise.withResolvers<never>().promise);
      await expect(late.holdsName("late.example", 443, owner)).rejects.toThrow(OwnUnknown);
    }
  }, 10_000);

  test("those that one owner's models give take one thread, and do not hold up another's", async () => {
    const asked: string[] = [];
    const ends = new Map<string, () => void>();
    const held = own([{ host: "10.1.0.7", port: null }], (name) => {
      asked.push(name);
      return new Promise((resolve) => ends.set(name, () => resolve(["10.1.0.7"])));
    });
    const holds = (name: string, owner: string | null) =>
      held.holdsName(name, 443, owner).catch((error: unknown) => (error as Error).name);
    const slow = Array.from({ length: 10 }, (_, index) => holds(`slow${index}.example`, "org_a"));
    await vi.waitFor(() => expect(asked).toEqual(["slow0.example"]));
    const [other, third] = [holds("other.example", "org_b"), holds("third.example", "org_c")];
    const operators = holds("proxy.example", null);
    await vi.waitFor(() =>
      expect(asked.toSorted()).toEqual(["other.example", "proxy.example", "slow0.example"]),
    );
    ends.get("other.example")?.();
    await vi.waitFor(() => expect(asked).toContain("third.example"));
    ends.get("third.example")?.();
    ends.get("proxy.example")?.();
    expect(await Promise.all([other, third, operators])).toEqual([true, true, true]);
    expect(await Promise.all(slow)).toEqual(slow.map(() => "OwnUnknown"));
    // A thread that is still taken is not given to the next one.
    expect(asked).toHaveLength(4);
  }, 10_000);

  test("each of ours has one look-up at a time, however long its server is silent", async () => {
    vi.useFakeTimers();
    try {
      let asked = 0;
      const held = own([{ host: "postgres", port: null }], () => {
        asked += 1;
        return Promise.withResolvers<never>().promise;
      });
      for (let second = 0; second < 60; second += 1) {
        const holding = held.holds("10.1.0.7", 80);
        await vi.advanceTimersByTimeAsync(2_000);
        expect(await holding).toBe(true);
      }
      expect(asked).toBe(1);
    } finally {
      vi.useRealTimers();
    }
  });

  test("one that never resolved closes what only a policy opens", async () => {
    const held = own([{ host: "postgres", port: null }]);
    expect(await held.holds("10.1.0.7", 80)).toBe(true);
    expect(await held.holds("93.184.216.34", 80), "the public internet stays open").toBe(false);
  });

  test("one that resolved before keeps its addresses while it does not", async () => {
    let fails = false;
    const held = own([{ host: "postgres", port: null }], () =>
      fails ? nobody("postgres") : Promise.resolve(["10.1.0.7"]),
    );
    expect(await held.holds("10.1.0.7", 80)).toBe(true);
    fails = true;
    expect(await held.holds("10.1.0.7", 80)).toBe(true);
    expect(await held.holds("10.1.0.9", 80)).toBe(false);
  });
});

describe("the guard", () => {
  const open: Server[] = [];
  afterEach(() => {
    for (const server of open.splice(0)) server.close();
  });
  const listen = async () => {
    const server = createServer((_, response) => response.end("secret"));
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    open.push(server);
    return (server.address() as AddressInfo).port;
  };
  const ask = async (
    url: string,
    ownPort: number,
    proxy: { readonly url: string; readonly resolves: boolean } | null = null,
    lookUp = nobody,
  ) => {
    const port = Number(new URL(url).port);
    const dispatcher = guardedDispatcher({
      rules: egressRules({ allowCidrs: ["127.0.0.0/8"], allowPorts: [port] }),
      resolver: { resolve: async () => ["127.0.0.1"] },
      proxy,
      signal: AbortSignal.timeout(5000),
      own: own([{ host: "127.0.0.1", port: ownPort }], lookUp),
    });
    try {
      return await (await request(url, { dispatcher })).body.text();
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    } finally {
      await dispatcher.destroy();
    }
  };

  test("the finding: allowCIDRs of loopback and the ops port read /config/dump; by literal, name and proxy", async () => {
    const [ops, other] = [await listen(), await listen()];
    const refused = "an address of the gateway itself";
    expect(await ask(`http://127.0.0.1:${ops}/config/dump`, ops)).toBe(refused);
    expect(await ask(`http://rebound.example:${ops}/config/dump`, ops)).toBe(refused);
    expect(await ask(`http://127.0.0.1:${other}/`, ops)).toBe("secret");
    const proxy = { url: `http://127.0.0.1:${ops}`, resolves: false };
    expect(await ask(`http://127.0.0.1:${other}/`, ops, proxy)).toBe(`the proxy is ${refused}`);
  });

  test("a proxy is not asked for a name that might be ours", async () => {
    const server = createServer();
    const connects: string[] = [];
    server.on("connect", (request, socket) => {
      connects.push(request.url ?? "");
      socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    open.push(server);
    const proxy = { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, resolves: true };
    const late: LookUp = () => Promise.withResolvers<never>().promise;
    expect(await ask("http://late.example:8080/", 9090, proxy, late)).toMatch(/cannot be told/);
    expect(connects).toEqual([]);
    expect(await ask("http://elsewhere.example:8080/", 9090, proxy)).toBe("proxy answered 403");
    expect(connects).toEqual(["elsewhere.example:8080"]);
  }, 10_000);
});
