/** Ready pods at whose ops port something else than a well data plane answers. */
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { KubeClient } from "./kube-client.ts";
import { DATA_PLANE_LABELS, setPodReady } from "./kube-world.ts";

export const hostileAnswers = {
  /** Accepts and never answers. */
  hangs: () => {},
  /** Headers at once, then a body without end. */
  endless: (_request, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    const piece = Buffer.alloc(256 * 1024, " ");
    const more = () => {
      while (!response.destroyed && response.write(piece));
    };
    response.on("drain", more);
    more();
  },
  /** A body that comes a byte at a time. */
  drips: (_request, response) => {
    const timer = setInterval(() => response.write(" "), 100);
    response.on("close", () => clearInterval(timer));
  },
  /** Another pod has its address by now. */
  foreign: (_request, response) => {
    const status = { hash: null, serial: 1e15, podUid: "somebody-else", accepts: [1], rejected: null };
    response.end(JSON.stringify({ ...status, objects: [] }));
  },
  malformed: (_request, response) => void response.end('{"serial": "many"}'),
} satisfies Record<string, RequestListener>;

export class HostilePod implements AsyncDisposable {
  readonly #client: KubeClient;
  readonly #path: string;
  readonly #server: Server;

  private constructor(client: KubeClient, path: string, server: Server) {
    this.#client = client;
    this.#path = path;
    this.#server = server;
  }

  static async start(
    client: KubeClient,
    namespace: string,
    name: string,
    answer: RequestListener,
  ): Promise<HostilePod> {
    const server = createServer(answer);
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    const { port } = server.address() as AddressInfo;
    await client.must("POST", `/api/v1/namespaces/${namespace}/pods`, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, labels: DATA_PLANE_LABELS },
      spec: {
        containers: [{ name: "data-plane", image: "x", ports: [{ name: "ops", containerPort: port }] }],
      },
    });
    await setPodReady(client, namespace, name, true);
    return new HostilePod(client, `/api/v1/namespaces/${namespace}/pods/${name}`, server);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#client.call("DELETE", `${this.#path}?gracePeriodSeconds=0`);
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
