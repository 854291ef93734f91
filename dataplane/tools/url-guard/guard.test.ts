import { once } from "node:events";
import { createServer, isIP, type AddressInfo, type Server } from "node:net";
import fc from "fast-check";
import { request, type Dispatcher } from "undici";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { SocketWatch } from "../../../test/fakes/loopback-only.ts";
import { egressRules } from "./address.ts";
import { guardedDispatcher } from "./dispatcher.ts";
import hostileUrls from "./hostile-urls.json" with { type: "json" };
import { isHostName, isInternalName, judgeUrl } from "./judge-url.ts";
import type { Resolver } from "./resolver.ts";
import { runs } from "../../../test/fakes/runs.ts";

/** A guard that refuses opens no client socket at all. */
let watch: SocketWatch;
/** Connections seen by the listeners on 127.0.0.1, 127.0.0.2 and ::1, all on one port. */
let connectionsSeen = 0;
const listeners: Server[] = [];
let port = 0;

beforeAll(async () => {
  for (const host of ["127.0.0.1", "127.0.0.2", "::1"]) {
    const server = createServer((socket) => {
      connectionsSeen += 1;
      socket.on("error", () => undefined);
      socket.end("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi");
    });
    server.listen(port, host);
    await once(server, "listening");
    port = (server.address() as AddressInfo).port;
    listeners.push(server);
  }
  watch = new SocketWatch();
});
afterAll(() => {
  watch.stop();
  for (const server of listeners) server.close();
});
beforeEach(() => {
  watch.reset();
  connectionsSeen = 0;
});

const dispatchers: Dispatcher[] = [];
afterEach(async () => {
  for (const dispatcher of dispatchers.splice(0)) await dispatcher.destroy();
});

/** Answers in turn; the last answer is repeated. */
function resolverOf(
  answers: Readonly<Record<string, readonly (readonly string[])[]>>,
): Resolver & { asked: string[] } {
  const asked: string[] = [];
  return {
    asked,
    resolve: (name) => {
      const turns = answers[name];
      const answer = turns?.[Math.min(asked.filter((other) => other === name).length, turns.length - 1)];
      asked.push(name);
      return answer === undefined ? Promise.reject(new Error("no such name")) : Promise.resolve(answer);
    },
  };
}

const nobody = resolverOf({});

function guarded(
  resolver: Resolver,
  { allowCidrs = [] as string[], proxy = null as { url: string; resolves: boolean } | null } = {},
): Dispatcher {
  const dispatcher = guardedDispatcher({
    rules: egressRules({ allowCidrs, allowPorts: [port] }),
    resolver,
    proxy,
    signal: AbortSignal.timeout(5_000),
  });
  dispatchers.push(dispatcher);
  return dispatcher;
}

/** True when a request for the URL got an answer. The text is judged first, as every caller of the guard does. */
async function reaches(url: string, dispatcher: Dispatcher): Promise<boolean> {
  if (!judgeUrl(url, egressRules({ allowCidrs: ["127.0.0.0/8", "::1/128"], allowPorts: [port] })).allowed)
    return false;
  try {
    const { body } = await request(url, { dispatcher });
    await body.dump();
    return true;
  } catch {
    return false;
  }
}

/**
 * PORT stands for the listeners' port. Loopback, inner and metadata addresses in every notation, with userinfo,
 * delimiters and control characters, other schemes and ports, and names whose answers (below) lead inside.
 */
const hostile: readonly string[] = hostileUrls;

const innerAnswers: readonly (readonly string[])[] = [
  ["127.0.0.1"],
  ["127.0.0.2"],
  ["::1"],
  ["0.0.0.0"],
  ["::"],
  ["10.0.0.1"],
  ["172.20.0.1"],
  ["192.168.1.1"],
  ["169.254.169.254"],
  ["100.64.0.1"],
  ["198.18.0.1"],
  ["240.0.0.1"],
  ["::ffff:127.0.0.1"],
  ["::ffff:7f00:1"],
  ["64:ff9b::7f00:1"],
  ["2002:7f00:1::"],
  ["2001:0:1::1"],
  ["fe80::1"],
  ["fe80::1%lo"],
  ["fd00::1"],
  ["93.184.216.34", "127.0.0.1"],
  ["127.0.0.1", "93.184.216.34"],
  ["2606:4700::1", "::1"],
  ["93.184.216.34", "::ffff:127.0.0.1"],
  ["8.8.8.8", "10.0.0.1"],
  ["localhost"],
  ["127.1"],
  ["2130706433"],
  [],
  ["168.63.129.16"],
];
const inner = resolverOf({
  ...Object.fromEntries(innerAnswers.map((answer, index) => [`inner-${index}.example`, [answer]])),
  ...Object.fromEntries(
    [
      "localhost",
      "localhost.",
      "foo.localhost",
      "localhost.localdomain",
      "ip6-localhost",
      "ip6-loopback",
    ].map((name) => [name, [["127.0.0.1"]]]),
  ),
});

describe("the guard refuses what leads inside", () => {
  test("the list is long enough", () => {
    expect(new Set(hostile).size).toBeGreaterThanOrEqual(250);
  });
  test.each(hostile)("%j makes no connection", async (template) => {
    const url = template.replaceAll("PORT", String(port));
    expect(await reaches(url, guarded(inner))).toBe(false);
    expect({ opened: watch.opened, connectionsSeen }).toEqual({ opened: 0, connectionsSeen: 0 });
  });

  test("a name whose second answer differs is asked once and reaches only the judged address", async () => {
    const resolver = resolverOf({ "rebind.example": [["127.0.0.2"], ["127.0.0.1"]] });
    const seenAt: string[] = [];
    const note = (socket: { localAddress?: string }) => seenAt.push(socket.localAddress ?? "");
    for (const server of listeners) server.on("connection", note);
    expect(
      await reaches(`http://rebind.example:${port}/`, guarded(resolver, { allowCidrs: ["127.0.0.2/32"] })),
    ).toBe(true);
    for (const server of listeners) server.off("connection", note);
    expect(seenAt).toEqual(["127.0.0.2"]);
    expect(resolver.asked).toEqual(["rebind.example"]);
  });

  test("a connection made for one judged name is judged again for the next look-up", async () => {
    const resolver = resolverOf({ "rebind.example": [["127.0.0.2"], ["127.0.0.1"]] });
    const dispatcher = guarded(resolver, { allowCidrs: ["127.0.0.2/32"] });
    expect(await reaches(`http://rebind.example:${port}/`, dispatcher)).toBe(true);
    // The listener closes each connection, so this one is new and gets the second answer.
    expect(await reaches(`http://rebind.example:${port}/`, dispatcher)).toBe(false);
    expect(connectionsSeen).toBe(1);
  });

  test("proxy settings of the environment do not touch the guard", async () => {
    const before = { ...process.env };
    Object.assign(process.env, {
      HTTP_PROXY: `http://127.0.0.1:${port}`,
      http_proxy: `http://127.0.0.1:${port}`,
      ALL_PROXY: `http://127.0.0.1:${port}`,
      NODE_USE_ENV_PROXY: "1",
    });
    try {
      expect(await reaches(`http://inner-0.example:${port}/`, guarded(inner))).toBe(false);
      expect(connectionsSeen).toBe(0);
    } finally {
      for (const name of ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "NODE_USE_ENV_PROXY"]) {
        if (before[name] === undefined) delete process.env[name];
        else process.env[name] = before[name];
      }
    }
  });

  test("a policy's range is reached by literal and by name", async () => {
    const allowCidrs = ["127.0.0.1/32"];
    expect(await reaches(`http://127.0.0.1:${port}/`, guarded(nobody, { allowCidrs }))).toBe(true);
    const resolver = resolverOf({ "wiki.example": [["127.0.0.1"]] });
    expect(await reaches(`http://wiki.example:${port}/`, guarded(resolver, { allowCidrs }))).toBe(true);
    expect(await reaches(`http://127.0.0.2:${port}/`, guarded(nobody, { allowCidrs }))).toBe(false);
  });
});

describe("the form of a URL", () => {
  const rules = egressRules({ allowCidrs: [], allowPorts: [8443] });
  test.each([
    ["https://example.com/a?b#c", "example.com", 443],
    ["HTTP://Example.COM", "example.com", 80],
    ["https://example.com.:443/", "example.com.", 443],
    ["http://example.com:443/", "example.com", 443],
    ["https://bücher.example/", "xn--bcher-kva.example", 443],
    ["https://例え.テスト.example:8443/パス", "xn--r8jz45g.xn--zckzah.example", 8443],
    ["https://fa.example/wiki/\u0645\u06cc\u200c\u062e?a=\u00a0", "fa.example", 443],
    ["http://8.8.8.8/", "8.8.8.8", 80],
    ["http://[2606:4700::1111]/", "2606:4700::1111", 80],
    ["http://under_score.example/", "under_score.example", 80],
  ])("%s is plain", (url, host, expectedPort) => {
    expect(judgeUrl(url, rules)).toMatchObject({ allowed: true, host, port: expectedPort });
  });

  test("a port that no rule names is refused, unless the address decides", () => {
    const refused = { allowed: false, reason: "port not allowed" };
    expect(judgeUrl("http://a.example:8080/", rules)).toMatchObject(refused);
    const inside = egressRules({ allowCidrs: ["10.0.0.0/8"], allowPorts: [], anyPortInside: true });
    expect(judgeUrl("http://a.example:8080/", inside)).toMatchObject({ allowed: true, port: 8080 });
  });

  test("a URL has 4,096 characters at most, and a name 253", () => {
    const url = "https://a.example/";
    const long = (length: number) => url + "a".repeat(length - url.length);
    expect(judgeUrl(long(4096), rules)).toMatchObject({ allowed: true });
    expect(judgeUrl(long(4097), rules)).toMatchObject({ allowed: false, reason: "URL too long" });
    const labels = `${"a".repeat(63)}.`.repeat(3);
    const name = (length: number) => labels + "b".repeat(length - labels.length);
    expect([isHostName(name(253)), isHostName(`${name(253)}.`), isHostName(name(254))]).toEqual([
      true,
      true,
      false,
    ]);
  });

  test("what is no URL at all is told from what is refused", () => {
    expect(judgeUrl("not a url", rules)).toMatchObject({ allowed: false, malformed: true });
    expect(judgeUrl("ftp://example.com/", rules)).toMatchObject({ allowed: false, malformed: false });
  });

  test.each([
    "localhost",
    "a.localhost",
    "metadata.google.internal",
    "wiki",
    "a.svc",
    "kubernetes.default.svc.cluster.local",
    "x.home.arpa.",
    "printer.local",
  ])("a proxy that resolves is never asked for %s", (name) => {
    expect(isInternalName(name)).toBe(true);
  });
  test.each(["example.com", "localhost.example.com", "internal.example"])(
    "it may be asked for %s",
    (name) => {
      expect(isInternalName(name)).toBe(false);
    },
  );
});

describe("differences between URL parsers", () => {
  /** The authority as a simple RFC 3986 reader sees it: RFC 3986 appendix B. */
  const rfc3986Host = (text: string) => {
    const authority = /^(?:[^:/?#]+:)?(?:\/\/([^/?#]*))?/.exec(text)?.[1] ?? "";
    const host = authority.slice(authority.lastIndexOf("@") + 1);
    return host.replace(/:\d*$/, "").toLowerCase();
  };
  /** Curl's older habit: the first "@" ends the userinfo. */
  const firstAtHost = (text: string) => {
    const authority = /^[a-z]+:\/\/([^/?#\\]*)/i.exec(text)?.[1] ?? "";
    return (authority.split("@")[1] ?? authority).replace(/:\d*$/, "").toLowerCase();
  };
  const piece = fc.oneof(
    fc.constantFrom(
      "127.0.0.1",
      "public.example",
      "0x7f.1",
      "2130706433",
      "[::1]",
      "[::ffff:7f00:1]",
      "localhost",
      "８.8.8.8",
      "bücher.example",
      ":",
      ":80",
      ":443",
      "@",
      "\\",
      "/",
      "//",
      "?",
      "#",
      "%40",
      "%2f",
      "%00",
      "\t",
      "\n",
      " ",
      ".",
      "..",
      "。",
      "\u00ad",
      "a",
      "user",
      ";",
      "&",
      "[",
      "]",
      "%25",
      "xn--",
      "é",
      "\u202e",
    ),
    fc.string({ unit: "binary", maxLength: 3 }),
  );
  const text = fc
    .tuple(
      fc.constantFrom("http://", "https://", "http:/", "HTTP://", "http:", "//", "http:\\\\"),
      fc.array(piece, { minLength: 1, maxLength: 7 }),
    )
    .map(([scheme, pieces]) => scheme + pieces.join(""));
  const rules = egressRules({ allowCidrs: [], allowPorts: [] });

  test("what is allowed is read alike by every parser, is on an open port, and is no inner literal", () => {
    fc.assert(
      fc.property(text, (url) => {
        const verdict = judgeUrl(url, rules);
        if (!verdict.allowed) return;
        const bare = (host: string) => host.replace(/^\[|\]$/g, "");
        for (const read of [rfc3986Host, firstAtHost]) {
          const host = bare(read(url));
          // Names beyond ASCII and IPv6 literals are rewritten in a canonical form, so the texts differ.
          // oxlint-disable-next-line no-control-regex -- the ASCII range
          const comparable = /^[\u0000-\u007f]*$/.test(host) && isIP(host) !== 6;
          expect(comparable ? host : verdict.host).toBe(verdict.host);
        }
        expect([80, 443]).toContain(verdict.port);
        expect(verdict.literal ? isIP(verdict.host) > 0 : isHostName(verdict.host)).toBe(true);
        expect(verdict.literal && /^(127\.|10\.|::1$|::ffff)/.test(verdict.host)).toBe(false);
        // Reading what was understood once more changes nothing.
        expect(judgeUrl(verdict.url.href, rules)).toMatchObject({
          allowed: true,
          host: verdict.host,
          port: verdict.port,
        });
      }),
      { numRuns: runs(20_000) },
    );
  });
});
