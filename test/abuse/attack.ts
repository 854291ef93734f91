/** One attack: what is sent, by how many at once, and what its sender may be told. */
import { Agent, request } from "node:http";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

export interface Target {
  readonly port: number;
  readonly opsPort: number;
}

/** How one request ended: a status, or `closed`: no answer. */
export type Outcome = number | "closed";

export interface Attack {
  readonly name: string;
  /** Requests at once. */
  readonly parallel: number;
  /** Statuses that are an honest answer to it; `closed` where the connection itself is the attack. */
  readonly expected: readonly Outcome[];
  /** In the short form, which runs with the tests. */
  readonly short: boolean;
  /** Makes what is to be sent. */
  prepare?(): void;
  /** Sends one request. Rejects only for a fault of the test. */
  send(target: Target, n: number): Promise<Outcome>;
}

/** An answer that takes longer has not come. */
const ANSWER_TIMEOUT_MS = 90_000;
/** Requests of one attack at most, however fast they are refused. */
const MAX_REQUESTS = 20_000;

export interface Sent {
  readonly method?: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer | string;
}

/** Each attack has its own: what one leaves unfinished must not keep the next one waiting for a connection. */
const newAgent = () => new Agent({ keepAlive: true, maxSockets: 1_024 });
let agent = newAgent();

/** Sends a request and drops its answer; an answer that comes before the body is out ends it. */
export function send({ port }: Target, { method = "POST", path, headers = {}, body = "" }: Sent) {
  const { promise, resolve } = Promise.withResolvers<Outcome>();
  const call = request({
    agent,
    host: "127.0.0.1",
    port,
    method,
    path,
    headers: {
      "content-type": "application/json",
      ...(method === "GET" ? {} : { "content-length": Buffer.byteLength(body) }),
      ...headers,
    },
  });
  call.setTimeout(ANSWER_TIMEOUT_MS, () => call.destroy(new Error("time-out")));
  call.on("error", () => resolve("closed"));
  call.on("response", (response) => {
    const status = response.statusCode ?? 0;
    response.on("end", () => resolve(status));
    response.on("error", () => resolve(status));
    response.resume();
  });
  call.end(body);
  return promise;
}

/** Sends a request and reads its streamed answer for so long; then its client leaves. */
export function sendStream({ port }: Target, { path, headers = {}, body = "" }: Sent, ms: number) {
  const { promise, resolve } = Promise.withResolvers<Outcome>();
  const all = { "content-type": "application/json", "content-length": Buffer.byteLength(body), ...headers };
  const call = request({ agent, host: "127.0.0.1", port, method: "POST", path, headers: all });
  call.setTimeout(ANSWER_TIMEOUT_MS, () => call.destroy(new Error("time-out")));
  call.on("error", () => resolve("closed"));
  call.on("response", (response) => {
    const end = () => {
      resolve(response.statusCode ?? 0);
      call.destroy();
    };
    response.on("end", end);
    response.on("error", end);
    response.resume();
    setTimeout(end, ms);
  });
  call.end(body);
  return promise;
}

/** Writes raw bytes and reads the status of the first answer, for what no HTTP client would send. */
export function sendRaw({ port }: Target, write: (write: (bytes: string) => boolean) => Promise<void>) {
  const { promise, resolve } = Promise.withResolvers<Outcome>();
  const socket = connect(port, "127.0.0.1");
  let head = "";
  socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy());
  socket.on("error", () => {});
  socket.on("close", () => resolve("closed"));
  socket.on("data", (bytes) => {
    head += bytes.toString("latin1");
    const status = /^HTTP\/1\.1 (\d{3})/.exec(head)?.[1];
    if (status === undefined || status === "100") return;
    resolve(Number(status));
    socket.destroy();
  });
  socket.on("connect", () => {
    void write((bytes) => !socket.destroyed && socket.write(bytes));
  });
  return promise;
}

export interface AttackReport {
  /** How many requests ended how. */
  readonly outcomes: Readonly<Record<string, number>>;
}

/** Runs an attack for so long; requests that are under way then are waited for. */
export async function runAttack(attack: Attack, target: Target, ms: number): Promise<AttackReport> {
  const outcomes: Record<string, number> = {};
  const until = performance.now() + ms;
  let sent = 0;
  const attackers = Array.from({ length: attack.parallel }, async () => {
    do {
      const outcome = await attack.send(target, sent++);
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
      // A refusal that costs nothing is not to become a test of the sender's own speed.
      if (typeof outcome !== "number" || outcome >= 400) await sleep(5);
    } while (performance.now() < until && sent < MAX_REQUESTS);
  });
  await Promise.all(attackers);
  agent.destroy();
  agent = newAgent();
  return { outcomes };
}
