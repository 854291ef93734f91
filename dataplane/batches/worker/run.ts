/** Runs one item: the same way as a live request, with the answer kept instead of sent (service.md "Batches"). */
import type { Logger } from "pino";
import type { Bill, Meter } from "../../billing/meter.ts";
import type { Holds } from "../../billing/holds/holds.ts";
import type { UsageRow } from "../../billing/ledger/usage-row.ts";
import { findRoute } from "../../config/find-route.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import { dialectPath } from "../../dialects/dialect.ts";
import { dialectErrorFamily, errorStatus } from "../../dialects/errors.ts";
import { type AnswerBytes, joinedBytes } from "../../inference/answer/answer-bytes.ts";
import type { AnswerSink, BodyLease, InferenceCall, Serve } from "../../inference/call.ts";
import { rememberRefused } from "../../inference/refused-call.ts";
import type { Principal } from "../../identity/principal.ts";
import { ApiError } from "../../lib/api-error.ts";
import { apiErrorOf } from "../../store/store-away.ts";
import type { Clock } from "../../lib/clock.ts";
import { Cancellation } from "../../lib/cancellation.ts";
import { Shutdown } from "../../lib/shutdown.ts";
import { requestRecord, type RequestRecords } from "../../telemetry/request-record.ts";
import { newRequestSummary, type RequestSummary } from "../../telemetry/request-summary.ts";
import { endRequestSpan, startRequestSpan } from "../../telemetry/trace.ts";
import type { ClaimedItem } from "./claim.ts";
import { NOT_BEGUN } from "./item-lease.ts";
import { isUpstreamRefusal, judgeRun, type RunVerdict } from "./outcome.ts";
import { TOOLS_IN_USE, type ToolRoom } from "./tool-room.ts";
import { erroredLine, resultCode, succeededLine } from "../lines.ts";

export interface RunServices {
  readonly serve: Serve;
  /** `Holds.forItem`. */
  readonly meterFor: Holds["forItem"];
  readonly snapshot: () => Snapshot;
  /** `KeyDirectory.limitsOf`. */
  readonly limitsOf: (keyId: string, projectId: string) => Promise<Pick<Principal, "limits" | "keyEpoch">>;
  readonly toolRoom: ToolRoom;
  readonly log: Logger;
  readonly clock: Clock;
  readonly random: () => number;
  /** Stores a record of each run; absent where none are stored. */
  readonly records?: RequestRecords;
  /** Whether a run on the item's route that began after `since`, Unix milliseconds, succeeded. */
  readonly succeededSince: (item: ClaimedItem, since: number) => boolean;
}

/** The outcome of a run, to be stored. */
export type ItemEnd =
  | {
      readonly kind: "over";
      readonly state: "succeeded" | "errored";
      /** Whether an upstream answered, if only to refuse it. */
      readonly answered: boolean;
      readonly line: Buffer;
      /** What it cost; null: nothing. */
      readonly row: UsageRow | null;
      /** Releases the hold where the item was taken from this worker, so that `row` is not charged. */
      readonly release: () => Promise<void>;
    }
  | (Exclude<RunVerdict, { kind: "errored" }> & {
      /** Where it waits for a limit: the epoch of its organization's keys under which that refused it. */
      readonly keyEpoch?: number;
    });

/** One run of an item. */
interface Run {
  readonly item: ClaimedItem;
  readonly body: Buffer;
  readonly bodyLease: BodyLease;
  readonly charge: ItemCharge;
  readonly sink: KeptAnswer;
  readonly summary: RequestSummary;
  /** Tells that the item's time is over. */
  readonly waitedFor: Shutdown;
  /** Under which limits it runs; undefined: they are not known. */
  keyEpoch?: number;
}

/** Never throws. */
export async function runItem(
  services: RunServices,
  item: ClaimedItem,
  body: Buffer,
  bodyLease: BodyLease,
): Promise<ItemEnd> {
  const run: Run = {
    item,
    body,
    bodyLease,
    charge: new ItemCharge(services.meterFor, item.claim),
    sink: new KeptAnswer(),
    summary: newRequestSummary(
      startRequestSpan("batch item", {}, () => ({ "gapura.request_id": item.requestId })),
    ),
    waitedFor: new Shutdown(),
  };
  const { summary } = run;
  const startedAt = performance.now();
  const error = await serveItem(services, run);
  summary.errorCode = error?.code ?? summary.errorCode;
  const status = error === null ? 200 : errorStatus(dialectErrorFamily[item.dialect], error);
  if (summary.span !== null) endRequestSpan(summary, status);
  // A run that may not begin leaves no record: the item's record is of the run that begins, if any does.
  if (error?.cause !== TOOLS_IN_USE && error?.cause !== NOT_BEGUN)
    services.records?.add(
      requestRecord({ ...endOf(item), status, durationMs: performance.now() - startedAt }, summary),
    );
  return error === null ? await succeeded(run) : failed(services, run, error);
}

/** Serves the item as a live request. @returns the error that it ends in; null: none. */
async function serveItem(services: RunServices, run: Run): Promise<ApiError | null> {
  const { item, body, bodyLease, charge, sink, summary, waitedFor } = run;
  const log = services.log.child({ batch: item.batchId });
  let headers: InferenceCall["headers"] = {};
  let error: ApiError | null = null;
  let endTools = (_isWell: boolean): void => {};
  let timer: NodeJS.Timeout | undefined;
  try {
    headers = JSON.parse(item.headers) as InferenceCall["headers"];
    const snapshot = services.snapshot();
    // The organization left the snapshot before Postgres knew, or is back in Postgres first: the item waits (rule 4.5).
    if (snapshot.organization(item.organizationId) === undefined) throw organizationGone();
    const limits = await services.limitsOf(item.keyId, item.projectId);
    run.keyEpoch = limits.keyEpoch;
    timer = setTimeout(() => waitedFor.tell(), timeLeft(snapshot, item, services.clock.now()));
    await services.serve({
      id: item.requestId,
      acceptedAt: item.acceptedAt,
      dialect: item.dialect,
      body,
      bodyLease,
      headers,
      principal: {
        kind: "inference",
        keyId: item.keyId,
        keyName: "",
        expiresAt: null,
        organizationId: item.organizationId,
        projectId: item.projectId,
        ...limits,
      },
      snapshot,
      meter: charge.meter,
      batchId: item.batchId,
      beginTools: (toolLimits) => {
        endTools = services.toolRoom.begin(item.organizationId, toolLimits);
      },
      sink,
      shutdown: waitedFor,
      log,
      summary,
    });
    if (!sink.ended || sink.status !== 200) throw new Error(`serving ended with status ${sink.status}`);
  } catch (fault) {
    if (!(fault instanceof ApiError))
      log.error({ request_id: item.requestId, err: fault }, "a batch item failed unexpectedly");
    rememberRefused({ body, headers, summary });
    error = apiErrorOf(fault);
  } finally {
    clearTimeout(timer);
  }
  endTools(error === null);
  return error;
}

async function succeeded({ item, sink, charge }: Run): Promise<ItemEnd> {
  const line = await succeededLine(item.form, item, sink.body);
  const { release, row } = charge;
  return { kind: "over", state: "succeeded", answered: true, line, release, row };
}

function failed(services: RunServices, run: Run, error: ApiError): ItemEnd {
  const { item, charge, summary, waitedFor, keyEpoch } = run;
  const verdict = judge(services, item, charge, error);
  if (verdict.kind === "again" && verdict.because === "limit" && keyEpoch !== undefined)
    return { ...verdict, keyEpoch };
  if (verdict.kind !== "errored") return verdict;
  const theirs = summary.tries > 0 && !error.code.startsWith("unsupported_");
  const isCutOff = waitedFor.hasCome && error.code === "unavailable";
  const line = erroredLine(item.form, item, isCutOff ? timeOver() : theirs ? inOwnWords(error) : error);
  const { release, row } = charge;
  return {
    kind: "over",
    state: "errored",
    answered: row !== null || isUpstreamRefusal(error),
    line,
    release,
    row,
  };
}

/**
 * Milliseconds until a run is cut off, however many calls its tool loop makes: an item that runs when its batch's time is over
 * has the route's request time-out from then on (rule 4.5).
 */
function timeLeft(
  snapshot: Snapshot,
  { organizationId, model, expiresAt }: ClaimedItem,
  now: number,
): number {
  const route = model === null ? undefined : findRoute(snapshot, { organizationId, limits: [] }, model);
  return Math.max(0, expiresAt - now + (route?.timeouts.requestMs ?? 0));
}

const judge = (services: RunServices, item: ClaimedItem, charge: ItemCharge, error: ApiError): RunVerdict =>
  judgeRun(
    {
      error,
      charged: charge.row !== null,
      admitted: charge.opened,
      faults: item.faults,
      ownFaults: item.ownFaults,
      now: services.clock.now(),
      expiresAt: item.expiresAt,
      othersSucceed: services.succeededSince(item, item.firstFaultAt ?? Number.POSITIVE_INFINITY),
    },
    services.random(),
  );

/**
 * The item's fields of its request record; nobody waited for a first byte. The time is its batch's, not the item's own
 * `acceptedAt`, which changes after a wait for a limit: so the records of all its runs have one key, and it is listed once.
 */
const endOf = (item: ClaimedItem) => ({
  id: item.requestId,
  acceptedAt: item.createdAt,
  organizationId: item.organizationId,
  projectId: item.projectId,
  keyId: item.keyId,
  method: "POST",
  url: dialectPath[item.dialect],
  dialect: item.dialect,
  firstByteMs: null,
  batchId: item.batchId,
});

const organizationGone = (): ApiError =>
  new ApiError("unavailable", "This organization is not served at the moment.", { retryAfterSeconds: 1 });

/** The error of a run that was cut off as its batch's time was over: neither the upstream nor this service failed. */
const timeOver = (): ApiError =>
  new ApiError("timeout", "The time of the batch was over before the answer was whole.");

/** Replaces an upstream's message: no text of a provider enters a result (service.md "What becomes of an item"). */
function inOwnWords(error: ApiError): ApiError {
  const message =
    resultCode(error) === "upstream_error"
      ? "The upstream failed; retry shortly."
      : "The request was rejected upstream.";
  return new ApiError(error.code, message);
}

/** The charge of an item's run, kept until it is stored together with the result. */
class ItemCharge {
  row: UsageRow | null = null;
  readonly meter: Meter;
  #bill: Bill | null = null;
  #giveBack: (() => Promise<void>) | null = null;

  constructor(meterFor: RunServices["meterFor"], claim: string) {
    const meter = meterFor(claim, (row, giveBack) => {
      this.row = row;
      this.#giveBack = giveBack;
    });
    this.meter = {
      open: async (request, estimate, span) => {
        this.#bill = await meter.open(request, estimate, span);
        return this.#bill;
      },
    };
  }

  /** Whether the meter has admitted the item, so that a later failure is not a lack of credit. */
  get opened(): boolean {
    return this.#bill !== null;
  }

  /** Releases the hold, also after a row was made that is not charged. */
  readonly release = async (): Promise<void> =>
    this.#giveBack === null ? this.#bill?.release() : this.#giveBack();
}

/** Keeps an answer in memory; upstreams' answers are bounded where they are read. */
class KeptAnswer implements AnswerSink {
  status = 0;
  ended = false;
  readonly closed = new Cancellation();
  readonly waitingBytes = 0;
  readonly #pieces: Buffer[] = [];

  start(status: number): void {
    this.status = status;
  }

  write(bytes: AnswerBytes): boolean {
    this.#pieces.push(Buffer.isBuffer(bytes) ? bytes : joinedBytes(bytes));
    return true;
  }

  drained(): Promise<void> {
    return Promise.resolve();
  }

  end(bytes?: AnswerBytes): void {
    if (bytes !== undefined) this.write(bytes);
    this.ended = true;
  }

  get body(): Buffer {
    // A whole answer is one piece, of many MiB perhaps.
    return this.#pieces.length === 1 ? (this.#pieces[0] as Buffer) : Buffer.concat(this.#pieces);
  }
}
