/** A network that may fail, between a process and one of its stores. */
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

/** What is lost without a word: all of it, or only what the store answers. */
type Lost = "everything" | "answers";

interface Pair {
  readonly client: Socket;
  /** The client's. */
  readonly address: string;
  readonly store: Socket;
  /** The store's answers stay where they are. */
  hushed: boolean;
}

export class TcpProxy {
  readonly #server: Server;
  #target: URL;
  readonly #pairs = new Set<Pair>();
  /** Connections that came while nothing went through. */
  readonly #waiting = new Set<Socket>();
  #lost: Lost | null = null;
  /** Whose words are lost, by the address that they come from. */
  #loses: (address: string) => boolean = () => true;
  #refusing = false;
  /** After words that match, no answer of the store comes through on that connection until `reconnect`. */
  unanswered: RegExp | null = null;
  /** How long each piece takes, in milliseconds, one way. */
  delayMs = 0;

  private constructor(server: Server, target: URL) {
    this.#server = server;
    this.#target = target;
    server.on("connection", (client) => this.#accept(client));
  }

  /** `url`: of the store, such as `postgres://postgres@127.0.0.1:5432/postgres`. */
  static async open(url: string): Promise<TcpProxy> {
    const server = createServer({ allowHalfOpen: false });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new TcpProxy(server, new URL(url));
  }

  /** The store's address by way of this proxy. */
  get url(): string {
    const url = new URL(this.#target.href);
    url.port = String((this.#server.address() as AddressInfo).port);
    return url.href;
  }

  /** Breaks all connections and refuses new ones. */
  cut(): void {
    this.#refusing = true;
    this.#breakAll();
  }

  /**
   * Nothing goes through and nobody is told: as a firewall that drops packets. New connections hang. `from`: for clients of
   * these addresses alone.
   */
  hole(lost: Lost = "everything", from: (address: string) => boolean = () => true): void {
    this.#lost = lost;
    this.#loses = from;
    for (const pair of this.#pairs) this.#pace(pair);
  }

  /** What was cut may connect again; what was held up goes on, with what was sent meanwhile. */
  reconnect(): void {
    this.#refusing = false;
    this.#lost = null;
    for (const pair of this.#pairs) {
      pair.hushed = false;
      this.#pace(pair);
    }
    for (const client of this.#waiting) this.#join(client);
    this.#waiting.clear();
  }

  /** From now on it stands before another store, as a service whose primary is another one. Connections of before break. */
  leadTo(url: string): void {
    this.#target = new URL(url);
    this.#breakAll();
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, "close");
  }

  #accept(client: Socket): void {
    client.on("error", () => client.destroy());
    if (this.#refusing) client.resetAndDestroy();
    else if (this.#lost === "everything" && this.#loses(addressOf(client))) {
      this.#waiting.add(client);
      client.once("close", () => this.#waiting.delete(client));
    } else this.#join(client);
  }

  #join(client: Socket): void {
    const { hostname, port } = this.#target;
    const store = connect({ host: hostname, port: Number(port), noDelay: true });
    client.setNoDelay(true);
    const pair: Pair = { client, store, address: addressOf(client), hushed: false };
    this.#pairs.add(pair);
    store.on("error", () => store.destroy());
    client.on("data", (bytes: Buffer) => {
      if (this.unanswered?.test(bytes.toString("latin1")) !== true) return;
      pair.hushed = true;
      this.#pace(pair);
    });
    this.#carry(client, store);
    this.#carry(store, client);
    client.once("close", () => this.#end(pair));
    store.once("close", () => this.#end(pair));
    this.#pace(pair);
  }

  /** One after the other, as TCP keeps the order: what comes when there is no delay any more stands behind what waits. */
  #carry(from: Socket, to: Socket): void {
    let waiting = 0;
    let last = Promise.resolve();
    const pass = (bytes: Buffer) => {
      if (!to.destroyed) to.write(bytes);
    };
    from.on("data", (bytes: Buffer) => {
      if (this.delayMs <= 0 && waiting === 0) return pass(bytes);
      const due = sleep(Math.max(0, this.delayMs));
      waiting += 1;
      last = last.then(async () => {
        await due;
        waiting -= 1;
        pass(bytes);
      });
    });
  }

  /** Reads from those whose words go through. What the others say stays where it is. */
  #pace({ client, store, address, hushed }: Pair): void {
    const lost = this.#loses(address) ? this.#lost : null;
    if (lost === "everything") client.pause();
    else client.resume();
    if (lost === null && !hushed) store.resume();
    else store.pause();
  }

  #end(pair: Pair): void {
    pair.client.destroy();
    pair.store.destroy();
    this.#pairs.delete(pair);
  }

  #breakAll(): void {
    for (const { client, store } of this.#pairs) {
      client.resetAndDestroy();
      store.destroy();
    }
    for (const client of this.#waiting) client.resetAndDestroy();
    this.#waiting.clear();
  }
}

const addressOf = ({ remoteAddress = "" }: Socket): string => remoteAddress;
