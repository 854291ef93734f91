/**
 * All metrics of the data plane in one table (design.md §7), except those by organization (organization-metrics.ts). Labels
 * have bounded cardinality: `model` and `upstream` are names from the snapshot, never text from a client; no label holds a
 * key, a user or an id.
 */
import { Counter, Gauge, Registry } from "prom-client";
import { CreditCounter, TallyCounter, TallyGauge, TallyHistogram } from "./tally.ts";

/** Served on the ops port. */
export const registry = new Registry();
const registers = [registry];

/**
 * Buckets of request durations, which range from a millisecond (a refusal) to ten minutes (a long stream). Each bucket is a
 * series for each dialect and model: with 200 models in three dialects this histogram and `firstByteSeconds` together have
 * some 10,000, so there are few buckets.
 */
const answerSeconds = [0.5, 2.5, 10, 60, 600];
const firstByteSeconds = [0.1, 0.5, 1, 2.5, 10, 60];
/** Buckets of store calls: a millisecond is normal; at five seconds a statement is about to be given up. */
const storeSeconds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1, 5];
/** Buckets of the latency that the gateway itself adds, normally a fraction of a millisecond. */
const overheadSeconds = [0.0002, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.05, 0.25, 1, 5];

export const metrics = {
  /** `dialect` is `messages`, `chat`, `responses` or `other`; `model` a public id or `none`; `status` the HTTP status, 499 when the client disconnected first. */
  requests: new TallyCounter({
    name: "gapura_requests_total",
    help: "Answered requests.",
    labelNames: ["dialect", "model", "status"],
    registers,
  }),
  requestDuration: new TallyHistogram({
    name: "gapura_request_duration_seconds",
    help: "From the request's headers to the end of its answer.",
    labelNames: ["dialect", "model"],
    buckets: answerSeconds,
    registers,
  }),
  firstByte: new TallyHistogram({
    name: "gapura_first_byte_seconds",
    help: "From the request's headers to the first byte of its answer.",
    labelNames: ["dialect", "model"],
    buckets: firstByteSeconds,
    registers,
  }),
  overhead: new TallyHistogram({
    name: "gapura_overhead_seconds",
    help: "Time to the first byte that was not spent waiting for an upstream.",
    labelNames: ["dialect"],
    buckets: overheadSeconds,
    registers,
  }),
  /** `kind`: input, cache_read, cache_write, output. The series of one answer sum to its input + output (rule 1.15). */
  tokens: new TallyCounter({
    name: "gapura_tokens_total",
    help: "Charged tokens; output includes reasoning.",
    labelNames: ["model", "kind"],
    registers,
  }),
  credits: new CreditCounter({
    name: "gapura_credits_total",
    help: "Credits charged.",
    labelNames: ["model"],
    registers,
  }),
  holds: new TallyGauge({
    name: "gapura_holds",
    help: "Requests of this process that hold credit.",
    registers,
  }),
  /** `outcome`: taken (the receiver accepted it), failed, or refused (by the URL guard). */
  notifications: new Counter({
    name: "gapura_notifications_total",
    help: "Attempts to deliver a notification of spent credit.",
    labelNames: ["outcome"],
    registers,
  }),
  usageLag: new Gauge({
    name: "gapura_usage_lag_entries",
    help: "Settled requests that are not in the ledger yet.",
    labelNames: ["shard"],
    registers,
  }),
  /** `check`: the name of a line of `/readyz`; those of stores are `postgres`, `redis` and `ledger`. */
  ready: new Gauge({
    name: "gapura_ready",
    help: "1 while /readyz finds nothing amiss with it, 0 else; looked at with each scrape.",
    labelNames: ["check"],
    registers,
  }),
  replicaUp: new Gauge({
    name: "gapura_read_replica_up",
    help: "1 while reports and lists are read from DATABASE_READ_URL; 0 while all is read from DATABASE_URL.",
    registers,
  }),
  replicaLag: new Gauge({
    name: "gapura_read_replica_lag_seconds",
    help: "By how much DATABASE_READ_URL is behind DATABASE_URL, to the second.",
    registers,
  }),
  ledgerLost: new Counter({
    name: "gapura_ledger_lost_credits_total",
    help: "Credits charged as one sum because Postgres was restored without charges that Redis still had.",
    registers,
  }),
  keptBytes: new Gauge({
    name: "gapura_kept_charges_bytes",
    help: "Bytes of this process' charges that are not in the ledger yet; above 134217728 new requests are refused.",
    registers,
  }),
  pending: new Gauge({
    name: "gapura_pending_operations",
    help: "Holds to release and balances to update that Redis has not accepted yet.",
    registers,
  }),
  pendingDropped: new Counter({
    name: "gapura_pending_operations_dropped_total",
    help: "Pending operations dropped because too many waited; the sweeper and the search for changed accounts repair them later.",
    registers,
  }),
  deadLetters: new Gauge({
    name: "gapura_dead_letters",
    help: "Charges that the ledger refuses to store as usage rows, of all pods together.",
    registers,
  }),
  /** `outcome`: ok, or the error code that the model received. */
  toolCalls: new Counter({
    name: "gapura_tool_calls_total",
    help: "Server-tool calls.",
    labelNames: ["tool", "outcome"],
    registers,
  }),
  /** `status`: an HTTP status, or connect, timeout, cut, garbage (these also after a 2xx status), exhausted, unsendable, cancelled. */
  upstreamRequests: new TallyCounter({
    name: "gapura_upstream_requests_total",
    help: "Calls to upstreams, retries counted singly.",
    labelNames: ["model", "upstream", "status"],
    registers,
  }),
  upstreamActive: new TallyGauge({
    name: "gapura_upstream_active_requests",
    help: "Calls to upstreams that are under way.",
    labelNames: ["model", "upstream"],
    registers,
  }),
  upstreamEjected: new Gauge({
    name: "gapura_upstream_ejected",
    help: "1 while an upstream is ejected for its failures.",
    labelNames: ["model", "upstream"],
    registers,
  }),
  /** `state`: waiting or running. */
  batchItems: new Gauge({
    name: "gapura_batch_items",
    help: "Batch items that are not over yet, of all pods together.",
    labelNames: ["state"],
    registers,
  }),
  batchAge: new Gauge({
    name: "gapura_batch_oldest_item_seconds",
    help: "Age of the oldest batch item that is not over yet, of all pods together.",
    labelNames: ["state"],
    registers,
  }),
  /** `state`: succeeded or errored. */
  batchItemsDone: new Counter({
    name: "gapura_batch_items_done_total",
    help: "Batch items whose results this process stored.",
    labelNames: ["state"],
    registers,
  }),
  batchRetries: new Counter({
    name: "gapura_batch_item_retries_total",
    help: "Batch items that were put back to run again later.",
    registers,
  }),
  batchResultsRefused: new Gauge({
    name: "gapura_batch_results_refused",
    help: "Results of this process that Postgres refuses although it is up; they are retried until their batch expires.",
    registers,
  }),
  /** `outcome`: how the item ended instead: errored (its run is charged) or expired (nothing is charged). */
  batchResultsGivenUp: new Counter({
    name: "gapura_batch_results_given_up_total",
    help: "Results of batch items that Postgres refused for good.",
    labelNames: ["outcome"],
    registers,
  }),
  /** `reason`: full (the store is slow), rate (too many requests that cost nothing), refused (by the store). */
  recordsDropped: new Counter({
    name: "gapura_request_records_dropped_total",
    help: "Records of requests that were not kept.",
    labelNames: ["reason"],
    registers,
  }),
  /** `store`: postgres, `operation` being the statement's first word; or redis, for scripts only, as requests wait for nothing else there. */
  storeSeconds: new TallyHistogram({
    name: "gapura_store_seconds",
    help: "Time until a store answered.",
    labelNames: ["store", "operation"],
    buckets: storeSeconds,
    registers,
  }),
  loopLag: new Gauge({
    name: "gapura_event_loop_lag_seconds",
    help: "Mean delay of the event loop over the last half second.",
    registers,
  }),
  buildInfo: new Gauge({
    name: "gapura_build_info",
    help: "1, labelled with the running version.",
    labelNames: ["version", "node"],
    registers,
  }),
  configInfo: new Gauge({
    name: "gapura_config_info",
    help: "1, labelled with the served configuration.",
    labelNames: ["hash", "serial"],
    registers,
  }),
  /** `outcome`: served or rejected. */
  configReloads: new Counter({
    name: "gapura_config_reloads_total",
    help: "Published configurations that were examined.",
    labelNames: ["outcome"],
    registers,
  }),
  /**
   * `kind`: cut, idle, deadline, error (reported by the upstream), garbage, stalled_client (it read nothing), tap (an event
   * that was relayed although it could not be read; counted for each event, so perhaps several times for one stream).
   */
  streamFaults: new Counter({
    name: "gapura_stream_faults_total",
    help: "Answers, streamed or whole, that did not end as they should, and events that could not be read.",
    labelNames: ["dialect", "kind"],
    registers,
  }),
  implausibleUsage: new TallyCounter({
    name: "gapura_implausible_usage_total",
    help: "Upstream calls whose reported usage was impossible and therefore not charged as reported.",
    labelNames: ["model", "upstream"],
    registers,
  }),
  /** `reason`: loop, heap, resident. */
  shed: new Counter({
    name: "gapura_shed_requests_total",
    help: "Requests refused with 503 because this process was overloaded.",
    labelNames: ["reason"],
    registers,
  }),
  bodyBytes: new TallyGauge({
    name: "gapura_body_bytes",
    help: "Bytes of request bodies, opened pages and long answers that this process holds, decoded.",
    registers,
  }),
  /** `reason`: the table of operations.md, "What is refused before it is served". */
  refused: new Counter({
    name: "gapura_refused_requests_total",
    help: "Requests refused by a limit before they were served, or ended as their answer found no room.",
    labelNames: ["reason"],
    registers,
  }),
} as const;

/** These series exist from the start: to Prometheus, a counter that first appears as 1 has not increased. */
for (const outcome of ["served", "rejected"]) metrics.configReloads.inc({ outcome }, 0);
for (const outcome of ["errored", "expired"]) metrics.batchResultsGivenUp.inc({ outcome }, 0);
for (const reason of ["full", "rate", "refused"]) metrics.recordsDropped.inc({ reason }, 0);
