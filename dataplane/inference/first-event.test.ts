/** A client waits for the first event: that one is sent before the other events of the same packet are read. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { callOf, routeTo, snapshotOf, upstreamOf } from "../../test/fakes/inference.ts";
import { bodyOf, hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { dialects, type Dialect } from "../dialects/dialect.ts";

const { fake, serve } = await serveOneUpstream();

async function streamed(client: Dialect, upstream: Dialect, url: string) {
  const snapshot = snapshotOf([routeTo([upstreamOf(url, upstream)])]);
  const call = callOf(client, snapshot, bodyOf(client, { stream: true }));
  await serve(call);
  return call.sink;
}

test.each(
  dialects.flatMap((client) =>
    dialects.flatMap((upstream) =>
      (["one HTTP chunk", "one for each event"] as const).map(
        (chunks) => [client, upstream, chunks] as const,
      ),
    ),
  ),
)("a %s client of a %s upstream, whose packet is %s", async (client, upstream, chunks) => {
  fake.next(hello);
  const { text } = await streamed(upstream, upstream, fake.url);
  const events = text.split(/(?<=\n\n)/);
  const server = createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const piece of chunks === "one HTTP chunk" ? [text] : events) response.write(piece);
    response.end();
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  try {
    const { port } = server.address() as AddressInfo;
    const { pieces } = await streamed(client, upstream, `http://127.0.0.1:${port}`);
    const told = pieces.map(String);
    // Conversion reads all events of a chunk together. The last piece waits for the charge.
    const isTogether = client !== upstream && chunks === "one HTTP chunk";
    expect(told.length).toBe(isTogether ? 2 : 3);
    if (isTogether) return expect(told[0]).toMatch(/Hello[^]*reader/);
    expect(told[0]).not.toContain("Hello");
    expect(told[1]).toMatch(/Hello[^]*reader/);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
