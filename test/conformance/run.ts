/** Runs checks one after the other, each within its time, and tells what came of each. */
import { vendorJudge, type Judge } from "../vendor/judge.ts";
import type { VendorType } from "../vendor/vendor-type.ts";
import { Probe, Skipped, type Check, type Fault, type Ground, type UpstreamLog } from "./check.ts";
import type { Client, Question } from "./client.ts";
import type { Target } from "./discover.ts";
import { forms } from "./forms/forms.ts";

/** A check that takes longer has failed. */
const CHECK_MS = 60_000;

export interface Result {
  readonly check: Check;
  readonly target: Target;
  /** `DIALECT/NAME`, as it is told. */
  readonly id: string;
  readonly outcome: "passed" | "failed" | "skipped";
  readonly faults: readonly Fault[];
  /** Why it was skipped; else empty. */
  readonly reason: string;
  readonly ms: number;
}

export interface RunOptions {
  readonly client: Client;
  readonly targets: readonly Target[];
  readonly checks: readonly Check[];
  readonly adminKey?: string | null;
  readonly upstream?: UpstreamLog | null;
  readonly checkMs?: number;
  /** Told of each result as it comes. */
  readonly onResult?: (result: Result) => void;
}

/** Its types take half a second to compile. */
let kept: Promise<Judge> | null = null;

export async function run(options: RunOptions): Promise<Result[]> {
  const judge = await (kept ??= vendorJudge(undefined, "vendors"));
  const results: Result[] = [];
  for (const target of options.targets) {
    const ground: Ground = {
      client: options.client,
      form: forms[target.dialect],
      model: target.model,
      judge: (type, value) => judge(type as VendorType, value),
      scripted: target.scripted,
      upstream: options.upstream ?? null,
      adminKey: options.adminKey ?? null,
      samples: new Map(),
    };
    for (const check of options.checks) {
      if (check.dialects?.includes(target.dialect) === false) continue;
      const result = await runOne(check, target, ground, options.checkMs ?? CHECK_MS);
      results.push(result);
      options.onResult?.(result);
    }
  }
  return results;
}

async function runOne(check: Check, target: Target, ground: Ground, checkMs: number): Promise<Result> {
  const started = performance.now();
  const told = (outcome: Result["outcome"], faults: readonly Fault[], reason = ""): Result => ({
    check,
    target,
    id: `${target.dialect}/${check.name}`,
    outcome,
    faults,
    reason,
    ms: Math.round(performance.now() - started),
  });
  const lacking = lacks(check, ground);
  if (lacking !== null) return told("skipped", [], lacking);
  const signal = AbortSignal.timeout(checkMs);
  const probe = new Probe(ground, signal);
  try {
    await check.run(probe);
  } catch (error) {
    if (error instanceof Skipped && probe.faults.length === 0) return told("skipped", [], error.message);
    if (!(error instanceof Skipped)) {
      const text = signal.aborted ? `no end within ${checkMs / 1000} s` : `no answer: ${causeOf(error)}`;
      return told("failed", [...probe.faults, { text, question: probe.last ?? nothing(ground) }]);
    }
  }
  return told(probe.faults.length === 0 ? "passed" : "failed", probe.faults);
}

function lacks({ needs }: Check, { scripted, upstream, adminKey }: Ground): string | null {
  if (needs === "scripted" && !scripted) return "needs our scripted upstream behind the gateway";
  if (needs === "upstream" && (!scripted || upstream === null))
    return "needs our scripted upstream behind the gateway, and its address (--upstream)";
  return needs === "admin" && adminKey === null ? "needs an admin key (--admin-key)" : null;
}

const nothing = ({ form, model }: Ground): Question => form.question({ model });

const causeOf = (error: unknown): string =>
  error instanceof Error
    ? `${error.message}${error.cause instanceof Error ? ` (${error.cause.message})` : ""}`
    : String(error);

/** Whether nothing that a vendor's API does was found otherwise. */
export const conforms = (results: readonly Result[]): boolean =>
  !results.some(({ outcome, check }) => outcome === "failed" && check.rule === "official");
