/** What is noted from outside while a soak runs: what clients saw, what upstreams were asked, when what was hurt. */
import type { PlaneIndex, UpstreamFaultName } from "./plan.ts";

/** Ways in which something fails. `broken`: the connection ended before the answer; `late`: no end in time. */
export type Failure = "broken" | "late" | "unavailable" | "limited" | "upstream";

export interface SeenError {
  /** null: it came inside a stream. */
  readonly status: number | null;
  readonly type: string;
  readonly code: string | null;
  readonly message: string;
}

/** One exchange of a client with a data plane. Moments in milliseconds since the soak began. */
export interface Exchange {
  readonly what: string;
  /** Of a request that goes upstream; each has one of its own. */
  readonly marker: number | null;
  readonly plane: PlaneIndex;
  readonly from: number;
  readonly to: number;
  readonly status: number | null;
  readonly requestId: string | null;
  /** `wrong`: it was not what had been asked for. `aborted`: the client left. `refused`: as it was to be. */
  readonly outcome: "complete" | "refused" | "aborted" | "error" | "broken" | "late" | "wrong";
  readonly error: SeenError | null;
  /** Output tokens that a complete answer named. */
  readonly told: number | null;
  /** What was wrong, or how the connection broke. */
  readonly detail: string;
}

/** A call as the upstream served it. */
export interface Call {
  readonly marker: number;
  readonly fault: UpstreamFaultName | null;
  /** Tokens that its answer reports. */
  readonly output: number;
  readonly ended: () => "running" | "answered" | "aborted";
}

/** While this lasts, such failures at these data planes are explained. */
export interface Window {
  readonly text: string;
  from: number;
  /** null: it lasts. */
  to: number | null;
  readonly planes: readonly PlaneIndex[];
  readonly failures: readonly Failure[];
}

/** The batch of a client. */
export interface SeenBatch {
  readonly id: string;
  readonly form: "messages" | "openai";
  /** By their custom ids. */
  readonly markers: ReadonlyMap<string, number>;
  canceled: boolean;
  ended: boolean;
  /** Result lines, by whatever file they came; null: not fetched yet. */
  lines: readonly SeenLine[] | null;
}

export interface SeenLine {
  readonly customId: string;
  /** Of the request that it tells of; null where its form does not say. */
  readonly requestId: string | null;
  readonly outcome: "succeeded" | "errored" | "canceled" | "expired";
  readonly output: number | null;
}

/** A row of `usage`. */
export interface Row {
  readonly id: string;
  /** Of its tag; null: it belongs to a batch. */
  readonly marker: number | null;
  readonly model: string;
  readonly iterations: number;
  readonly estimated: boolean;
  readonly provisional: boolean;
  readonly input: bigint;
  readonly output: bigint;
  readonly searches: bigint;
  readonly cost: bigint;
}

/** An item of a batch beside its row. */
export interface Item {
  readonly batchId: string;
  readonly customId: string;
  /** Output tokens of its row; null: it has none. */
  readonly output: bigint | null;
}

/** All that was noted of one soak. */
export interface Log {
  readonly exchanges: readonly Exchange[];
  readonly calls: ReadonlyMap<number, readonly Call[]>;
  readonly windows: readonly Window[];
}
