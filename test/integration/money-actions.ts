/** What can happen to money, as fast-check draws it; money-run.ts does it. */
import fc from "fast-check";

export type Action =
  | { readonly do: "open"; readonly plane: number; readonly organization: number; readonly estimate: number }
  | { readonly do: "advance"; readonly bill: number; readonly share: number; readonly next: number }
  | { readonly do: "spend"; readonly bill: number; readonly share: number; readonly next: number }
  | { readonly do: "beat"; readonly bill: number; readonly share: number }
  | {
      readonly do: "settle";
      readonly bill: number;
      readonly share: number;
      readonly way: "redis" | "ledger" | "both";
    }
  | { readonly do: "release"; readonly bill: number }
  | { readonly do: "grant"; readonly organization: number; readonly amount: number }
  /** The organization's keys get other limits, or none, or move to its other project. */
  | { readonly do: "limits"; readonly organization: number; readonly variant: number }
  | { readonly do: "drain"; readonly plane: number }
  /** A drainer between its commit and its script: it may die there, or go on later, when others were faster. */
  | { readonly do: "half drain"; readonly plane: number }
  | { readonly do: "finish drain" }
  | { readonly do: "crash"; readonly plane: number }
  /** Every hold counts as stale: living owners become late ones. */
  | { readonly do: "sweep"; readonly plane: number }
  | { readonly do: "flush" }
  /** Redis is killed and started again. */
  | { readonly do: "restart" }
  /** Redis writes its file anew, with whatever runs just then. */
  | { readonly do: "rewrite" }
  /** One data plane does not reach Redis until it is reconnected. */
  | { readonly do: "cut off"; readonly plane: number }
  | { readonly do: "reconnect"; readonly plane: number }
  /** Both stores are copied; a replica would have this when it is promoted later. */
  | { readonly do: "copy" }
  /** Postgres comes back as it was copied, with the grants that were made since. */
  | { readonly do: "roll Postgres back" }
  /** Redis comes back as it was copied. */
  | { readonly do: "swap Redis" }
  /** Redis' clock steps, by hours. */
  | { readonly do: "clock"; readonly hours: number };

const plane = fc.nat(2);
const bill = fc.nat(30);
const share = fc.nat(100);
/** What happens every day. */
export const calm = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant("open" as const),
      plane,
      organization: fc.nat(1),
      estimate: fc.nat(400),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant("advance" as const), bill, share, next: fc.nat(300) }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("spend" as const),
      bill,
      share,
      next: fc.oneof(fc.constant(0), fc.nat(300)),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("beat" as const), bill, share }) },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("settle" as const),
      bill,
      share,
      way: fc.constantFrom("redis" as const, "redis" as const, "ledger" as const, "both" as const),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("release" as const), bill }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("grant" as const), organization: fc.nat(1), amount: fc.nat(500) }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("drain" as const), plane }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("half drain" as const), plane }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("finish drain" as const) }) },
);
/** With crashes and losses. */
export const wild = fc.oneof(
  { weight: 12, arbitrary: calm },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("crash" as const), plane }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("limits" as const),
      organization: fc.nat(1),
      variant: fc.nat(3),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("sweep" as const), plane }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("flush" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("restart" as const, "rewrite" as const) }) },
);

/** With two faults within one window, and stores that come back older. */
export const faulty = fc.oneof(
  { weight: 16, arbitrary: wild },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("cut off" as const), plane }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("reconnect" as const), plane }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("copy" as const) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constantFrom("roll Postgres back" as const, "swap Redis" as const) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("clock" as const), hours: fc.constantFrom(-1, 1) }) },
);

/** Mostly one thing after another, now and then up to eight at once. */
export const moments = (
  action: fc.Arbitrary<Action>,
  length: { readonly minLength: number; readonly maxLength: number },
) =>
  fc.array(
    fc.oneof(
      { weight: 3, arbitrary: fc.tuple(action) },
      { weight: 2, arbitrary: fc.array(action, { minLength: 2, maxLength: 8 }) },
    ),
    length,
  );
