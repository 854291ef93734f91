/**
 * Which tiers of a provider a request asks for, and what of that goes upstream (rule 10.1): only what has a price. Pure.
 */
import { type Dialect, dialects } from "./dialect.ts";
import type { JsonObject } from "./messages/types.ts";
import type { OwnField } from "./own-fields.ts";
import { pricedBetas } from "./price-effects.ts";

/** Values of the fields that ask for a tier, absent where the request has none; a value that is no string is "". */
export interface TierFields {
  readonly service_tier?: string;
  readonly speed?: string;
  readonly inference_geo?: string;
  /** `reasoning.mode`. */
  readonly mode?: string;
}

/** What a model has prices for. */
export interface Offers {
  /** Names of service tiers. */
  readonly tiers: readonly string[];
  /** Prompts beyond the usual length. */
  readonly longPrompts: boolean;
  /** Whether `reasoning` goes upstream, with its mode. */
  readonly thinking: boolean;
}

/** What goes upstream of tiers. Plain data: large requests are written in another thread. */
export interface TierPlan {
  /** Dotted names of fields, and betas as `anthropic-beta:NAME`, that are not sent upstream. */
  readonly dropped: readonly string[];
  /** The betas that go upstream; null: the client sent none, or none goes. */
  readonly betas: string | null;
  /** Dialects whose upstreams are asked for the standard tier where the request leaves it open. */
  readonly standard: readonly Dialect[];
  /** Own fields that the plan's upstream does not know; empty in a plan for all upstreams. */
  readonly unknown: readonly OwnField[];
  /** Tiers other than the standard that are asked for and sent, to upstreams that know the field. */
  readonly asked: TierFields;
  /** Names of tiers that have a price. */
  readonly offered: readonly string[];
  /** Sets of tiers by which the request may be charged, for its hold. */
  readonly possible: readonly (readonly string[])[];
}

/** Plan of a token count, which is free: nothing is dropped or asked for. */
export const noTiers: TierPlan = {
  dropped: [],
  betas: null,
  standard: [],
  unknown: [],
  asked: {},
  offered: [],
  possible: [[]],
};

/** Tiers that one upstream call is sent, and those that have a price in its report. */
export interface ExpectedTiers {
  readonly sent: TierFields;
  readonly offered: readonly string[];
}

type TierField = keyof TierFields;

/** Values in requests that name no tier of its own. */
const standardValues: Readonly<Record<TierField, readonly string[]>> = {
  service_tier: ["auto", "default", "standard_only"],
  speed: ["standard"],
  inference_geo: ["global"],
  mode: ["standard"],
};
const fieldNames: Readonly<Record<TierField, string>> = {
  service_tier: "service_tier",
  speed: "speed",
  inference_geo: "inference_geo",
  mode: "reasoning.mode",
};

const tierFields = Object.keys(fieldNames) as TierField[];

/** Values by which upstreams report the standard tier. */
const reportedStandard: Readonly<Record<TierField, readonly string[]>> = {
  service_tier: ["default", "standard", "standard_only", "on_demand"],
  speed: ["standard"],
  inference_geo: ["global", "not_available"],
  mode: ["standard"],
};

/** Tiers that a field of their own asks for: no account chooses them for `service_tier`. */
const withOwnField = ["fast", "us", "pro"];

/** Tiers that `service_tier` alone asks for: in another field they would be charged at their price and served at the usual one. */
const ofServiceTier = ["flex", "priority", "scale", "batch"];
const isValueOf = (field: TierField, tier: string): boolean =>
  !(field === "service_tier" ? withOwnField : ofServiceTier).includes(tier);

/** Which of the tiers with a price an account may choose by itself, in `service_tier`. */
const choosable = (upstream: Dialect, offered: readonly string[]): readonly string[] =>
  // `auto` of a Messages account is its committed capacity and nothing else.
  offered.filter((name) => (upstream === "messages" ? name === "priority" : !withOwnField.includes(name)));

/** Returns the `service_tier` that an upstream's account may not overrule. */
export const standardTier = (upstream: Dialect): string =>
  upstream === "messages" ? "standard_only" : "default";

/** Whether a `service_tier` leaves the choice to the account, which may choose a dearer tier. */
export const leavesTierOpen = (value: unknown): boolean =>
  value === undefined || value === null || value === "auto";

/** The tiers that a request asks for, and its upstreams. */
export interface TierRequest {
  readonly fields: TierFields;
  /** The client's `anthropic-beta` header. */
  readonly beta: string | undefined;
  readonly client: Dialect;
  /** Dialects of the route's upstreams. */
  readonly upstreams: readonly Dialect[];
}

/** Decides which of the tiers that a request asks for go upstream, and which fields are dropped (rules 10.1, 10.2). */
export function planTiers({ fields, beta, client, upstreams }: TierRequest, offers: Offers): TierPlan {
  const { tiers: offered } = offers;
  const asked: { -readonly [Field in TierField]?: string } = {};
  const dropped: string[] = [];
  for (const name of tierFields) {
    const value = fields[name];
    if (value === undefined || standardValues[name].includes(value)) continue;
    const isOffered = offered.includes(value) && isValueOf(name, value);
    if (isOffered && (name !== "mode" || offers.thinking)) asked[name] = value;
    else dropped.push(fieldNames[name]);
  }
  const betas = betaNames(beta);
  const kept = betas.filter((name) => goes(name, offers));
  const isStandard =
    fields.service_tier !== undefined &&
    asked.service_tier === undefined &&
    fields.service_tier !== "auto" &&
    standardValues.service_tier.includes(fields.service_tier);
  const isRegionless = client === "messages" && fields.inference_geo === "global";
  const standard = dialects.filter((dialect) => isStandard || choosable(dialect, offered).length === 0);
  return {
    dropped: [...dropped, ...betas.filter((name) => !kept.includes(name)).map(droppedBeta)],
    // Unchanged, unless one of them is not sent (service.md "Versioning").
    betas: kept.length === 0 ? null : kept.length === betas.length ? (beta ?? null) : kept.join(","),
    standard,
    unknown: [],
    asked,
    offered,
    possible:
      offered.length === 0
        ? noTiers.possible
        : possibleSets(
            upstreams.map((upstream) =>
              possibleTiers({ asked, offered, standard, isRegionless }, client, upstream),
            ),
          ),
  };
}

/**
 * Lists for each field the tiers that an upstream may serve at: the one it is sent, the standard (null), or one its
 * account chooses.
 */
function possibleTiers(
  plan: Pick<TierPlan, "asked" | "offered" | "standard"> & { readonly isRegionless: boolean },
  client: Dialect,
  upstream: Dialect,
): readonly (readonly (string | null)[])[] {
  const { offered, standard, isRegionless } = plan;
  const { service_tier, speed, inference_geo, mode } = sentTiers(plan, client, upstream);
  const open = service_tier === undefined && !standard.includes(upstream) ? choosable(upstream, offered) : [];
  const isOpen = upstream === "messages" && inference_geo === undefined && !isRegionless;
  const region = isOpen ? ["us"] : [];
  return [
    [null, ...open, ...listOf(service_tier)],
    [null, ...listOf(speed)],
    [null, ...region.filter((name) => offered.includes(name)), ...listOf(inference_geo)],
    [null, ...listOf(mode)],
  ];
}

const listOf = (value: string | undefined) => (value === undefined ? [] : [value]);

/** Combines one tier of each field in every way. */
function possibleSets(of: readonly (readonly (readonly (string | null)[])[])[]): string[][] {
  const sets = of.flatMap((fields) =>
    fields.reduce<string[][]>(
      (all, values) => all.flatMap((set) => values.map((value) => (value === null ? set : [...set, value]))),
      [[]],
    ),
  );
  return [...new Map(sets.map((set) => [set.join("+"), set])).values()];
}

/** Returns the tier fields that an upstream is sent: those of its own dialect; the two of OpenAI share `service_tier`. */
function sentTiers({ asked }: Pick<TierPlan, "asked">, client: Dialect, upstream: Dialect): TierFields {
  if (client === upstream) return asked;
  const { service_tier } = asked;
  return client === "messages" || upstream === "messages" || service_tier === undefined
    ? {}
    : { service_tier };
}

/** Returns the tiers that a call to this upstream may be served at. */
export const expectedTiers = (plan: TierPlan, client: Dialect, upstream: Dialect): ExpectedTiers => ({
  sent: sentTiers(plan, client, upstream),
  offered: plan.offered,
});

/**
 * Returns the tiers that a call was served at (rule 10.2): those its upstream reports, else those it was sent; where it
 * reports one without a price, the one it was sent is doubtful. null: the standard one.
 */
export function servedTiers(
  { sent, offered }: ExpectedTiers,
  reported: TierFields,
): {
  readonly tiers: { charged: readonly string[]; doubtful: readonly string[] } | null;
  readonly isPriced: boolean;
} {
  const charged: string[] = [];
  const doubtful: string[] = [];
  let isPriced = true;
  for (const field of tierFields) {
    const said = reported[field];
    const told = sent[field];
    if (said === undefined || said === "" || said === "auto") charged.push(...listOf(told));
    else if (offered.includes(said)) charged.push(said);
    else if (!reportedStandard[field].includes(said)) {
      isPriced = false;
      doubtful.push(...listOf(told));
    }
  }
  const isStandard = charged.length + doubtful.length === 0;
  return { tiers: isStandard ? null : { charged, doubtful }, isPriced };
}

/** The names in the header `anthropic-beta`, each once: a client may send one twice, or the header. */
export const betaNames = (header: string | null | undefined): string[] => [
  ...new Set((header ?? "").split(",").flatMap((name) => name.trim() || [])),
];

/** How `x-gapura-dropped` names a beta that stays here. */
export const droppedBeta = (name: string): string => `anthropic-beta:${name}`;

/** Returns the tier that a beta needs, null: any price of long prompts; undefined: it changes no price. */
function tierOfBeta(beta: string): string | null | undefined {
  // A provider may read names in any letter case.
  const name = beta.toLowerCase();
  return pricedBetas.find(([beginning]) => name.startsWith(beginning))?.[1];
}

function goes(beta: string, { tiers, longPrompts }: Offers): boolean {
  const tier = tierOfBeta(beta);
  return tier === undefined || (tier === null ? longPrompts : tiers.includes(tier));
}

/** Whether a beta belongs to a tier that the request asks for, by which it is charged. */
export const isBetaOfTier = (beta: string, asked: TierFields): boolean =>
  Object.values(asked).includes(tierOfBeta(beta));

/** Removes the plan's dropped fields from a parsed request. */
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
