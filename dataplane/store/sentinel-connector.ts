/**
 * Connects to the server that sentinels report as master. ioredis 6.0.0 leaves a master at any message of a failover: also at one
 * that names the master which it has found already (each sentinel announces a failover when it hears of it, the one that leads it
 * when all replicas follow, seconds later), and at one that comes while it asks the sentinels, which ends the client for good.
 */
import { lookup } from "node:dns/promises";
import { createRequire } from "node:module";
import type { Socket } from "node:net";
import type { Redis } from "ioredis";

type Tell = (type: string, error: Error) => void;

/** What is used of the library's connector, most of which its types do not show. */
interface LibraryConnector {
  readonly options: { readonly name?: string | undefined };
  /** The last connection, also after its end; undefined before the first one. */
  readonly stream?: Socket;
  readonly failoverDetector: { readonly sentinels: readonly { readonly client: Redis }[] } | null;
  connect(tell: Tell): Promise<Socket>;
  disconnect(): void;
  initFailoverDetector(): Promise<void>;
}

const library = createRequire(import.meta.url)("ioredis/built/connectors/SentinelConnector/index.js") as {
  readonly default: new (options: unknown) => LibraryConnector;
};

export class SentinelConnector extends library.default {
  #isAsking = false;
  /** A failover that was announced while the sentinels were asked: their answer may be older. */
  #told: string | null = null;

  override async connect(tell: Tell): Promise<Socket> {
    this.#isAsking = true;
    this.#told = null;
    try {
      const stream = await super.connect(tell);
      for (const connected of ["connect", "secureConnect"])
        stream.once(connected, () => {
          if (this.#told !== null) this.#leaveUnless(this.#told);
        });
      return stream;
    } finally {
      this.#isAsking = false;
    }
  }

  override initFailoverDetector(): Promise<void> {
    const subscribed = super.initFailoverDetector();
    for (const { client } of this.failoverDetector?.sentinels ?? []) {
      client.removeAllListeners("message");
      client.on("message", (_channel: string, text: string) => {
        if (text.split(" ")[0] !== this.options.name) return;
        if (this.#isAsking) this.#told = text;
        else this.#leaveUnless(text);
      });
    }
    return subscribed;
  }

  /** Ends the connection, so that the sentinels are asked again, unless it leads to the announced master. */
  #leaveUnless(told: string): void {
    const { stream } = this;
    if (stream === undefined) return;
    const leave = () => {
      if (stream === this.stream && !this.#isAsking) this.disconnect();
    };
    leadsTo(stream, told).then((leads) => {
      if (!leads) leave();
    }, leave);
  }
}

/** `told`: `NAME OLD-HOST OLD-PORT NEW-HOST NEW-PORT`; a host is an address or, where sentinels announce those, a name. */
async function leadsTo({ remoteAddress, remotePort }: Socket, told: string): Promise<boolean> {
  const [, , , host = "", port] = told.split(" ");
  if (remoteAddress === undefined || remotePort !== Number(port)) return false;
  const found = await lookup(host, { all: true }).catch(() => []);
  return found.some(({ address }) => address === remoteAddress);
}
