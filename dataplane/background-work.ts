/** Recurring work of every data plane beside serving. */
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import { readBalances } from "./billing/balance-metrics.ts";
import { UsageRetention } from "./billing/ledger/usage-retention.ts";
import type { SnapshotLoader } from "./config/load.ts";
import type { Stops } from "./end-serving.ts";
import type { Environment } from "./environment.ts";
import { KeyRetention } from "./identity/key-retention.ts";
import { Recurring } from "./lib/recurring.ts";
import { NotificationSender } from "./notifications/sender.ts";
import type { ServingParts } from "./open-serving.ts";
import type { OpenStores } from "./open-stores.ts";
import { showOrganizations } from "./telemetry/organization-metrics.ts";
import { dnsResolver, type Resolver } from "./tools/url-guard/resolver.ts";

/** How often the balances of organizations are read for their metrics. */
const BALANCES_MS = 15_000;
/** How often expired and abandoned files are looked for. */
const FILES_SWEEP_MS = 60_000;

interface BackgroundNeeds {
  readonly environment: Environment;
  readonly log: Logger;
  readonly stores: OpenStores;
  readonly loader: SnapshotLoader;
  readonly serving: Pick<ServingParts, "files" | "own">;
  /** Resolves receivers of notifications inside the cluster. */
  readonly insideResolver: Resolver;
}

/** Work that is stopped at the end of the process. */
interface BackgroundWork {
  /** Sends notifications of spent credit. */
  readonly sender: Stops;
  /** Work that loses nothing when it is cut: its next round continues. */
  readonly helpers: readonly Stops[];
}

/** Starts all recurring work. */
export function startBackgroundWork(needs: BackgroundNeeds): BackgroundWork {
  const { environment, log, stores, loader, serving } = needs;
  const { postgres: pool, clock } = stores;
  const { RETENTION_USAGE: retentionMs, RETENTION_DROP: dropRows } = environment;
  const sender = new NotificationSender({
    pool,
    clock,
    log,
    snapshot: () => loader.current,
    random: Math.random,
    resolver: dnsResolver(),
    insideResolver: needs.insideResolver,
    own: serving.own,
  });
  const helpers = [
    new Recurring(log, "files", FILES_SWEEP_MS, () => serving.files.sweep()),
    new KeyRetention({ pool, log, retentionMs: environment.RETENTION_AUDIT }),
    ...(environment.METRICS_ORGANIZATIONS ? [balances(pool, loader, log)] : []),
    ...(retentionMs === undefined ? [] : [new UsageRetention({ pool, clock, log, retentionMs, dropRows })]),
  ];
  for (const one of [sender, ...helpers]) one.start();
  return { sender, helpers };
}

/** Shows Prometheus the balance of each organization that is served (rule 14.6). */
function balances(pool: DatabasePool, loader: SnapshotLoader, log: Logger): Recurring {
  const shown = showOrganizations((id) => {
    const source = loader.current?.organization(id)?.source;
    return source === undefined ? undefined : `${source.namespace}/${source.name}`;
  });
  return new Recurring(log, "balances of organizations", BALANCES_MS, async () =>
    shown.balances(await readBalances(pool)),
  );
}
