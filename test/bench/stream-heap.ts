/**
 * Live memory of one open stream, after a full collection: `node --expose-gc test/bench/stream-heap.ts CLIENT
 * UPSTREAM` prints kB. The upstream's end of each connection lives in this process too, and counts.
 */
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { dialectPath, dialects } from "../../dataplane/dialects/dialect.ts";
import { createServe } from "../../dataplane/inference/serve.ts";
import { sealing } from "../../dataplane/lib/seal.ts";
import { Upstreams } from "../../dataplane/upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../../dataplane/upstream/dispatcher.ts";
import { callOf, routeTo, snapshotOf, type TestCall, upstreamOf } from "../fakes/inference.ts";
import { noTools } from "../fakes/no-tools.ts";
import { answers, requestFor } from "./payloads.ts";

const STREAMS = 500;
/** Compile the code and fill the pools. */
const WARM_UP = 200;
const openMode = { messages: "open-messages", chat: "open", responses: "open-responses" } as const;

const [client, upstream] = z.tuple([z.enum(dialects), z.enum(dialects)]).parse(process.argv.slice(2));
const collect = global.gc;
if (collect === undefined) throw new Error("needs --expose-gc");

const server = createServer((socket) => {
  socket.once("data", () => socket.write(answers[openMode[upstream]]));
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const { port } = server.address() as AddressInfo;
const patient = { connectMs: 10_000, firstByteMs: 60_000, streamIdleMs: 600_000, requestMs: 600_000 };
const route = routeTo([upstreamOf(`http://127.0.0.1:${port}`, upstream)], { timeouts: patient });
const snapshot = snapshotOf([route]);
const serve = createServe(
  new Upstreams(newUpstreamDispatcher()),
  sealing([{ id: "bench", key: Buffer.alloc(32) }]),
  noTools,
);
const request = requestFor({ path: dialectPath[client], model: route.model, stream: true });
const body = request.subarray(request.indexOf("\r\n\r\n") + 4);

const calls: TestCall[] = [];
async function open(count: number): Promise<void> {
  for (let n = 0; n < count; n += 1) {
    const call = callOf(client, snapshot, body);
    calls.push(call);
    const begun = new Promise((resolve) => call.sink.once("piece", resolve));
    serve(call).catch((error: unknown) => {
      console.error(error);
      process.exit(1);
    });
    await begun;
  }
  await sleep(100);
}

function live(): number {
  collect?.();
  collect?.();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

await open(WARM_UP);
const before = live();
await open(STREAMS);
console.log(((live() - before) / STREAMS / 1024).toFixed(1));
process.exit(0);
