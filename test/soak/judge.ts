/** The oracles of a soak, from outside: what clients, upstreams and the ledger say must fit. Pure: each returns what does not. */
import { errorKinds, type ErrorKind } from "../../dataplane/lib/api-error.ts";
import type { Call, Exchange, Failure, Item, Log, Row, SeenBatch, SeenError, Window } from "./log.ts";
import { editedPrices, OUTPUT_MICROS, PRICED_MODEL, PROVIDER_KEY, SEARCH_MICROS } from "./manifests.ts";

/** The upstream tells a marker by its tokens: ten times as many when it was answered whole. */
export const outputOf = (marker: number): number => 10 * marker;
/** Of the last of two iterations, more than its text has if it is counted; the first has the others. */
export const LAST_ITERATION_OUTPUT = 900;

/** Words that belong to us alone: addresses, libraries, statements, files, an upstream's secrets and its own text. */
const internals = [
  /\b(?:127\.0\.0\.1|10\.0\.0\.\d+|localhost)\b/,
  /\b(?:ECONN\w+|EPIPE|ENOSPC|ETIMEDOUT|UND_ERR\w*|ioredis|slonik|undici|fastify|zod)\b/i,
  /\b(?:redis|postgres(?:ql)?|sqlstate|relation "|lua)\b/i,
  /node_modules|\.ts:\d+|\bat \w+ \(/,
  new RegExp(`${PROVIDER_KEY}|provider-(?:org-)?secret`),
];

const kinds: readonly ErrorKind[] = Object.values(errorKinds);

/** Whether the table of errors has it, in either style. */
export function isDocumented({ status, type, code }: SeenError): boolean {
  return kinds.some(
    (kind) =>
      (status === null || status === kind.status) &&
      ((kind.messagesType === type && code === (kind.detailsCode ?? null)) ||
        (kind.openaiType === type && kind.openaiCode === code)),
  );
}

/** The failures that an exchange may be explained by; none: nothing explains it. */
function failuresOf({ outcome, error }: Exchange): Failure[] {
  if (outcome === "broken" || outcome === "late") return [outcome];
  if (outcome !== "error" || error === null) return [];
  const status = error.status ?? statusInside(error);
  if (status === 503 || status === 529) return ["unavailable", "upstream"];
  if (status === 429) return ["limited", "upstream"];
  return status === 502 || status === 504 ? ["upstream"] : [];
}

/** The status that an error inside a stream would have had. */
function statusInside({ type, code }: SeenError): number | null {
  const named = kinds.filter(
    (kind) =>
      (kind.openaiType === type && kind.openaiCode === code) ||
      (kind.messagesType === type && (kind.detailsCode ?? null) === code),
  );
  // Messages' `api_error` without a code is what says nothing more: the least that it can be is the upstream's.
  return (named.find(({ status }) => status >= 502) ?? named[0])?.status ?? null;
}

/**
 * A data plane that got too little of a busy machine says so, with the time to come again: a client does. How often that was is
 * counted and told.
 */
export const isShed = ({ outcome, error }: Exchange): boolean =>
  outcome === "error" && error?.status === 503 && error.message.startsWith("The service is overloaded");

/** What clients saw that nothing explains, and errors that are not as documented or tell of the inside. */
export function judgeExchanges({ exchanges, calls, windows }: Log): string[] {
  return exchanges.flatMap((exchange) => {
    const { what, outcome, error, detail } = exchange;
    const breaches: string[] = [];
    const tell = (breach: string) => breaches.push(`${breach}: ${exchangeText(exchange)}`);
    if (outcome === "wrong") tell("wrong answer");
    if (error !== null) {
      if (!isDocumented(error)) tell("an error that no table has");
      if (internals.some((word) => word.test(error.message))) tell("an error that tells of the inside");
    }
    if (["complete", "refused", "aborted", "wrong"].includes(outcome)) return breaches;
    const failures = failuresOf(exchange);
    const explained =
      isShed(exchange) ||
      windows.some((window) => explains(window, exchange, failures)) ||
      explainedByCalls(exchange, failures, calls);
    if (!explained) tell(`unexplained ${what === "" ? detail : "failure"}`);
    return breaches;
  });
}

const explains = ({ from, to, planes, failures }: Window, seen: Exchange, of: readonly Failure[]) =>
  planes.includes(seen.plane) &&
  from <= seen.to &&
  (to === null || to >= seen.from) &&
  of.some((failure) => failures.includes(failure));

/** An upstream that failed one of its calls. Its 400 is about the client's own request (rule 1.5). */
function explainedByCalls({ marker, error }: Exchange, failures: readonly Failure[], calls: Log["calls"]) {
  const faulted = (marker === null ? [] : (calls.get(marker) ?? [])).filter(({ fault }) => fault !== null);
  if (faulted.some(({ fault }) => fault === "status 400") && error?.status === 400) return true;
  return faulted.length > 0 && failures.includes("upstream");
}

const exchangeText = (exchange: Exchange): string => {
  const { what, marker, plane, from, to, status, outcome, error, detail, requestId } = exchange;
  const seconds = (ms: number) => (ms / 1000).toFixed(1);
  const said = error === null ? detail : `${error.type}, ${error.code ?? "no code"}: ${error.message}`;
  return `${what} (${marker ?? "–"}, ${requestId ?? "no id"}) at ${"ab"[plane]}, ${seconds(from)} to ${seconds(to)} s: ${outcome} ${status ?? ""} ${said}`;
};

/** Every complete answer is charged once, for what it said; nothing is charged that no upstream served. */
export function judgeCharges({ exchanges, calls, windows }: Log, rows: readonly Row[]): string[] {
  const breaches: string[] = [];
  const byMarker = new Map<number, Row>();
  for (const row of rows) {
    if (row.cost !== costOf(row) && row.cost !== costOf(row, editedPrices[1]))
      breaches.push(`${row.id}: it costs ${row.cost}, its parts ${costOf(row)}`);
    if (row.marker === null) continue;
    const other = byMarker.get(row.marker);
    if (other !== undefined) breaches.push(`${row.marker} is charged twice: ${other.id} and ${row.id}`);
    byMarker.set(row.marker, row);
    breaches.push(...judgeRow(row, calls.get(row.marker) ?? []));
  }
  for (const seen of exchanges) {
    const { marker, outcome } = seen;
    if (marker === null) continue;
    const row = byMarker.get(marker);
    const tell = (breach: string) => breaches.push(`${marker}: ${breach}: ${exchangeText(seen)}`);
    if (outcome === "complete") {
      if (row === undefined) tell("answered and not charged");
      else breaches.push(...judgeAnswered(seen, row, calls.get(marker) ?? []));
    } else if (outcome === "aborted" && row === undefined && (calls.get(marker) ?? []).length > 0) {
      // Rule 1.11: a call whose request went out is charged. A data plane that was hurt meanwhile may not have noted it.
      const hurt = windows.some(
        ({ planes, from, to }) =>
          planes.includes(seen.plane) && from <= seen.to + 5_000 && (to ?? Infinity) >= seen.from,
      );
      if (!hurt && (calls.get(marker) ?? []).every(({ fault }) => fault === null))
        tell("its client left, and it is not charged");
    }
  }
  return breaches;
}

function costOf(row: Row, edited: bigint = editedPrices[0]): bigint {
  const output = row.model === PRICED_MODEL ? edited : OUTPUT_MICROS;
  return row.input + row.output * output + row.searches * SEARCH_MICROS;
}

/** What is charged was served, and is no more than was reported. */
function judgeRow(row: Row, calls: readonly Call[]): string[] {
  const breaches: string[] = [];
  if (calls.length < row.iterations)
    breaches.push(
      `${row.marker}: ${row.iterations} iterations are charged, ${calls.length} calls were served`,
    );
  const most = Math.max(outputOf(row.marker ?? 0), ...calls.map(({ output }) => output));
  if (row.output > BigInt(most))
    breaches.push(`${row.marker}: ${row.output} output tokens are charged, ${most} were reported`);
  return breaches;
}

function judgeAnswered(seen: Exchange, row: Row, calls: readonly Call[]): string[] {
  const breaches: string[] = [];
  const tell = (breach: string) => breaches.push(`${row.marker}: ${breach}: ${exchangeText(seen)}`);
  if (row.provisional) tell("answered, and charged provisionally");
  if (seen.requestId !== null && row.id !== seen.requestId) tell(`charged under another id, ${row.id}`);
  // An upstream that reports nothing is relayed as it is, and charged by an estimate (rule 1.6).
  const unreported = calls.some(({ fault }) => fault === "no usage");
  if (seen.told !== null && BigInt(seen.told) !== row.output && !unreported)
    tell(`told ${seen.told} output tokens, charged for ${row.output}`);
  // Two iterations of a tool loop together, or the first alone where credit does not suffice for the second.
  const whole = calls.every(({ fault, ended }) => fault === null && ended() === "answered");
  const reported = calls.reduce((sum, { output }) => sum + output, 0);
  if (whole && (Number(row.output) !== reported || reported > outputOf(row.marker ?? 0)))
    tell(`charged for ${row.output} output tokens, ${reported} were reported`);
  if (whole && Number(row.input) !== row.iterations)
    tell(`charged for ${row.input} input tokens in ${row.iterations} iterations`);
  return breaches;
}

/**
 * No line is lost or doubled; each success has its row, for what its line says. The items of a batch of files are gone once its
 * files are written: its lines name their rows.
 */
export function judgeBatches(
  batches: readonly SeenBatch[],
  items: readonly Item[],
  rows: readonly Row[],
  calls: Log["calls"],
): string[] {
  const byBatch = Map.groupBy(items, ({ batchId }) => batchId);
  const byId = new Map(rows.map((row) => [row.id, row]));
  return batches.flatMap((batch) => {
    const name = `batch ${batch.id}`;
    if (!batch.ended) return [`${name} has not ended`];
    if (batch.lines === null) return [`${name}: its lines could not be read`];
    const breaches: string[] = [];
    const kept = new Map((byBatch.get(batch.id) ?? []).map((item) => [item.customId, item]));
    const lines = Map.groupBy(batch.lines, ({ customId }) => customId);
    for (const id of lines.keys())
      if (!batch.markers.has(id)) breaches.push(`${name}: a line of nobody, ${id}`);
    for (const [id, marker] of batch.markers) {
      const [line, ...more] = lines.get(id) ?? [];
      if (more.length > 0) breaches.push(`${name}: ${id} has ${more.length + 1} lines`);
      if (line === undefined) {
        breaches.push(`${name}: ${id} has no line`);
        continue;
      }
      const row = kept.get(id)?.output ?? byId.get(line.requestId ?? "")?.output ?? null;
      const faulted = (calls.get(marker) ?? []).some(({ fault }) => fault !== null);
      if (line.outcome === "succeeded") {
        if (row === null) breaches.push(`${name}: ${id} succeeded and is not charged`);
        // As in `judgeAnswered`.
        else if (line.output === null ? !faulted : BigInt(line.output) !== row)
          breaches.push(`${name}: ${id} says ${line.output} output tokens, charged are ${row}`);
        if (!faulted && line.output !== outputOf(marker))
          breaches.push(`${name}: ${id} says ${line.output} output tokens instead of ${outputOf(marker)}`);
      } else if (line.outcome === "canceled") {
        if (!batch.canceled) breaches.push(`${name}: ${id} was canceled by nobody`);
        if (row !== null) breaches.push(`${name}: ${id} was canceled and is charged`);
      } else if (line.outcome === "expired" || !faulted)
        breaches.push(`${name}: ${id} ${line.outcome}, and nothing explains it`);
    }
    return breaches;
  });
}
