/** Opens all that serving requests and batches takes: upstreams, server tools, files, seals, and threads for large bodies. */
import { randomBytes } from "node:crypto";
import type { Logger } from "pino";
import type { Dispatcher } from "undici";
import type { SnapshotLoader } from "./config/load.ts";
import type { Snapshot } from "./config/snapshot.ts";
import type { Environment } from "./environment.ts";
import { FileStore, type FileStoreOptions } from "./files/file-store.ts";
import { PostgresContents } from "./files/postgres-contents.ts";
import { S3Contents } from "./files/s3-contents.ts";
import { withFileReferences } from "./inference/request/file-references.ts";
import { withItemReferences } from "./inference/request/item-references.ts";
import { newLargePool } from "./inference/large/large-body.ts";
import { createServe } from "./inference/serve.ts";
import type { Serve } from "./inference/call.ts";
import type { ByteBudget } from "./lib/byte-budget.ts";
import { newId } from "./lib/ids.ts";
import { sealing, type OrganizationSealer, type SealKey } from "./lib/seal.ts";
import type { WorkerPool } from "./lib/worker-pool.ts";
import type { OpenStores } from "./open-stores.ts";
import { ServedNames } from "./telemetry/served-names.ts";
import { redisToolCache } from "./tools/cache.ts";
import { redisCallLimit, type AdmitToolCall } from "./tools/call-limit.ts";
import { createToolbox } from "./tools/toolbox.ts";
import { ownAddresses, type OwnAddresses } from "./tools/url-guard/own-addresses.ts";
import { ownPlaces, type OwnPlace } from "./tools/url-guard/own-places.ts";
import { dnsResolver } from "./tools/url-guard/resolver.ts";
import { ExtractionPool } from "./tools/web-fetch/extract/pool.ts";
import { RobotsCache } from "./tools/web-fetch/robots-cache.ts";
import { countUpstream, type CountUpstream } from "./upstream/count-tokens.ts";
import { newUpstreamDispatcher } from "./upstream/dispatcher.ts";
import { Upstreams } from "./upstream/upstreams.ts";

/** Storage limits of an organization that has left the snapshot, while its last batches end. */
const DEFAULT_STORAGE = { maxBytes: 10 * 2 ** 30, maxFiles: 100_000 };

export interface ServingParts {
  readonly upstreams: Upstreams;
  readonly countUpstream: CountUpstream;
  readonly files: FileStore;
  readonly sealerOf: (organizationId: string) => OrganizationSealer;
  /** The threads that work on large bodies. */
  readonly large: WorkerPool;
  /** Addresses that web_fetch never reaches, from `ownPlaces`. */
  readonly own: OwnAddresses;
  /** Places of the release. The addresses of this process' listeners are added once they listen. */
  readonly ownPlaces: OwnPlace[];
  /** Admits tool calls up to an organization's limit a minute in all processes. */
  readonly admitToolCall: AdmitToolCall;
  /** Serves inference; its tool calls run when `admitToolCall` lets them. */
  serveWith(admitToolCall: AdmitToolCall): Serve;
  /** To be destroyed when nobody asks an upstream any more. */
  readonly dispatchers: readonly Dispatcher[];
  /** To be closed when nothing is served any more. */
  readonly pools: readonly { close(): Promise<unknown> }[];
}

interface ServingNeeds {
  readonly environment: Environment;
  readonly log: Logger;
  readonly stores: OpenStores;
  readonly loader: SnapshotLoader;
  /** The body budget, which also counts the pages that tools open. */
  readonly bodies: ByteBudget;
}

/** Opens the parts. Starts threads and processes that are better warm, but no recurring work. */
export function openServing({ environment, log, stores, loader, bodies }: ServingNeeds): ServingParts {
  const { clock } = stores;
  const dispatcher = newUpstreamDispatcher();
  const fresh = newUpstreamDispatcher({ keepAlive: false });
  const upstreams = new Upstreams(dispatcher, { fresh });
  const names = new ServedNames();
  loader.subscribe(({ routing: { routes } }) => {
    upstreams.health.serve(routes);
    names.serve(routes);
  });
  const keys = sealKeys(environment, log);
  const sealerOf = sealing(keys);
  const large = newLargePool(keys);
  large.warm();
  const files = openFiles(environment.FILES_S3_URL, {
    postgres: stores.postgres,
    clock,
    newId,
    limitsOf: (organizationId) => loader.current?.organization(organizationId)?.storage ?? DEFAULT_STORAGE,
  });
  const pages = openPages(loader);
  const places = releasePlaces(environment);
  const own = ownAddresses(places);
  const cache = redisToolCache(stores.cacheRedis);
  const serveWith = (admitToolCall: AdmitToolCall): Serve => {
    const runTool = createToolbox({
      admit: admitToolCall,
      bodies,
      fetch: { resolver: dnsResolver(), pool: pages, cache, robots: new RobotsCache(), clock, own },
      search: { dispatcher, cache },
      posts: { dispatcher, clock },
    });
    const serveOpened = createServe(upstreams, sealerOf, runTool, large);
    return withFileReferences(withItemReferences(serveOpened, cache), files, large);
  };
  return {
    upstreams,
    countUpstream: countUpstream(dispatcher),
    files,
    sealerOf,
    large,
    own,
    ownPlaces: places,
    admitToolCall: redisCallLimit(stores.redis),
    serveWith,
    dispatchers: [dispatcher, fresh],
    pools: [pages, large],
  };
}

/** Opens the pool that reads pages. Its two processes take memory: they start only if a policy lets a model open pages. */
function openPages(loader: SnapshotLoader): ExtractionPool {
  const pages = new ExtractionPool();
  const warmIfOpened = (snapshot: Snapshot | null) => {
    if (snapshot?.opensPages === true) pages.warm();
  };
  warmIfOpened(loader.current);
  loader.subscribe(warmIfOpened);
  return pages;
}

/** The release's own stores, API server and whatever its chart names. */
const releasePlaces = (environment: Environment): OwnPlace[] =>
  ownPlaces({
    stores: [
      [environment.DATABASE_URL, 5432],
      [environment.DATABASE_READ_URL, 5432],
      [environment.REDIS_URL, 6379],
      [environment.REDIS_CACHE_URL, 6379],
      [environment.FILES_S3_URL, 443],
    ],
    more: environment.OWN_HOSTS,
    apiServer: environment.KUBERNETES_SERVICE_HOST,
  });

/** Without keys a pod makes its own: what it seals opens nowhere else and not after a restart. */
function sealKeys({ GAPURA_SEAL_KEYS }: Environment, log: Logger): readonly SealKey[] {
  if (GAPURA_SEAL_KEYS !== undefined) return GAPURA_SEAL_KEYS;
  log.warn("GAPURA_SEAL_KEYS is not set: what is sealed now opens only until this process ends");
  return [{ id: "ephemeral", key: randomBytes(32) }];
}

/** Files go to S3-compatible storage when it is configured, else to Postgres, where older files may still be. */
function openFiles(
  s3Url: string | undefined,
  options: Omit<FileStoreOptions, "contents" | "others">,
): FileStore {
  const rows = new PostgresContents(options.postgres);
  const places =
    s3Url === undefined ? { contents: rows } : { contents: new S3Contents(s3Url), others: [rows] };
  return new FileStore({ ...options, ...places });
}
