/** What `helm test` runs in its pod, run here against services that are a gateway or none. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { podOf, render } from "./helm.ts";
import { stores } from "./matrix.ts";

/** Runs the pod's program as if the Service were on this machine. */
async function smoke(port: number): Promise<{ status: number | null; text: string }> {
  const rendered = await render({ ...stores, service: { port } });
  const pod = podOf(rendered.get("Pod", "gapura-smoke")) as { containers: { args: string[] }[] };
  const args = pod.containers[0]?.args.map((text) => text.replace("//gapura:", "//127.0.0.1:")) ?? [];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
  const [status] = (await once(child, "close")) as [number | null];
  return { status, text };
}

test.each([
  [401, { error: { code: "invalid_api_key" } }, 0, "the gateway serves and asks for a key"],
  [200, { object: "list", data: [] }, 1, "200"],
  [503, { error: { code: "service_unavailable" } }, 1, "service_unavailable"],
])("an answer of %i with %j ends it with %i", async (status, body, ending, words) => {
  const server = createServer((_, answer) => answer.writeHead(status).end(JSON.stringify(body)));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const { port } = server.address() as AddressInfo;
    expect(await smoke(port)).toEqual({ status: ending, text: expect.stringContaining(words) });
  } finally {
    server.close();
  }
});

test("a port that browsers call nobody on is asked like any other", async () => {
  // https://fetch.spec.whatwg.org/#port-blocking; no program listens on the first of all ports.
  expect((await smoke(1)).text).toContain("ECONNREFUSED");
});
