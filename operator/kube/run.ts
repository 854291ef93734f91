/** The cluster form: observes the API server and, while it holds the lease, compiles, publishes and writes statuses. */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { KINDS } from "../api/kinds.ts";
import { WakeSignal } from "../wake-signal.ts";
import type { WantedKey } from "../plan/objects.ts";
import { mostDeclared } from "../plan/quotas.ts";
import { isTenant, type Tenancy } from "../plan/tenancy.ts";
import { isUnseen, type Unseen } from "../plan/unseen.ts";
import { Reconciler } from "../reconcile.ts";
import type { Access } from "./access.ts";
import { Acknowledgements } from "./acknowledgements.ts";
import { ChangePace } from "./change-pace.ts";
import { KubeApi, retryAfterMs } from "./client.ts";
import { CustomObjects, definitionOf } from "./custom-objects.ts";
import { Events } from "./events.ts";
import { LeaseHolder, NotLeading } from "./lease.ts";
import { findDeployment, Pods } from "./pods.ts";
import { KeyMaker } from "./key-maker.ts";
import { ReferencedSecrets } from "./referenced-secrets.ts";
import { createSealKey } from "./seal-key.ts";
import { SnapshotSecrets } from "./snapshot-secrets.ts";
import { actionNeeded, isToldBy, StatusWriter } from "./status-writer.ts";
import { serveOps, Telemetry } from "./telemetry.ts";

export interface ClusterOptions {
  /** Reads the address and credentials of the API server; called again, because credentials are replaced. */
  readonly readAccess: () => Promise<Access>;
  /** Where snapshot Secrets, lease and data-plane pods live. */
  readonly namespace: string;
  readonly podName: string;
  /** Empty: all. */
  readonly watchNamespaces: readonly string[];
  readonly tenancy: Tenancy;
  readonly dataPlaneSelector: string;
  readonly snapshotName: string;
  /** An existing Secret with seal keys; null: one is made. */
  readonly sealSecret: string | null;
  readonly opsPort: number;
  readonly log: Logger;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** How long changes are gathered before a round, at least and at most. */
const GATHER_MS = 100;
const LONGEST_GATHER_MS = 2000;
/** Longest time that tenants' changes wait for pods that have not taken the last snapshot. */
const LONGEST_TAKING_MS = 5000;
/** How often what is published is read again: tampering that no watch shows is put right within 60 s (rule 6.6). */
const VERIFY_MS = 30_000;
/** The same after a watch showed tampering; not more often, because two operators may write the same Secrets. */
const SUSPICION_MS = 5000;
const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 20_000;
/** Longest time that the first round waits for the answers of the pods. */
const FIRST_ANSWERS_MS = 4000;
const POLL_MS = 50;
/** At the end, time for calls under way and for giving the lease back; a pod gets longer before it is killed. */
const LAST_CALLS_MS = 10_000;

/** Runs until the signal aborts; then the lease is given back. @throws when the ops port is taken. */
export async function runCluster(options: ClusterOptions, signal: AbortSignal): Promise<void> {
  const cluster = new Cluster(options, signal);
  const ops = await serveOps(options.opsPort, cluster.telemetry, () => cluster.isSynced);
  try {
    await cluster.run();
  } finally {
    ops.close();
    ops.closeAllConnections();
  }
}

class Cluster {
  readonly telemetry = new Telemetry();
  readonly #options: ClusterOptions;
  readonly #signal: AbortSignal;
  readonly #api: KubeApi;
  readonly #objects: CustomObjects;
  readonly #secrets: ReferencedSecrets;
  readonly #keys: KeyMaker;
  readonly #pods: Pods;
  readonly #lease: LeaseHolder;
  readonly #pace: ChangePace;
  readonly #wakeSignal = new WakeSignal();
  /** What has changed since the rounds last dealt with it. */
  readonly #news = { specs: true, tenants: true, pods: true, answers: true };
  /** When the newest snapshot was published, monotonic milliseconds. */
  #publishedAt = -Infinity;
  #writer: StatusWriter | null = null;
  #snapshots: SnapshotSecrets | null = null;
  #readyCount = 0;

  constructor(options: ClusterOptions, signal: AbortSignal) {
    const { namespace, watchNamespaces, dataPlaneSelector: selector, now } = options;
    const namespaces = [...new Set(watchNamespaces)];
    this.#options = options;
    this.#signal = signal;
    const api = new KubeApi(options.readAccess, (method, status) =>
      this.telemetry.calls.inc({ method, status: String(status) }),
    );
    this.#api = api;
    const mostBytes = (home: string) => mostDeclared(options.tenancy, home);
    const isPaced = (home: string) => isTenant(options.tenancy, home);
    this.#pace = new ChangePace(() => this.#note("tenants"));
    const changed = (home: string) => {
      if (!isPaced(home)) this.#note("specs");
      // A round that is already due finds the change anyway.
      else if (!this.#news.specs && !this.#news.tenants) this.#pace.changed(home);
    };
    this.#objects = new CustomObjects({
      api,
      namespaces,
      mostBytes,
      specChanged: changed,
      statusChanged: (kind, key) => this.#writer?.check(kind, key),
      failed: this.#failed("objects"),
    });
    this.#secrets = new ReferencedSecrets({
      api,
      namespaces,
      mayWait: isPaced,
      mostBytes,
      changed,
      seen: (key, version) => {
        this.#snapshots?.note(key, version);
        if (this.#snapshots?.isTampered === true) this.#wakeSignal.raise();
      },
      failed: this.#failed("secrets"),
    });
    this.#keys = new KeyMaker(api, this.#secrets);
    this.#pods = new Pods({
      api,
      namespace,
      selector,
      changed: () => this.#note("pods"),
      failed: this.#failed("pods"),
    });
    this.#lease = new LeaseHolder({
      api,
      namespace,
      name: `${options.snapshotName}-operator`,
      identity: `${options.podName}_${randomUUID()}`,
      now,
      failed: this.#failed("lease"),
    });
  }

  /** True once all is listed. Before that nothing may be published: an object that is not known may well exist. */
  get isSynced(): boolean {
    return this.#objects.synced && this.#secrets.synced && this.#pods.synced;
  }

  /** What cannot be listed: its published entries stay. */
  get #unseen(): Unseen {
    return {
      namespaces: new Set([...this.#objects.unseen, ...this.#secrets.unseen]),
      kinds: this.#objects.unseenKinds,
    };
  }

  async run(): Promise<void> {
    const signal = this.#signal;
    signal.addEventListener("abort", () => this.#api.endWithin(LAST_CALLS_MS), { once: true });
    const informers = [this.#objects, this.#secrets, this.#pods].map((informer) => informer.run(signal));
    try {
      while (!signal.aborted && !this.isSynced) await pause(POLL_MS, signal);
      while (!signal.aborted) {
        await this.#lease.acquire(signal).catch(() => {});
        if (!signal.aborted) await this.#lead();
        await this.#lease.release();
      }
    } finally {
      await Promise.all(informers);
      await this.#api.close();
    }
  }

  /** Leads for one term, until the lease is lost or the operator stops. */
  async #lead(): Promise<void> {
    const { log } = this.#options;
    const term = new AbortController();
    const ended = AbortSignal.any([this.#signal, term.signal]);
    const permit = () => {
      if (ended.aborted) throw new NotLeading();
      this.#lease.permit();
    };
    log.info("this replica leads");
    const { namespaces, kinds } = this.#unseen;
    if (namespaces.size > 0)
      log.warn(
        { namespaces: [...namespaces] },
        "what was published of namespaces that cannot be listed stays",
      );
    if (kinds.size > 0)
      log.warn(
        { definitions: [...kinds].map(definitionOf) },
        "definitions are missing: what was published of these kinds stays",
      );
    this.telemetry.leading.set(1);
    const holding = this.#lease.hold(ended).then(() => term.abort());
    ended.addEventListener("abort", () => this.#wakeSignal.raise(), { once: true });
    try {
      await this.#work(permit, ended);
    } finally {
      term.abort();
      await holding;
      this.#writer = null;
      this.#snapshots = null;
      this.telemetry.leading.set(0);
      this.telemetry.silentPods.set(0);
      log.info("this replica leads no more");
    }
  }

  async #work(permit: () => void, ended: AbortSignal): Promise<void> {
    const { namespace, snapshotName, now, podName } = this.#options;
    const api = this.#api;
    const events = new Events({ api, podName, permit, now, failed: this.#failed("events") });
    const writer = this.#statusWriter(events, permit);
    const snapshots = new SnapshotSecrets({ api, namespace, name: snapshotName, permit });
    const reconciler = new Reconciler({
      observe: () => this.#observe(),
      createKeys: (wanted) => this.#createKeys(wanted, events, permit),
      snapshots,
      tenancy: this.#options.tenancy,
      asksPods: true,
      // Where a referenced Secret has never been read, the statuses of the namespace are not known yet.
      writeStatuses: async (statuses) =>
        writer.want(statuses.filter(({ object }) => !this.#secrets.unread.has(object.namespace))),
      now,
    });
    const acknowledgements = new Acknowledgements({
      pods: () => this.#pods.values(),
      pending: () => reconciler.pending,
      changed: () => this.#note("answers"),
      serial: () => reconciler.serial,
      unheard: (pod, reason) => {
        this.telemetry.faults.inc({ where: "acknowledgement" });
        this.#options.log.warn({ pod, reason }, "a ready pod gives no acknowledgement");
      },
      silent: (pod, reason) => {
        this.#tellSilence(pod, reason, events).catch(this.#failed("events"));
      },
    });
    this.#writer = writer;
    this.#snapshots = snapshots;
    const writing = writer.run(ended);
    try {
      await this.#firstAnswers(reconciler, acknowledgements, ended);
      await this.#rounds(reconciler, acknowledgements, permit, ended);
    } finally {
      await writing;
      await acknowledgements.close();
    }
  }

  /** Writes statuses, and an Event for each that asks a person to act or that cannot be written. */
  #statusWriter(events: Events, permit: () => void): StatusWriter {
    const { log, now } = this.#options;
    return new StatusWriter({
      api: this.#api,
      objects: this.#objects,
      permit,
      now,
      written: (status, before) => {
        const action = actionNeeded(status);
        if (action === null || isToldBy(before, action)) return;
        const { reason, message: note } = action;
        events.tell({ object: status.object, type: "Warning", reason, action: "Compile", note });
      },
      contested: ({ object: { kind, namespace, name } }) =>
        log.warn(
          { object: `${kind} ${namespace}/${name}` },
          "somebody else writes this status too; do two releases watch its namespace?",
        ),
      refused: (status, words) => {
        const { reason, message } = actionNeeded(status) ?? { reason: "StatusRefused", message: "" };
        const note = `${message === "" ? "" : `${message}; `}no status can be written: ${words}`;
        events.tell({ object: status.object, type: "Warning", reason, action: "Compile", note });
      },
      failed: this.#failed("statuses"),
    });
  }

  async #firstAnswers(
    reconciler: Reconciler,
    acknowledgements: Acknowledgements,
    ended: AbortSignal,
  ): Promise<void> {
    acknowledgements.refresh();
    const deadline = performance.now() + FIRST_ANSWERS_MS;
    while (!ended.aborted && performance.now() < deadline) {
      const reports = acknowledgements.reports();
      if (reports !== null) return reconciler.acknowledge(reports);
      await pause(POLL_MS, ended);
    }
  }

  async #rounds(
    reconciler: Reconciler,
    acknowledgements: Acknowledgements,
    permit: () => void,
    ended: AbortSignal,
  ): Promise<void> {
    const { log } = this.#options;
    const news = this.#news;
    Object.assign(news, { specs: true, tenants: true, pods: true, answers: true });
    let verifiedAt = performance.now();
    let passMs = 0;
    let passEndedAt = -Infinity;
    let failures = 0;
    let sealed = this.#options.sealSecret !== null;
    while (!ended.aborted) {
      const isTampered = this.#snapshots?.isTampered === true;
      const verifyMs = isTampered ? SUSPICION_MS : VERIFY_MS;
      // Tenants' changes wait until the pods have taken the last snapshot: a pod that reads one while it is overwritten gets
      // neither the old nor the new. A round that only verifies waits too, for it would publish those changes.
      const untilTaken = reconciler.pending ? this.#publishedAt + LONGEST_TAKING_MS - performance.now() : 0;
      const untilVerify = verifiedAt + verifyMs - performance.now();
      const verify = untilVerify <= 0;
      const isDue = news.specs || ((news.tenants || verify) && untilTaken <= 0);
      if (!isDue && !news.pods && !news.answers) {
        await this.#wakeSignal.wait(news.tenants ? untilTaken : Math.max(untilTaken, untilVerify));
        continue;
      }
      try {
        if (!sealed) sealed = await this.#seal(permit);
        if (isDue) {
          // A single change is published at once. In a run of changes a pass first waits as long as the last one took.
          const restMs = Math.min(LONGEST_GATHER_MS, passMs) - (performance.now() - passEndedAt);
          await pause(Math.max(GATHER_MS, restMs), ended);
          if (ended.aborted) return;
          Object.assign(news, { specs: false, tenants: false });
          this.#pace.roundBegins();
          const startedAt = performance.now();
          if (verify) verifiedAt = startedAt;
          if (verify && isTampered) log.warn("somebody else wrote into what is published");
          await this.#pass(reconciler, verify);
          passEndedAt = performance.now();
          passMs = passEndedAt - startedAt;
        }
        news.pods = false;
        acknowledgements.refresh();
        this.#countPods();
        if (reconciler.serial !== null) await this.#pods.poke(reconciler.serial, permit);
        news.answers = false;
        const reports = acknowledgements.reports();
        this.telemetry.silentPods.set(acknowledgements.silentCount);
        if (reports !== null) await reconciler.acknowledge(reports);
        if (reconciler.needsRound) news.specs = true;
        failures = 0;
      } catch (error) {
        if (ended.aborted) return;
        news.specs = true;
        this.#failed("pass")(error);
        const backOff = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** failures);
        const wait = Math.round(Math.max(backOff * (0.5 + Math.random() / 2), retryAfterMs(error)));
        failures += 1;
        log.warn({ retryInMs: wait }, "the round failed and is tried again");
        await pause(wait, ended);
      }
    }
  }

  /** Writes one Event for each pod that falls silent: at the Deployment, where people look first, or else at the pod. */
  async #tellSilence(pod: string, reason: string, events: Events): Promise<void> {
    this.#options.log.warn({ pod, reason }, "a ready pod has not acknowledged for 30 s");
    const { namespace, dataPlaneSelector } = this.#options;
    const owner = await findDeployment(this.#api, namespace, dataPlaneSelector).catch((error: unknown) => {
      this.#failed("events")(error);
      return null;
    });
    const note = `pod ${pod} is ready and has not acknowledged the configuration for 30 s: ${reason}`;
    const object = owner ?? { apiVersion: "v1", kind: "Pod", namespace, name: pod, uid: "" };
    events.tell({ object, type: "Warning", reason: "PodSilent", action: "Acknowledge", note });
  }

  #countPods(): void {
    const { readyCount } = this.#pods;
    if (readyCount !== this.#readyCount) this.#writer?.podsMoved();
    this.#readyCount = readyCount;
    this.telemetry.pods.set(readyCount);
  }

  async #pass(reconciler: Reconciler, verify: boolean): Promise<void> {
    const before = reconciler.serial;
    const end = this.telemetry.passes.startTimer();
    try {
      await reconciler.reconcile({ verify });
      end({ outcome: "done" });
    } catch (error) {
      end({ outcome: "failed" });
      throw error;
    }
    const { serial } = reconciler;
    if (serial === null || serial === before) return;
    this.#publishedAt = performance.now();
    this.telemetry.serial.set(serial);
    this.#options.log.info({ serial }, "published a snapshot");
  }

  async #observe() {
    const unlisted = this.#unseen;
    const objects = this.#objects.values().filter(({ declared }) => !isUnseen(unlisted, declared));
    const wanted = new Map<string, Set<string>>();
    const counts = new Map<string, number>(KINDS.map((kind) => [kind, 0]));
    for (const { declared, secretRefs } of objects) {
      counts.set(declared.kind, (counts.get(declared.kind) ?? 0) + 1);
      for (const { name, key } of secretRefs) {
        const secret = `${declared.namespace}/${name}`;
        const keys = wanted.get(secret) ?? new Set();
        wanted.set(secret, keys.add(key));
      }
    }
    for (const [kind, count] of counts) this.telemetry.objects.set({ kind }, count);
    const secrets = await this.#secrets.read(wanted);
    for (const home of this.#secrets.behind) this.#pace.changed(home);
    const unseen = {
      ...unlisted,
      namespaces: new Set([...unlisted.namespaces, ...this.#secrets.unread]),
    };
    return {
      objects: objects.flatMap(({ declared }) => (isUnseen(unseen, declared) ? [] : [declared])),
      secrets,
      forbidden: this.#secrets.forbidden,
      immutable: this.#secrets.immutable,
      refused: this.#keys.refused,
      unseen,
    };
  }

  /**
   * Makes keys. Those for which there is no time are left to the next round, which also publishes others' changes. It is due
   * at once or, when only tenants want keys, once the pods have taken the last snapshot.
   */
  async #createKeys(wanted: readonly WantedKey[], events: Events, permit: () => void): Promise<void> {
    const isTenants = wanted.every(({ namespace }) => isTenant(this.#options.tenancy, namespace));
    const noteRest = () => this.#note(isTenants ? "tenants" : "specs");
    const hadTheirTurn = await this.#keys.make(wanted, permit, {
      made: ({ owner: object, secret, key }) =>
        events.tell({
          object,
          type: "Normal",
          reason: "GeneratedKey",
          action: "GenerateKey",
          note: `generated a key into Secret "${secret}", key "${key}"`,
        }),
      failed: this.#failed("keys"),
      late: noteRest,
    });
    if (!hadTheirTurn) noteRest();
  }

  async #seal(permit: () => void): Promise<true> {
    const { namespace, snapshotName, log } = this.#options;
    if (await createSealKey(this.#api, namespace, snapshotName, permit))
      log.info({ secret: `${snapshotName}-seal` }, "made the seal key");
    return true;
  }

  #note(what: "specs" | "tenants" | "pods" | "answers"): void {
    this.#news[what] = true;
    this.#wakeSignal.raise();
  }

  #failed(where: string): (error: unknown) => void {
    return (error) => {
      this.telemetry.faults.inc({ where });
      // The message only: an error of the HTTP client may carry headers.
      const message = error instanceof Error ? error.message : String(error);
      this.#options.log.warn({ where, error: message }, "waiting out a failure");
    };
  }
}

const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  sleep(ms, undefined, { signal }).catch(() => {});
