/** Whether an object is compiled at all, and whether what it served before may stand in for it. */
import { modelId } from "../api/fields.ts";
import type { ModelRouteSpec } from "../api/model-route.ts";
import type { Declared, Fault } from "./objects.ts";
import { readSpec } from "./read-spec.ts";
import { notPermitted, type Tenancy } from "./tenancy.ts";

export type Judged =
  | { readonly ok: true; readonly spec: unknown }
  | { readonly ok: false; readonly faults: readonly Fault[]; readonly keepsLast: boolean };

/** Why a whole object is left out, found by looking at all objects together: quotas and room. */
export interface Refusal {
  readonly fault: Fault;
  /** Whether the entry that it served before stays. */
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
    const faults = [...withoutModel(object, read.spec), ...notPermitted(object, read.spec, tenancy)];
    return faults.length === 0 ? read : { ok: false, faults, keepsLast: true };
  };

const asModel = modelId();

/** Checks a route that is called by metadata.name: if that is longer than a model id, no price can name it. */
function withoutModel({ kind, name }: Declared, spec: unknown): readonly Fault[] {
  if (kind !== "ModelRoute" || (spec as ModelRouteSpec).model !== undefined) return [];
  const { error } = asModel.safeParse(name);
  if (error === undefined) return [];
  return [
    {
      reason: "Invalid",
      path: "spec.model",
      message: "is required, as metadata.name is no model id (at most 128 characters)",
    },
  ];
}
