/** A proxy before the API server: counts what one client asks for, and answers as a sick API server does. */
import { readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Agent, request } from "undici";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";

/** One request of the client, as the API server saw it. */
export interface SeenCall {
  readonly method: string;
  readonly path: string;
  readonly isWatch: boolean;
  readonly body: string;
  /** Of the answer; 0 until there is one. */
  status: number;
  /** When the answer began; monotonic milliseconds. */
  answeredAt: number;
}

/** What the client gets instead of the API server's answer. */
export type Fault =
  | { readonly status: number; readonly headers?: Readonly<Record<string, string>> }
  | "reset"
  /** Passed on once `release` is called. */
  | "hold";

export class ApiProxy {
  readonly #access: KubeAccess;
  readonly #agent: Agent;
  readonly #server: Server;
  readonly #watches = new Set<ServerResponse>();
  #held: (() => void)[] = [];
  readonly calls: SeenCall[] = [];
  /** Where a kubeconfig for it lies. */
  kubeconfig = "";
  /** The one token that is accepted, in place of the administrator's. */
  #token: string;
  /** Decides about each call; null: it passes. */
  fault: (call: SeenCall) => Fault | null = () => null;

  private constructor(access: KubeAccess) {
    this.#access = access;
    this.#token = access.token;
    this.#agent = new Agent({ connect: { ca: access.certificateAuthority }, allowH2: false });
    this.#server = createServer((incoming, outgoing) => {
      void this.#serve(incoming, outgoing).catch(() => outgoing.destroy());
    });
  }

  static async open(access: KubeAccess): Promise<ApiProxy> {
    const proxy = new ApiProxy(access);
    await new Promise<void>((done) => proxy.#server.listen(0, "127.0.0.1", done));
    const { port } = proxy.#server.address() as AddressInfo;
    proxy.kubeconfig = `${access.kubeconfig}-${port}`;
    await proxy.writeKubeconfig(access.token);
    return proxy;
  }

  /** From now on every other token is refused; a kubeconfig with this one is yet to be written. */
  accept(token: string): void {
    this.#token = token;
  }

  /** Writes the client's kubeconfig anew. */
  async writeKubeconfig(token: string): Promise<void> {
    const { port } = this.#server.address() as AddressInfo;
    const config = JSON.parse(await readFile(this.#access.kubeconfig, "utf8")) as Record<string, unknown>;
    // Without the last the client refuses to speak without TLS.
    const cluster = { server: `http://127.0.0.1:${port}`, "insecure-skip-tls-verify": true };
    config["clusters"] = [{ name: "test", cluster }];
    config["users"] = [{ name: "admin", user: { token } }];
    await writeFile(this.kubeconfig, JSON.stringify(config), { mode: 0o600 });
  }

  async close(): Promise<void> {
    this.release();
    this.#server.close();
    this.#server.closeAllConnections();
    await this.#agent.destroy();
    await rm(this.kubeconfig, { force: true });
  }

  /** Calls that changed something or tried to. */
  get writes(): SeenCall[] {
    return this.calls.filter(({ method }) => method !== "GET");
  }

  statusWrites(path: string): SeenCall[] {
    return this.writes.filter((call) => call.path === `${path}/status`);
  }

  /** Lets held calls go on. */
  release(): void {
    const held = this.#held;
    this.#held = [];
    for (const go of held) go();
  }

  /** Cuts every open watch, as a restarted load balancer does. */
  dropWatches(): number {
    const open = [...this.#watches];
    for (const watch of open) watch.destroy();
    return open.length;
  }

  /** Ends every open watch as the API server does when the history it needs is compacted. */
  expireWatches(): number {
    const status = { kind: "Status", apiVersion: "v1", code: 410, reason: "Expired", message: "too old" };
    const open = [...this.#watches];
    for (const watch of open) watch.end(`${JSON.stringify({ type: "ERROR", object: status })}\n`);
    return open.length;
  }

  async #serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const url = new URL(incoming.url ?? "/", this.#access.url);
    const chunks: Buffer[] = [];
    for await (const chunk of incoming as AsyncIterable<Buffer>) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const call: SeenCall = {
      method: incoming.method ?? "",
      path: url.pathname,
      isWatch: url.searchParams.get("watch") === "true",
      body: body.toString(),
      status: 0,
      answeredAt: 0,
    };
    this.calls.push(call);
    const isKnown = incoming.headers.authorization === `Bearer ${this.#token}`;
    const fault = isKnown ? this.fault(call) : { status: 401 };
    if (fault === "reset") {
      outgoing.destroy();
      return;
    }
    if (fault === "hold") await new Promise<void>((go) => this.#held.push(go));
    else if (fault !== null) {
      call.status = fault.status;
      outgoing.writeHead(fault.status, { ...fault.headers, "content-type": "application/json" });
      outgoing.end(JSON.stringify({ kind: "Status", code: fault.status, message: "by the test" }));
      return;
    }
    await this.#pass(call, url, body, incoming, outgoing);
  }

  async #pass(call: SeenCall, url: URL, body: Buffer, incoming: IncomingMessage, outgoing: ServerResponse) {
    const gone = new AbortController();
    outgoing.once("close", () => gone.abort());
    const { host: _host, connection: _connection, "content-length": _length, ...headers } = incoming.headers;
    const answer = await request(url, {
      method: call.method as "GET",
      headers: { ...headers, authorization: `Bearer ${this.#access.token}` },
      dispatcher: this.#agent,
      body: body.length === 0 ? null : body,
      signal: gone.signal,
      bodyTimeout: 0,
    });
    call.status = answer.statusCode;
    call.answeredAt = performance.now();
    outgoing.writeHead(answer.statusCode, {
      "content-type": String(answer.headers["content-type"] ?? ""),
      ...(answer.headers["retry-after"] === undefined
        ? {}
        : { "retry-after": String(answer.headers["retry-after"]) }),
    });
    outgoing.flushHeaders();
    if (call.isWatch) {
      this.#watches.add(outgoing);
      outgoing.once("close", () => this.#watches.delete(outgoing));
    }
    for await (const chunk of answer.body as AsyncIterable<Buffer>)
      if (!outgoing.writableEnded && !outgoing.write(chunk))
        await new Promise((done) => {
          outgoing.once("drain", done);
          outgoing.once("close", done);
        });
    outgoing.end();
  }
}
