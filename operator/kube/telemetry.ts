/** The operator's metrics and its ops server: /healthz, /readyz, /metrics. */
import { createServer, type Server } from "node:http";
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import manifest from "../../package.json" with { type: "json" };

export class Telemetry {
  readonly registry = new Registry();
  readonly #build: Gauge = new Gauge({
    name: "gapura_operator_build_info",
    help: "1, labelled with the running version.",
    labelNames: ["version", "node"],
    registers: [this.registry],
    collect: (): void => this.#build.set({ version: manifest.version, node: process.versions.node }, 1),
  });
  readonly calls = new Counter({
    name: "gapura_operator_api_calls_total",
    help: "Answers of the API server; status 0: none.",
    labelNames: ["method", "status"],
    registers: [this.registry],
  });
  readonly passes = new Histogram({
    name: "gapura_operator_pass_duration_seconds",
    help: "One round of observing, compiling and publishing.",
    labelNames: ["outcome"],
    buckets: [0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30],
    registers: [this.registry],
  });
  readonly leading = new Gauge({
    name: "gapura_operator_leading",
    help: "1 while this replica holds the lease.",
    registers: [this.registry],
  });
  readonly objects = new Gauge({
    name: "gapura_operator_objects",
    help: "Observed objects by kind.",
    labelNames: ["kind"],
    registers: [this.registry],
  });
  readonly pods = new Gauge({
    name: "gapura_operator_ready_pods",
    help: "Ready data-plane pods.",
    registers: [this.registry],
  });
  readonly silentPods = new Gauge({
    name: "gapura_operator_silent_pods",
    help: "Ready data-plane pods that have not acknowledged the newest snapshot for 30 seconds.",
    registers: [this.registry],
  });
  readonly serial = new Gauge({
    name: "gapura_operator_published_serial",
    help: "Serial of the newest published snapshot.",
    registers: [this.registry],
  });
  readonly faults = new Counter({
    name: "gapura_operator_faults_total",
    help: "Failures that were waited out, by where they came up.",
    labelNames: ["where"],
    registers: [this.registry],
  });
}

/** @throws when the port is taken. */
export async function serveOps(port: number, telemetry: Telemetry, isReady: () => boolean): Promise<Server> {
  const server = createServer((incoming, answer) => {
    const plain = (status: number, text: string) => {
      answer.writeHead(status, { "content-type": "text/plain; charset=utf-8" }).end(text);
    };
    const path = (incoming.url ?? "").split("?")[0];
    if (path === "/healthz") plain(200, "ok\n");
    else if (path === "/readyz") {
      if (isReady()) plain(200, "ok\n");
      else plain(503, "the resources have not been listed yet\n");
    } else if (path === "/metrics")
      telemetry.registry.metrics().then(
        (text) => answer.writeHead(200, { "content-type": telemetry.registry.contentType }).end(text),
        () => plain(500, "the metrics cannot be collected\n"),
      );
    else plain(404, "not found\n");
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, () => resolve());
  });
  return server;
}
