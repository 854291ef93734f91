/** Whether an object is compiled at all, and whether what it served before may stand in for it. */
import type { Declared, Fault } from "./objects.ts";
import { readSpec } from "./read-spec.ts";
import { notPermitted, type Tenancy } from "./tenancy.ts";

export type Judged =
  | { readonly ok: true; readonly spec: unknown }
  | { readonly ok: false; readonly faults: readonly Fault[]; readonly keepsLast: boolean };

/** Why an object as a whole is left out, found when all of them were looked at together: quotas and room. */
export interface Refusal {
  readonly fault: Fault;
  /** Whether what it served before stays. */
  readonly keepsLast: boolean;
}
export type Refusals = ReadonlyMap<Declared, Refusal>;

export type Judge = (object: Declared) => Judged;

export const judgeBy =
  (tenancy: Tenancy, refusals: Refusals): Judge =>
  (object) => {
    const refusal = refusals.get(object);
    if (refusal !== undefined) return { ok: false, faults: [refusal.fault], keepsLast: refusal.keepsLast };
    const read = readSpec(object);
    if (!read.ok) return { ...read, keepsLast: true };
    const faults = notPermitted(object, read.spec, tenancy);
    return faults.length === 0 ? read : { ok: false, faults, keepsLast: true };
  };
