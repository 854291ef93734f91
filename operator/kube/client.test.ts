import { createServer as createHttpsServer } from "node:https";
import { createServer, type RequestListener } from "node:http";
import {
  type AddressInfo,
  connect,
  createServer as createTcpServer,
  type Server,
  type Socket,
} from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { selfSigned } from "../../test/fakes/certificate.ts";
import type { Access } from "./access.ts";
import { AnswerTooLarge, KubeApi, KubeError } from "./client.ts";
import { NotLeading } from "./lease.ts";

const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});

async function listen(server: Server): Promise<number> {
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  open.push(server);
  return (server.address() as AddressInfo).port;
}

const accessOf = (url: string, token: string): Access => ({
  url,
  proxy: null,
  authorization: `Bearer ${token}`,
  tls: { rejectUnauthorized: false },
  freshForMs: 60_000,
});

async function apiOf(answer: RequestListener, token = () => "one"): Promise<KubeApi> {
  const port = await listen(createServer(answer));
  const api = new KubeApi(async () => accessOf(`http://127.0.0.1:${port}`, token()));
  open.unshift(api);
  return api;
}

test("rule 6.10: what waited for a connection while this process was frozen is not written", async () => {
  let arrived = 0;
  const tls = createHttpsServer(selfSigned(["localhost"]), (_, response) => {
    arrived += 1;
    response.end("{}");
  });
  const tlsPort = await listen(tls);
  // Lets the handshake through only when it is told to.
  const { promise: opened, resolve: letThrough } = Promise.withResolvers<void>();
  const gate = createTcpServer((socket) => {
    void opened.then(() => {
      const inner = connect(tlsPort, "127.0.0.1");
      socket.pipe(inner).pipe(socket);
      socket.on("error", () => inner.destroy());
      inner.on("error", () => socket.destroy());
    });
  });
  const gatePort = await listen(gate);
  const api = new KubeApi(async () => accessOf(`https://127.0.0.1:${gatePort}`, "one"));
  open.unshift(api);
  let isLeading = true;
  const permit = () => {
    if (!isLeading) throw new NotLeading();
  };
  const call = api.call({ method: "POST", path: "/x", body: {}, permit });
  const outcome = call.then(
    () => "written",
    (error: unknown) => (error instanceof NotLeading ? "not leading" : String(error)),
  );
  await sleep(50);
  isLeading = false;
  letThrough();
  expect(await outcome).toBe("not leading");
  expect(arrived).toBe(0);
  isLeading = true;
  expect(await api.call({ method: "POST", path: "/x", body: {}, permit })).toEqual({});
  expect(arrived).toBe(1);
});

test("a proxy that does not answer fails a call within seconds, and the next call asks it again", async () => {
  const tls = createHttpsServer(selfSigned(["localhost"]), (_, response) => void response.end("{}"));
  const tlsPort = await listen(tls);
  let asked = 0;
  const proxy = createServer();
  proxy.on("connect", (_, client: Socket) => {
    asked += 1;
    if (asked === 1) return;
    const inner = connect(tlsPort, "127.0.0.1", () => {
      client.write("HTTP/1.1 200 OK\r\n\r\n");
      client.pipe(inner).pipe(client);
    });
    client.on("error", () => inner.destroy());
    inner.on("error", () => client.destroy());
  });
  const proxyPort = await listen(proxy);
  const access = accessOf(`https://localhost:${tlsPort}`, "one");
  const api = new KubeApi(async () => ({ ...access, proxy: `http://127.0.0.1:${proxyPort}` }));
  open.unshift(api);
  // Left alone it waits for five minutes, longer than this test may take.
  await expect(api.call({ method: "GET", path: "/x" })).rejects.toThrow("Headers Timeout");
  expect(await api.call({ method: "GET", path: "/x" })).toEqual({});
  expect(asked).toBe(2);
}, 30_000);

test("a refused token is read anew, at most once a second", async () => {
  let loads = 0;
  const seen: (string | undefined)[] = [];
  const api = await apiOf(
    (request, response) => {
      seen.push(request.headers.authorization);
      response.writeHead(request.headers.authorization === "Bearer new" ? 200 : 401).end("{}");
    },
    () => {
      loads += 1;
      return loads === 1 ? "old" : "new";
    },
  );
  const call = () => api.call({ method: "GET", path: "/x" }).catch((error: unknown) => error);
  expect(await call()).toMatchObject({ status: 401 });
  await call();
  expect(loads).toBe(1);
  await sleep(1050);
  await call();
  expect([loads, await call()]).toEqual([2, {}]);
  expect(seen.at(-1)).toBe("Bearer new");
});

test.for([
  { header: "7", ms: 7000 },
  { header: "9000", ms: 30_000 },
  { header: "Wed, 21 Oct 2015 07:28:00 GMT", ms: 0 },
  { header: "-1", ms: 0 },
])("retry-after: $header is a wait of $ms ms", async ({ header, ms }) => {
  const api = await apiOf((_, response) => response.writeHead(429, { "retry-after": header }).end("busy"));
  const error: unknown = await api.call({ method: "GET", path: "/x" }).catch((refusal: unknown) => refusal);
  expect(error).toBeInstanceOf(KubeError);
  expect(error).toMatchObject({ status: 429, retryAfterMs: ms });
});

test("what stands in files is read anew once it is stale, and what cannot be read now counts on", async () => {
  let loads = 0;
  const port = await listen(createServer((_, response) => response.end("{}")));
  const api = new KubeApi(async () => {
    loads += 1;
    if (loads === 2) throw new Error("half written");
    return { ...accessOf(`http://127.0.0.1:${port}`, "one"), freshForMs: 1200 };
  });
  open.unshift(api);
  const call = () => api.call({ method: "GET", path: "/x" });
  await Promise.all([call(), call()]);
  expect(loads).toBe(1);
  await sleep(1300);
  expect([await call(), loads]).toEqual([{}, 2]);
  await sleep(1050);
  expect([await call(), loads]).toEqual([{}, 3]);
});

test("a server that ends the connection may mean our certificate: it is read anew", async () => {
  let loads = 0;
  const api = await apiOf(
    (request, response) =>
      request.headers.authorization === "Bearer new" ? response.end("{}") : request.socket.destroy(),
    () => ((loads += 1) === 1 ? "old" : "new"),
  );
  const call = () => api.call({ method: "GET", path: "/x" });
  await expect(call()).rejects.toThrow("other side closed");
  await sleep(1050);
  expect([await call(), loads]).toEqual([{}, 2]);
});

test("a plugin that hangs holds up nobody for long: what was read before counts on", async () => {
  let loads = 0;
  const port = await listen(createServer((_, response) => response.end("{}")));
  const access = { ...accessOf(`http://127.0.0.1:${port}`, "one"), freshForMs: 1_050 };
  const load = () => ((loads += 1) === 1 ? Promise.resolve(access) : new Promise<Access>(() => {}));
  const api = new KubeApi(load, () => {}, 200);
  open.unshift(api);
  const call = () => api.call({ method: "GET", path: "/x" });
  await call();
  await sleep(1_100);
  expect([await call(), loads]).toEqual([{}, 2]);
  const never = new KubeApi(
    () => new Promise(() => {}),
    () => {},
    50,
  );
  open.unshift(never);
  await expect(never.call({ method: "GET", path: "/x" })).rejects.toThrow("could not be read in time");
});

test("a server that hangs keeps nobody who ends for longer than its last calls get", async () => {
  const arrived = Promise.withResolvers<void>();
  const api = await apiOf(() => arrived.resolve());
  const waiting = api.call({ method: "GET", path: "/a" }).catch((error: unknown) => error);
  await arrived.promise;
  api.endWithin(10);
  expect(await waiting).toMatchObject({ name: "AbortError" });
  await expect(api.call({ method: "PUT", path: "/b", body: {} })).rejects.toMatchObject({
    name: "AbortError",
  });
});

test("an answer is read up to 32 MiB: it is refused before the memory of this process is full of it", async () => {
  const mebibyte = Buffer.alloc(1024 * 1024, 32);
  let sent = 0;
  const api = await apiOf((_, response) => {
    response.write("[");
    const more = (error?: Error | null) => {
      if (error !== undefined && error !== null) return;
      sent += 1;
      if (sent > 100) response.end("]");
      else response.write(mebibyte, more);
    };
    more();
  });
  await expect(api.call({ method: "GET", path: "/x" })).rejects.toThrow(AnswerTooLarge);
  expect(sent).toBeLessThan(60);
});

test("an answer without words of the API server's own, as for a definition that is not installed, names what was asked for", async () => {
  const api = await apiOf((_, response) => response.writeHead(404).end("404 page not found\n"));
  const path = "/apis/gapura.dev/v1alpha1/toolpolicies";
  await expect(api.call({ method: "GET", path })).rejects.toThrow(`${path}: status 404`);
  const watching = api.watch({ path, query: {}, idleMs: 1000, signal: AbortSignal.timeout(5000) });
  await expect(watching.next()).rejects.toThrow(`${path}: status 404`);
});
