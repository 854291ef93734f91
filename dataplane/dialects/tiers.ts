/**
 * Which tiers of a provider a request asks for, and what of that goes upstream (rule 10.1): only what has a price. Pure.
 */
import type { Dialect } from "./dialect.ts";
import type { JsonObject } from "./messages/types.ts";
import { pricedBetas } from "./price-effects.ts";

/** The values of the fields that ask for a tier, as far as they are there; one that is no string is an empty one. */
export interface TierFields {
  readonly service_tier?: string;
  readonly speed?: string;
  readonly inference_geo?: string;
  /** Responses' `reasoning.mode`. */
  readonly mode?: string;
}

/** What a model has prices for. */
export interface Offers {
  /** Names of service tiers. */
  readonly tiers: readonly string[];
  /** Prompts beyond the usual length. */
  readonly longPrompts: boolean;
}

/** Plain data: large requests are written in another thread. */
export interface TierPlan {
  /** Dotted names of fields, and betas as `anthropic-beta:NAME`, that stay here. */
  readonly dropped: readonly string[];
  /** The betas that go; null: the client sent none, or none goes. */
  readonly betas: string | null;
  /** Upstreams of these dialects are told to serve at the standard tier where the request leaves it open. */
  readonly standard: readonly Dialect[];
}

/** Nothing stays here, and no upstream is told anything: of a count, which is free. */
export const noTiers: TierPlan = { dropped: [], betas: null, standard: [] };

const standardValues: Readonly<Record<keyof TierFields, readonly string[]>> = {
  service_tier: ["auto", "default", "standard_only"],
  speed: ["standard"],
  inference_geo: ["global"],
  mode: ["standard"],
};
const fieldNames: Readonly<Record<keyof TierFields, string>> = {
  service_tier: "service_tier",
  speed: "speed",
  inference_geo: "inference_geo",
  mode: "reasoning.mode",
};

/** What an upstream's account may not overrule, in its dialect's word. */
export const standardTier = (upstream: Dialect): string =>
  upstream === "messages" ? "standard_only" : "default";

/** Whether the account decides by itself: it may choose a dearer tier. */
export const leavesTierOpen = (value: unknown): boolean =>
  value === undefined || value === null || value === "auto";

/** @param beta the client's header. */
export function planTiers(fields: TierFields, beta: string | undefined, offers: Offers): TierPlan {
  const names = Object.keys(fieldNames) as (keyof TierFields)[];
  const dropped = names.flatMap((name) => {
    const value = fields[name];
    const goes = value === undefined || standardValues[name].includes(value) || offers.tiers.includes(value);
    return goes ? [] : [fieldNames[name]];
  });
  const betas = beta?.split(",").map((name) => name.trim()) ?? [];
  const kept = betas.filter((name) => isOffered(name, offers));
  const standard: Dialect[] = [];
  // `auto` of a Messages account is its committed capacity and nothing else.
  if (!offers.tiers.includes("priority")) standard.push("messages");
  if (offers.tiers.length === 0) standard.push("chat", "responses");
  return {
    dropped: [
      ...dropped,
      ...betas.filter((name) => !kept.includes(name)).map((name) => `anthropic-beta:${name}`),
    ],
    betas: kept.length === 0 ? null : kept.join(","),
    standard,
  };
}

function isOffered(beta: string, { tiers, longPrompts }: Offers): boolean {
  const priced = pricedBetas.find(([beginning]) => beta.startsWith(beginning));
  if (priced === undefined) return true;
  const [, tier] = priced;
  return tier === null ? longPrompts : tiers.includes(tier);
}

/** A parsed request without what stays here. */
export function withoutDropped(body: JsonObject, { dropped }: TierPlan): JsonObject {
  if (dropped.length === 0) return body;
  const rest = { ...body };
  for (const name of dropped) {
    const [field = "", member] = name.split(".");
    const { [member ?? ""]: _gone, ...others } = { ...(rest[field] as JsonObject | undefined) };
    if (member === undefined) delete rest[field];
    else rest[field] = others;
  }
  return rest;
}
