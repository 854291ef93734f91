/**
 * Leader election by a Lease (rule 6.10). Clocks of other machines are never compared: whether a holder lives is
 * judged by when we saw its record change. The holder of the lease may write only while its last renewal is younger
 * than the lease, by our own monotonic clock, so that a process that was frozen and woken does not.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { isStatus, type KubeApi } from "./client.ts";

const DURATION_MS = 15_000;
/** How long a renewal permits writes: shorter than the lease by the time that a request may take on its way. */
const PERMIT_MS = 10_000;
const RENEW_MS = 2000;
/** A released lease is taken over within this time. */
const RETRY_MS = 1500;

const leaseSchema = z.looseObject({
  metadata: z.looseObject({ resourceVersion: z.string() }),
  spec: z
    .looseObject({
      holderIdentity: z.string().optional(),
      leaseDurationSeconds: z.number().optional(),
      leaseTransitions: z.number().optional(),
      acquireTime: z.string().optional(),
      renewTime: z.string().optional(),
    })
    .default({}),
});
type Lease = z.infer<typeof leaseSchema>;

export interface LeaseOptions {
  readonly api: KubeApi;
  readonly namespace: string;
  readonly name: string;
  /** Identity of this process; no two processes may have the same. */
  readonly identity: string;
  /** Unix milliseconds. */
  readonly now: () => number;
  readonly failed: (error: unknown) => void;
}

export class NotLeading extends Error {
  constructor() {
    super("this operator does not hold the lease any more");
    this.name = "NotLeading";
  }
}

export class LeaseHolder {
  readonly #options: LeaseOptions;
  readonly #path: string;
  /** When the last successful renewal was sent, in monotonic milliseconds; null: not held. */
  #renewedAt: number | null = null;
  #acquiredAt = "";
  /** The lease's record as it was when it last changed, and when that was seen. */
  #seen: { readonly record: string; readonly at: number } | null = null;

  constructor(options: LeaseOptions) {
    this.#options = options;
    this.#path = `/apis/coordination.k8s.io/v1/namespaces/${options.namespace}/leases`;
  }

  get isHeld(): boolean {
    return this.#renewedAt !== null && performance.now() - this.#renewedAt < PERMIT_MS;
  }

  /** @throws NotLeading */
  readonly permit = (): void => {
    if (!this.isHeld) throw new NotLeading();
  };

  /** Waits until the lease is ours. @throws when the signal aborts. */
  async acquire(signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      try {
        if (await this.#tryOnce(signal)) return;
      } catch (error) {
        signal.throwIfAborted();
        this.#options.failed(error);
      }
      await sleep(RETRY_MS * (0.5 + Math.random() / 2), undefined, { signal });
    }
  }

  /** Renews until the lease is lost or the signal aborts. */
  async hold(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(RENEW_MS, undefined, { signal }).catch(() => {});
      if (signal.aborted) return;
      try {
        if (!(await this.#tryOnce(signal))) {
          this.#renewedAt = null;
          return;
        }
      } catch (error) {
        if (!signal.aborted) this.#options.failed(error);
      }
      if (!this.isHeld) {
        this.#renewedAt = null;
        return;
      }
    }
  }

  /** Gives the lease back, so that another replica need not wait until it expires. Never fails. */
  async release(): Promise<void> {
    if (this.#renewedAt === null) return;
    this.#renewedAt = null;
    try {
      const lease = await this.#read();
      if (lease?.spec.holderIdentity !== this.#options.identity) return;
      await this.#put(lease, { ...lease.spec, holderIdentity: "", leaseDurationSeconds: 1 });
    } catch (error) {
      this.#options.failed(error);
    }
  }

  /** Reads the lease once, and writes it when it is ours or free. @returns whether it is ours now. */
  async #tryOnce(signal: AbortSignal): Promise<boolean> {
    const sentAt = performance.now();
    const lease = await this.#read(signal);
    const { identity } = this.#options;
    const holder = lease?.spec.holderIdentity ?? "";
    if (lease !== null && holder !== identity && holder !== "" && !this.#isStale(lease)) return false;
    try {
      await (lease === null ? this.#create(signal) : this.#renew(lease, signal));
    } catch (error) {
      // Somebody else wrote first. If the lease was ours, it may only have been annotated: the next attempt shows.
      if (isStatus(error, 409) && holder !== identity) return false;
      throw error;
    }
    this.#renewedAt = sentAt;
    return true;
  }

  #isStale(lease: Lease): boolean {
    // The spec, not the resource version: an annotation is no sign of life.
    const record = JSON.stringify(lease.spec);
    const now = performance.now();
    if (this.#seen?.record !== record) this.#seen = { record, at: now };
    return now - this.#seen.at > (lease.spec.leaseDurationSeconds ?? DURATION_MS / 1000) * 1000;
  }

  async #read(signal?: AbortSignal): Promise<Lease | null> {
    const path = `${this.#path}/${this.#options.name}`;
    try {
      return leaseSchema.parse(
        await this.#options.api.call({ method: "GET", path, ...(signal === undefined ? {} : { signal }) }),
      );
    } catch (error) {
      if (isStatus(error, 404)) return null;
      throw error;
    }
  }

  async #create(signal: AbortSignal): Promise<void> {
    this.#acquiredAt = this.#time();
    const { name, namespace } = this.#options;
    await this.#options.api.call({
      method: "POST",
      path: this.#path,
      body: {
        apiVersion: "coordination.k8s.io/v1",
        kind: "Lease",
        metadata: { name, namespace },
        spec: { ...this.#spec(), leaseTransitions: 0 },
      },
      signal,
    });
  }

  async #renew(lease: Lease, signal: AbortSignal): Promise<void> {
    const isOurs = lease.spec.holderIdentity === this.#options.identity;
    if (!isOurs || this.#acquiredAt === "") this.#acquiredAt = this.#time();
    const transitions = (lease.spec.leaseTransitions ?? 0) + (isOurs ? 0 : 1);
    await this.#put(lease, { ...lease.spec, ...this.#spec(), leaseTransitions: transitions }, signal);
  }

  /** Refused with 409 when somebody else wrote since `lease` was read. */
  async #put(lease: Lease, spec: Readonly<Record<string, unknown>>, signal?: AbortSignal): Promise<void> {
    await this.#options.api.call({
      method: "PUT",
      path: `${this.#path}/${this.#options.name}`,
      body: { ...lease, spec },
      ...(signal === undefined ? {} : { signal }),
    });
  }

  #spec() {
    return {
      holderIdentity: this.#options.identity,
      leaseDurationSeconds: DURATION_MS / 1000,
      acquireTime: this.#acquiredAt,
      renewTime: this.#time(),
    };
  }

  /** A MicroTime: the API server refuses times with fewer digits. */
  #time(): string {
    return new Date(this.#options.now()).toISOString().replace("Z", "000Z");
  }
}
