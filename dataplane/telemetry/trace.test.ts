import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { endSpan, startRequestSpan, startSpan, startTracing } from "./trace.ts";

test("without an endpoint every span is null", () => {
  expect(startRequestSpan("request", {})).toBe(null);
  const attributes = () => {
    throw new Error("nobody asks for them");
  };
  expect(startSpan("chat alpha", null, attributes)).toBe(null);
  endSpan(null);
});

test("with an endpoint spans arrive there, children of the caller's trace", async () => {
  const bodies: string[] = [];
  const collector = createServer((request, response) => {
    let body = "";
    request.on("data", (bytes: Buffer) => (body += bytes.toString()));
    request.on("end", () => {
      bodies.push(`${request.url} ${body}`);
      response.writeHead(200, { "content-type": "application/json" }).end("{}");
    });
  });
  await new Promise<void>((resolve) => collector.listen(0, "127.0.0.1", resolve));
  const { port } = collector.address() as AddressInfo;
  const stop = await startTracing(`http://127.0.0.1:${port}/v1/traces`, { podUid: "pod-1" });
  const trace = "0af7651916cd43dd8448eb211c80319c";
  const request = startRequestSpan("request", { traceparent: `00-${trace}-b7ad6b7169203331-01` });
  const iteration = startSpan("chat alpha", request, () => ({ "gen_ai.request.model": "alpha" }));
  endSpan(iteration, {}, "upstream_error");
  endSpan(request, { "http.response.status_code": 502 });
  await stop();
  collector.close().closeAllConnections();
  const sent = bodies.join("\n");
  expect(sent).toContain("/v1/traces ");
  for (const part of [
    trace,
    '"request"',
    '"chat alpha"',
    '"alpha"',
    '"upstream_error"',
    '"gapura"',
    '"pod-1"',
  ]) {
    expect(sent).toContain(part);
  }
  expect(startRequestSpan("request", {})).toBe(null);
});
