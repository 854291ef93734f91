/** The folder form: compiles a folder, watches it, asks the data plane, prints statuses. */
import type { PodReport } from "../plan/conditions.ts";
import { Reconciler } from "../reconcile.ts";
import { askOne } from "./acknowledgement.ts";
import { Identities } from "./identities.ts";
import { createKeyFile } from "./key-files.ts";
import { StatusPrinter } from "./print.ts";
import { SnapshotFolder } from "./snapshot-folder.ts";
import { FolderSource } from "./source.ts";
import { FolderWatch } from "./watch.ts";

export interface FolderOptions {
  readonly manifests: string;
  readonly out: string;
  readonly data: string;
  /** Address of the data plane's /config/status; null: nobody is asked. */
  readonly ack: string | null;
  readonly print: (line: string) => void;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** While a snapshot is on its way the data plane is asked often, later only to see that it is still there. */
const ASK_PENDING_MS = 150;
const ASK_SETTLED_MS = 5000;
const RETRY_MS = 2000;
/** What was deleted or overwritten in the snapshot folder is put right within this time. */
const VERIFY_MS = 30_000;

/** Runs until the signal aborts. @throws when the first round fails; later failures are printed and tried again. */
export async function runFolder(options: FolderOptions, signal: AbortSignal): Promise<void> {
  const { print, now } = options;
  const printer = new StatusPrinter(print, now);
  const identities = await Identities.open(options.data);
  const source = new FolderSource({ folder: options.manifests, dataFolder: options.data, identities, now });
  const snapshots = new SnapshotFolder(options.out);
  await snapshots.removeDrafts();
  const reconciler = new Reconciler({
    observe: async () => {
      const observation = await source.observe();
      printer.files(observation.faults);
      return observation;
    },
    createKeys: async (wanted) => {
      for (const key of wanted) {
        const file = await createKeyFile(options.data, key);
        print(`Organization ${key.owner.namespace}/${key.owner.name}: generated a key, it is in ${file}`);
      }
    },
    snapshots,
    asksPods: options.ack !== null,
    writeStatuses: async (statuses) => printer.statuses(statuses),
    now,
  });

  const bell = new Bell();
  let dirty = false;
  const watch = new FolderWatch(options.manifests, () => {
    dirty = true;
    bell.ring();
  });
  const asking = new Asking(options.ack, reconciler, bell, signal);
  signal.addEventListener("abort", () => bell.ring(), { once: true });
  try {
    watch.start();
    await reconciler.reconcile();
    asking.start();
    let verifiedAt = now();
    while (!signal.aborted) {
      const verify = now() - verifiedAt >= VERIFY_MS;
      if (dirty || verify) {
        dirty = false;
        if (verify) verifiedAt = now();
        const done = await attempt(print, "compiling the folder", () => reconciler.reconcile({ verify }));
        asking.hurry();
        if (!done) {
          dirty = true;
          await bell.wait(RETRY_MS);
        }
        continue;
      }
      const pods = asking.takeAnswer();
      if (pods === null) await bell.wait(VERIFY_MS);
      else await attempt(print, "taking the acknowledgement", () => reconciler.acknowledge(pods));
    }
  } finally {
    watch.stop();
    await asking.stopped;
  }
}

/** Asks the data plane beside everything else, so that one that hangs delays no edit. */
class Asking {
  readonly #url: string | null;
  readonly #reconciler: Reconciler;
  readonly #answered: Bell;
  readonly #signal: AbortSignal;
  readonly #hurry = new Bell();
  #answer: readonly PodReport[] | null = null;
  stopped: Promise<void> = Promise.resolve();

  constructor(url: string | null, reconciler: Reconciler, answered: Bell, signal: AbortSignal) {
    this.#url = url;
    this.#reconciler = reconciler;
    this.#answered = answered;
    this.#signal = signal;
  }

  start(): void {
    if (this.#url === null) return;
    const ask = askOne(this.#url, this.#signal);
    this.#signal.addEventListener("abort", () => this.#hurry.ring(), { once: true });
    this.stopped = (async () => {
      while (!this.#signal.aborted) {
        this.#answer = await ask();
        this.#answered.ring();
        await this.#hurry.wait(this.#reconciler.pending ? ASK_PENDING_MS : ASK_SETTLED_MS);
      }
    })();
  }

  /** Something was published: it is worth asking now. */
  hurry(): void {
    this.#hurry.ring();
  }

  /** The newest answer, once. */
  takeAnswer(): readonly PodReport[] | null {
    const answer = this.#answer;
    this.#answer = null;
    return answer;
  }
}

async function attempt(
  print: (line: string) => void,
  what: string,
  work: () => Promise<void>,
): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    print(`${what} failed: ${error instanceof Error ? error.message : String(error)}`);
    return false;
  }
}

/** Wakes the one who waits; rung before the wait, it ends it at once. */
class Bell {
  #rung = false;
  #wake: (() => void) | null = null;

  ring(): void {
    this.#rung = true;
    this.#wake?.();
  }

  async wait(longestMs: number): Promise<void> {
    if (!this.#rung)
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, longestMs);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    this.#wake = null;
    this.#rung = false;
  }
}
