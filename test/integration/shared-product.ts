/** The whole product, started as a user starts it, which a file of tests shares, before a scripted upstream that each finds empty. */
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach } from "vitest";
import { sdkClients } from "../fakes/sdk-clients.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { readKeys, startProduct, temporaryFolder, writeManifests, type Product } from "./product.ts";

type Clients = ReturnType<typeof sdkClients>;

/** What the product is reached by, until it is started again. */
interface Running extends Clients {
  readonly product: Product;
  readonly keys: ReturnType<typeof readKeys>;
}

export class SharedProduct {
  readonly #folder = temporaryFolder();
  readonly manifests = join(this.#folder.path, "manifests");
  readonly data = join(this.#folder.path, "data");
  #upstream: FakeUpstream | null = null;
  #running: Running | null = null;

  /** For the top of a test file: it sets the file's hooks. */
  constructor() {
    beforeAll(async () => {
      this.#upstream = await startUpstream();
      writeManifests(this.manifests, this.#upstream.url);
      await this.start();
    });
    afterAll(async () => {
      await this.#running?.product.stop();
      await this.#upstream?.close();
      this.#folder[Symbol.dispose]();
    });
    beforeEach(() => this.upstream.reset());
  }

  /** Starts it, or starts it again on the same data. */
  async start(): Promise<void> {
    const product = await startProduct({ manifests: this.manifests, data: this.data });
    const keys = readKeys(this.data);
    this.#running = { product, keys, ...sdkClients(product.url, keys.inference) };
  }

  get product(): Product {
    return this.#started.product;
  }

  get keys(): ReturnType<typeof readKeys> {
    return this.#started.keys;
  }

  /** A client of it with its inference key, as `openai`. */
  get anthropic(): Clients["anthropic"] {
    return this.#started.anthropic;
  }

  get openai(): Clients["openai"] {
    return this.#started.openai;
  }

  get upstream(): FakeUpstream {
    if (this.#upstream === null) throw new Error("the upstream is not started");
    return this.#upstream;
  }

  get #started(): Running {
    if (this.#running === null) throw new Error("the product is not started");
    return this.#running;
  }
}
