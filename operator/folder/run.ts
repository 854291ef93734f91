/** The folder form: compiles a folder, watches it, asks the data plane, prints statuses. */
import { setTimeout as sleep } from "node:timers/promises";
import type { WantedKey } from "../plan/objects.ts";
import type { Tenancy } from "../plan/tenancy.ts";
import { Reconciler } from "../reconcile.ts";
import { AcknowledgementPoller } from "./acknowledgement-poller.ts";
import { WakeSignal } from "../wake-signal.ts";
import { Identities } from "./identities.ts";
import { createKeyFile, openKeyFolder } from "./key-files.ts";
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
  readonly tenancy: Tenancy;
  readonly print: (line: string) => void;
  /** Unix milliseconds. */
  readonly now: () => number;
}

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
  /** Why keys could not be made when it was last tried, by `namespace/name/key`. */
  const refused = new Map<string, string>();
  const reconciler = new Reconciler({
    observe: async () => {
      const observation = await source.observe();
      printer.files(observation.faults);
      return { ...observation, refused };
    },
    createKeys: (wanted) => createKeyFiles(wanted, options, refused),
    snapshots,
    tenancy: options.tenancy,
    asksPods: options.ack !== null,
    writeStatuses: async (statuses) => printer.statuses(statuses),
    now,
  });

  const wakeSignal = new WakeSignal();
  let dirty = false;
  const changed = () => {
    dirty = true;
    wakeSignal.raise();
  };
  const watches = [
    new FolderWatch(options.manifests, changed, true, options.data),
    // A generated key's file may be changed or removed by hand, as a Secret in a cluster may. There may be as many folders as
    // keys, so they are not polled every other second: what the watch misses is found when everything is verified.
    new FolderWatch(await openKeyFolder(options.data), changed, false),
  ];
  const poller = new AcknowledgementPoller(options.ack, () => reconciler.pending, wakeSignal, signal);
  signal.addEventListener("abort", () => wakeSignal.raise(), { once: true });
  try {
    for (const watch of watches) watch.start();
    await reconciler.reconcile();
    poller.start();
    let verifiedAt = performance.now();
    let failure: string | null = null;
    while (!signal.aborted) {
      const untilVerifyMs = verifiedAt + VERIFY_MS - performance.now();
      const verify = untilVerifyMs <= 0;
      const pods = dirty || verify ? null : poller.takeAnswer();
      if (!dirty && !verify && pods === null) {
        await wakeSignal.wait(untilVerifyMs);
        continue;
      }
      dirty = false;
      if (verify) verifiedAt = performance.now();
      try {
        if (pods === null) await reconciler.reconcile({ verify });
        else {
          await reconciler.acknowledge(pods);
          dirty = reconciler.needsRound;
        }
        failure = null;
      } catch (error) {
        dirty = true;
        const message = messageOf(error);
        // The same failure is printed once while it lasts.
        if (message !== failure) print(`the folder could not be compiled or published: ${message}`);
        failure = message;
        await sleep(RETRY_MS, undefined, { signal }).catch(() => {});
      }
      if (pods === null) poller.hurry();
    }
  } finally {
    for (const watch of watches) watch.stop();
    await poller.stopped;
  }
}

/** Makes the keys and says where each is. @param refused becomes why some could not be made, by `namespace/name/key` */
async function createKeyFiles(
  wanted: readonly WantedKey[],
  { data, print }: FolderOptions,
  refused: Map<string, string>,
): Promise<void> {
  refused.clear();
  for (const key of wanted) {
    // A key that cannot be made holds up no other.
    const file = await createKeyFile(data, key).catch((error: unknown) => {
      refused.set(`${key.namespace}/${key.secret}/${key.key}`, messageOf(error));
      return null;
    });
    if (file === null) continue;
    print(`Organization ${key.owner.namespace}/${key.owner.name}: generated a key, it is in ${file}`);
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
