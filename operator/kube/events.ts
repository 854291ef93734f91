/** Events for what a person must act on. They are a courtesy: one that cannot be written is lost. */
import { randomUUID } from "node:crypto";
import { API_VERSION } from "../api/fields.ts";
import type { Declared } from "../plan/objects.ts";
import type { KubeApi } from "./client.ts";
import { TurnQueue } from "./turn-queue.ts";

/** Longest note in bytes of UTF-8; the API server takes 1024. */
const MAX_NOTE = 1000;
/** Events that may wait to be written. Of more, those of the namespace with the most are dropped; statuses show them. */
const MAX_WAITING = 200;

export interface EventFacts {
  /** The object that the Event is about; without an API version it is of one of our kinds. */
  readonly object: Pick<Declared, "namespace" | "name"> & {
    readonly apiVersion?: string;
    readonly kind: string;
    /** Empty: not known. */
    readonly uid: string;
  };
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  /** What the operator did: `Compile`, `GenerateKey`. */
  readonly action: string;
  readonly note: string;
}

export interface EventsOptions {
  readonly api: KubeApi;
  readonly podName: string;
  readonly permit: () => void;
  /** Unix milliseconds. */
  readonly now: () => number;
  readonly failed: (error: unknown) => void;
}

export class Events {
  readonly #options: EventsOptions;
  readonly #queue = new TurnQueue<EventFacts>();
  #waiting = 0;
  #isWriting = false;

  constructor(options: EventsOptions) {
    this.#options = options;
  }

  tell(told: EventFacts): void {
    const { namespace } = told.object;
    this.#queue.add(namespace, told);
    if (this.#waiting < MAX_WAITING) this.#waiting += 1;
    else this.#queue.dropOne(namespace);
    if (!this.#isWriting) this.#writeAll().catch(this.#options.failed);
  }

  async #writeAll(): Promise<void> {
    this.#isWriting = true;
    for (let told = this.#queue.next(); told !== undefined; told = this.#queue.next()) {
      this.#waiting -= 1;
      await this.#write(told).catch(this.#options.failed);
    }
    this.#isWriting = false;
  }

  async #write({ object, type, reason, action, note }: EventFacts): Promise<void> {
    const { api, podName, permit, now } = this.#options;
    const { apiVersion = API_VERSION, kind, namespace, name, uid } = object;
    await api.call({
      method: "POST",
      path: `/apis/events.k8s.io/v1/namespaces/${namespace}/events`,
      body: {
        apiVersion: "events.k8s.io/v1",
        kind: "Event",
        // A part between dots ends with a letter or digit.
        metadata: { name: `${name.slice(0, 200).replace(/[-.]+$/, "")}.${randomUUID()}`, namespace },
        eventTime: new Date(now()).toISOString().replace("Z", "000Z"),
        reportingController: "gapura.dev/operator",
        reportingInstance: podName.slice(0, 128),
        regarding: { apiVersion, kind, namespace, name, ...(uid === "" ? {} : { uid }) },
        type,
        reason,
        action,
        note: cut(note),
      },
      permit,
    });
  }
}

/** Cuts a text to what an Event takes, in whole characters. */
function cut(text: string): string {
  const bytes = Buffer.alloc(MAX_NOTE);
  // `write` never writes a part of a character.
  return bytes.toString("utf8", 0, bytes.write(text));
}
