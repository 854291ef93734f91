/**
 * A network that can be parted, of servers on this machine: each is reached through a proxy for each of its ports, and
 * connects to others from an address of its own, by which their proxies know it. Clients have 127.0.0.1.
 */
import { TcpProxy } from "../fakes/tcp-proxy.ts";

const CLIENTS = "127.0.0.1";

/** From whom a server is cut off: also from clients, or only from the others, so that clients still believe in it. */
export type Side = "everybody" | "peers";

/** A server as the others know it. */
export interface Node {
  /** Of its ports' proxies, in the order of the ports. */
  readonly ports: readonly number[];
  /** What it has to connect from. */
  readonly address: string;
}

interface Place extends Node {
  readonly proxies: readonly TcpProxy[];
}

export class Network implements AsyncDisposable {
  readonly #places: Place[] = [];

  /** Before the server is started. `ports`: where it listens. */
  async join(...ports: readonly number[]): Promise<Node> {
    const proxies = await Promise.all(ports.map((port) => TcpProxy.open(`tcp://${CLIENTS}:${port}`)));
    const place = {
      proxies,
      ports: proxies.map(({ url }) => Number(new URL(url).port)),
      address: `127.0.1.${this.#places.length + 1}`,
    };
    this.#places.push(place);
    return place;
  }

  /** What it says and what is said to it is lost, without a word. */
  part(port: number, from: Side): void {
    const cut = this.#places.find(({ ports }) => ports.includes(port));
    if (cut === undefined) throw new Error(`nobody has the port ${port}`);
    for (const { proxies, address } of this.#places) {
      for (const proxy of proxies) {
        if (address !== cut.address) proxy.hole("everything", (other) => other === cut.address);
        else proxy.hole("everything", (other) => from === "everybody" || other !== CLIENTS);
      }
    }
  }

  /** What was held up arrives, late. */
  heal(): void {
    for (const { proxies } of this.#places) for (const proxy of proxies) proxy.reconnect();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#places.flatMap(({ proxies }) => proxies).map((proxy) => proxy.close()));
  }
}
