/**
 * The faults of a soak: a pure function of the seed, so that a failing run is told by its seed and the number of faults,
 * and any prefix of it can be played again.
 */
import { seeded } from "../abuse/bodies.ts";
import type { Faults } from "../fakes/upstream/script.ts";

export type StoreName = "redis" | "postgres";
/** The two data planes. */
export type PlaneIndex = 0 | 1;
export const planeIndexes: readonly PlaneIndex[] = [0, 1];

/** What goes wrong with one call at an upstream: the fakes' own words, or an answer with that status. */
type UpstreamFault = Faults | { readonly status: number };

/** How an upstream may misbehave towards half of its calls for a while. */
export const upstreamFaults = {
  reset: { reset: true },
  hang: { hang: true },
  html: { html: true },
  empty: { empty: true },
  malformed: { malformed: true, malformedAtEvent: 2 },
  cut: { cutAtByte: 150 },
  "reset in the answer": { resetAtByte: 150 },
  stall: { stallAtByte: 150 },
  "no end": { noTerminal: true },
  "no usage": { noUsage: true },
  "error in the stream": {
    errorAtEvent: { event: 3, type: "overloaded_error", message: "10.0.0.7 is full" },
  },
  "slow head": { delayHeadersMs: 3_000 },
  "slow first byte": { delayFirstByteMs: 3_000 },
  "byte by byte": { chunkBytes: 7 },
  "at once": { atOnce: true },
  "status 400": { status: 400 },
  "status 401": { status: 401 },
  "status 404": { status: 404 },
  "status 429": { status: 429 },
  "status 500": { status: 500 },
  "status 503": { status: 503 },
  "status 529": { status: 529 },
} as const satisfies Record<string, UpstreamFault>;
export type UpstreamFaultName = keyof typeof upstreamFaults;

/** What is hurt, and how. Times in milliseconds. */
export type Harm =
  | { readonly kind: "plane"; readonly plane: PlaneIndex; readonly how: "kill" | "freeze" | "end" }
  | { readonly kind: "operator"; readonly how: "kill" | "freeze" | "end" }
  | { readonly kind: "store"; readonly store: StoreName; readonly how: "kill" | "freeze" | "restart" }
  /** `full`: it takes no writes; `disk`: its file system has no room; `sessions`: all its sessions are ended. */
  | { readonly kind: "store"; readonly store: StoreName; readonly how: "full" | "disk" | "sessions" }
  | {
      readonly kind: "network";
      readonly plane: PlaneIndex;
      readonly store: StoreName;
      readonly how: "cut" | "hole" | "no answers" | "slow" | "no commits";
      /** Of `slow`: each way. */
      readonly delayMs: number;
    }
  | { readonly kind: "upstream"; readonly how: "first is gone" | "all are gone" }
  | { readonly kind: "upstream"; readonly how: UpstreamFaultName }
  | { readonly kind: "engine"; readonly how: "fails" | "hangs" }
  | {
      readonly kind: "clock";
      readonly of: PlaneIndex | "operator" | "redis";
      readonly how: "time of day" | "time passed";
      readonly byMs: number;
    };

export interface Fault {
  /** From 1. */
  readonly number: number;
  /** After the fault before began. */
  readonly afterMs: number;
  readonly forMs: number;
  readonly harm: Harm;
}

export interface PlanOptions {
  readonly faults: number;
  /** Mean time from one fault to the next. */
  readonly everyMs: number;
  /** The stores are on file systems of their own, which can be filled. */
  readonly disks: boolean;
}

/** One in so many comes before the one before it is over. */
const OVERLAP = 6;
/** One in so many lasts long: beyond the time after which the holds of a silent owner are swept. */
const LONG = 14;
const LONG_MS = [20_000, 50_000] as const;
const USUAL_MS = [300, 5_000] as const;

/** The data plane that is never killed, so that one life lasts as long as the run. */
export const sparedPlane = (seed: number): PlaneIndex => (seed % 2 === 0 ? 0 : 1);

export function planFaults(seed: number, { faults, everyMs, disks }: PlanOptions): Fault[] {
  const random = seeded(seed);
  const between = ([low, high]: readonly [number, number]) => Math.round(low + random() * (high - low));
  const pick = <Value>(values: readonly Value[]): Value => {
    const value = values[Math.floor(random() * values.length)];
    if (value === undefined) throw new Error("nothing to choose from");
    return value;
  };
  return Array.from({ length: faults }, (_, index) => {
    const overlaps = random() < 1 / OVERLAP;
    const long = random() < 1 / LONG;
    const harm = drawHarm(pick, between, sparedPlane(seed), disks);
    return {
      number: index + 1,
      afterMs: overlaps ? between([200, 2_000]) : between([everyMs * 0.7, everyMs * 1.5]),
      forMs: between(long ? LONG_MS : USUAL_MS),
      harm,
    };
  });
}

type Pick = <Value>(values: readonly Value[]) => Value;

function drawHarm(
  pick: Pick,
  between: (range: readonly [number, number]) => number,
  spared: PlaneIndex,
  disks: boolean,
): Harm {
  const plane = pick(planeIndexes);
  const store = pick(["redis", "postgres"] as const);
  // Each draws the same number of times, so that a fault depends on nothing but the seed and its number.
  const delayMs = between([50, 700]);
  const byMs = pick([-3_600_000, -90_000, -2_000, 2_000, 90_000, 3_600_000]);
  const upstream = pick(Object.keys(upstreamFaults) as UpstreamFaultName[]);
  const how = {
    plane: pick(["kill", "kill", "freeze", "end"] as const),
    operator: pick(["kill", "freeze", "end"] as const),
    store: pick(["kill", "restart", "freeze", "full", "disk", "sessions"] as const),
    network: pick(["cut", "hole", "no answers", "slow", "no commits"] as const),
    gone: pick(["first is gone", "all are gone"] as const),
    engine: pick(["fails", "hangs"] as const),
    clock: pick([0, 1, "operator", "redis"] as const),
    clockHow: pick(["time of day", "time passed"] as const),
  };
  const kind = pick([
    "plane",
    "plane",
    "plane",
    "store",
    "store",
    "store",
    "store",
    "network",
    "network",
    "network",
    "upstream",
    "upstream",
    "upstream",
    "gone",
    "operator",
    "engine",
    "clock",
  ] as const);
  switch (kind) {
    case "plane":
      return how.plane === "freeze"
        ? { kind, plane, how: how.plane }
        : { kind, plane: spared === 0 ? 1 : 0, how: how.plane };
    case "operator":
      return { kind, how: how.operator };
    case "store":
      return { kind, store, how: how.store === "disk" && !disks ? "full" : how.store };
    case "network":
      return { kind, plane, store, how: how.network, delayMs: how.network === "slow" ? delayMs : 0 };
    case "upstream":
      return { kind, how: upstream };
    case "gone":
      return { kind: "upstream", how: how.gone };
    case "engine":
      return { kind, how: how.engine };
    case "clock": {
      // Time that has passed never goes back; Redis has but one clock.
      if (how.clock === "redis" || how.clock === "operator")
        return { kind, of: how.clock, how: "time of day", byMs };
      if (how.clockHow === "time passed") return { kind, of: how.clock, how: "time passed", byMs: 80_000 };
      return { kind, of: how.clock, how: "time of day", byMs };
    }
    default:
      throw new Error(`no such kind: ${String(kind)}`);
  }
}

/** What of the world a fault takes for itself: two faults of one subject follow one another. */
export function subjectOf(harm: Harm): string {
  switch (harm.kind) {
    case "plane":
      return `plane ${harm.plane}`;
    case "store":
      return harm.store;
    case "network":
      return `network ${harm.plane} ${harm.store}`;
    case "clock":
      return typeof harm.of === "number" ? `plane ${harm.of}` : harm.of;
    case "operator":
    case "upstream":
    case "engine":
      return harm.kind;
  }
}

const planeName = (plane: PlaneIndex) => `data plane ${"ab"[plane]}`;

/** One line, as the plan is printed. */
export function harmText(harm: Harm): string {
  switch (harm.kind) {
    case "plane":
      return `${planeName(harm.plane)}: ${harm.how}`;
    case "operator":
      return `operator: ${harm.how}`;
    case "store":
      return `${harm.store}: ${harm.how}`;
    case "network": {
      const more = harm.how === "slow" ? ` (${harm.delayMs} ms)` : "";
      return `network of ${planeName(harm.plane)} to ${harm.store}: ${harm.how}${more}`;
    }
    case "upstream":
      return `upstream: ${harm.how}`;
    case "engine":
      return `search engine: ${harm.how}`;
    case "clock": {
      const whose = typeof harm.of === "number" ? planeName(harm.of) : harm.of;
      return `clock of ${whose}: ${harm.how} ${harm.byMs > 0 ? "+" : ""}${harm.byMs / 1000} s`;
    }
  }
}

/** The class in which a fault is counted. */
export const harmClass = (harm: Harm): string =>
  harm.kind === "store"
    ? `${harm.store}: ${harm.how}`
    : harm.kind === "clock"
      ? `clock: ${harm.how}`
      : `${harm.kind}: ${harm.how}`;

export const faultText = ({ number, afterMs, forMs, harm }: Fault): string =>
  `${String(number).padStart(4)}  +${(afterMs / 1000).toFixed(1)} s  ${harmText(harm)}, for ${(forMs / 1000).toFixed(1)} s`;

/**
 * The shortest beginning of a plan that failed when it was tried, by halving. `failing`: one that is known to fail. What fails by
 * chance may hide a shorter one.
 */
export async function shortestFailing(
  failing: number,
  fails: (length: number) => Promise<boolean>,
): Promise<number> {
  let passes = 0;
  let shortest = failing;
  while (shortest - passes > 1) {
    const half = Math.floor((passes + shortest) / 2);
    if (await fails(half)) shortest = half;
    else passes = half;
  }
  return shortest;
}
