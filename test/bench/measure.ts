/** Measuring the contestants side by side: rounds in turns, so that a busy machine disturbs all of them alike. */
import { setTimeout as sleep } from "node:timers/promises";
import { median, percentile } from "./figures.ts";
import { load, sparseLoad } from "./load.ts";
import { isStream, requestFor, type Mode } from "./payloads.ts";
import { treeCpuMicros } from "./proc.ts";
import type { Contestant } from "./world.ts";

export interface Subject {
  readonly label: string;
  readonly contestant: Contestant;
  readonly mode: Mode;
  /** Where it differs from the contestant's own path for the mode. */
  readonly path?: string;
  /** Another one than the bench's usual. */
  readonly key?: string;
}

export interface Rounds {
  readonly rounds: number;
  readonly ms: number;
  /** Requests at once, each connection's next one as soon as it is answered. */
  readonly width: number;
  /** So many requests a second instead, whether or not earlier ones are answered: then both subjects do the same work. */
  readonly perSecond?: number;
}

export interface Measured {
  readonly label: string;
  /** Medians over the rounds. */
  readonly cpuMicros: number;
  readonly perSecond: number;
  readonly firstByteP50Ms: number;
  readonly wholeP50Ms: number;
  readonly wholeP99Ms: number;
}

/** What a contestant did last is over by then. */
const SETTLE_MS = 50;

/**
 * A server runs for weeks. Compiling what runs often goes on for tens of thousands of requests, on threads of its own
 * that cost a young process as much as a fifth of its time; a bare relay has less to compile.
 */
const WARM_UP = { ms: 1_500, width: 64, json: 60_000, stream: 2_000, atMostMs: 25_000, singleRoundMs: 5_000 };

/** A warm-up for whatever is new, then the rounds in turns. */
export async function measure(subjects: readonly Subject[], rounds: Rounds): Promise<Measured[]> {
  const runs = subjects.map((subject) => ({ subject, results: [] as Omit<Measured, "label">[] }));
  for (const { subject } of runs) await warmUp(subject, rounds);
  for (let round = 0; round < rounds.rounds; round += 1) {
    // The order turns, so that none always follows the same one.
    for (let turn = 0; turn < runs.length; turn += 1) {
      const run = runs[(turn + round) % runs.length];
      if (run !== undefined) run.results.push(await once(run.subject, rounds));
    }
  }
  return runs.map(({ subject, results }) => {
    const middle = (field: keyof Omit<Measured, "label">) => median(results.map((result) => result[field]));
    return {
      label: subject.label,
      cpuMicros: middle("cpuMicros"),
      perSecond: middle("perSecond"),
      firstByteP50Ms: middle("firstByteP50Ms"),
      wholeP50Ms: middle("wholeP50Ms"),
      wholeP99Ms: middle("wholeP99Ms"),
    };
  });
}

/** What has been warmed up in this run, by process and path. */
const warm = new Set<string>();

async function warmUp(subject: Subject, rounds: Rounds): Promise<void> {
  const { contestant, mode, path = "", key = "" } = subject;
  const what = `${contestant.pid} ${mode} ${path} ${key}`;
  if (warm.has(what)) return;
  warm.add(what);
  const enough = isStream(subject.mode) ? WARM_UP.stream : WARM_UP.json;
  const atMostMs = rounds.rounds === 1 ? WARM_UP.singleRoundMs : WARM_UP.atMostMs;
  const started = performance.now();
  let requests = 0;
  do {
    const { perSecond } = await once(subject, { rounds: 1, width: WARM_UP.width, ms: WARM_UP.ms });
    requests += (perSecond * WARM_UP.ms) / 1_000;
  } while (requests < enough && performance.now() - started < atMostMs);
}

async function once({ contestant, mode, path, key }: Subject, { ms, width, perSecond }: Rounds) {
  const request = requestFor({
    path: path ?? contestant.path(mode),
    model: mode,
    stream: isStream(mode),
    ...(key === undefined ? {} : { key }),
  });
  const before = treeCpuMicros(contestant.pid);
  const { port } = contestant;
  const result = await (perSecond === undefined
    ? load({ port, request, width, ms })
    : sparseLoad({ port, request, perSecond, ms }));
  if (result.shed > 0)
    process.stderr.write(`bench: ${contestant.name} refused ${result.shed} requests as overloaded\n`);
  await sleep(SETTLE_MS);
  const cpuMicros = (treeCpuMicros(contestant.pid) - before) / result.requests;
  return {
    cpuMicros,
    perSecond: (result.requests * 1_000) / result.ms,
    firstByteP50Ms: percentile(result.firstByteMs, 0.5),
    wholeP50Ms: percentile(result.wholeMs, 0.5),
    wholeP99Ms: percentile(result.wholeMs, 0.99),
  };
}
