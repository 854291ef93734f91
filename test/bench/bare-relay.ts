/**
 * The bare relay that Gapura is measured against: Fastify, `reply.hijack()` and undici's dispatch, which is the
 * cheapest relay there is on Node (reference: docs/performance.md), and nothing else: no key, no hold, no metrics.
 *   node bare-relay.ts UPSTREAM_ORIGIN        prints its port
 */
import Fastify from "fastify";
import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import { Agent, type Dispatcher } from "undici";

const [origin = ""] = process.argv.slice(2);
const agent = new Agent({ connections: 20_000, pipelining: 1, headersTimeout: 0, bodyTimeout: 0 });
const app = Fastify({ logger: false });

class Relay implements Dispatcher.DispatchHandler {
  readonly #response: ServerResponse;

  constructor(response: ServerResponse) {
    this.#response = response;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#response.on("close", () => {
      if (!this.#response.writableFinished) controller.abort(new Error("the client left"));
    });
    this.#response.on("drain", () => controller.resume());
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    const { connection: _connection, "transfer-encoding": _encoding, ...rest } = headers;
    this.#response.writeHead(status, rest);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#response.write(chunk)) controller.pause();
  }

  onResponseEnd(): void {
    this.#response.end();
  }

  onResponseError(): void {
    this.#response.destroy();
  }
}

app.addContentTypeParser("application/json", { parseAs: "buffer" }, (_request, body, done) =>
  done(null, body),
);
app.removeContentTypeParser("text/plain");
app.post("/*", (request, reply) => {
  reply.hijack();
  agent.dispatch(
    {
      origin,
      path: request.url,
      method: "POST",
      headers: { "content-type": "application/json" },
      body: request.body as Buffer,
    },
    new Relay(reply.raw),
  );
});
const address = await app.listen({ port: 0, host: "127.0.0.1" });
console.log(`port ${new URL(address).port}`);
process.once("SIGTERM", () => process.exit(0));
