/** The four kinds: their schemas, and what their CRDs hold in addition. */
import type { z } from "zod";
import { modelRouteSpec } from "./model-route.ts";
import { organizationSpec } from "./organization.ts";
import { priceTableSpec } from "./price-table.ts";
import { toolPolicySpec } from "./tool-policy.ts";

export const KINDS = ["ModelRoute", "ToolPolicy", "PriceTable", "Organization"] as const;
export type Kind = (typeof KINDS)[number];

export interface Column {
  readonly name: string;
  readonly type: "string" | "integer" | "boolean" | "date";
  readonly jsonPath: string;
  readonly description: string;
}

export interface KindInfo {
  readonly plural: string;
  readonly singular: string;
  readonly shortName: string;
  readonly description: string;
  readonly spec: z.ZodType;
  /** The kind's key facts, before Ready, Reason and Age. */
  readonly columns: readonly Column[];
}

export const kinds: Readonly<Record<Kind, KindInfo>> = {
  ModelRoute: {
    plural: "modelroutes",
    singular: "modelroute",
    shortName: "mroute",
    description: "One public model and where it is served.",
    spec: modelRouteSpec,
    columns: [
      { name: "Model", type: "string", jsonPath: ".status.model", description: "Id that clients send." },
      {
        name: "Upstreams",
        type: "integer",
        jsonPath: ".status.upstreams",
        description: "Number of upstreams.",
      },
    ],
  },
  ToolPolicy: {
    plural: "toolpolicies",
    singular: "toolpolicy",
    shortName: "tpol",
    description: "Which server tools run, with which engines and bounds.",
    spec: toolPolicySpec,
    columns: [
      { name: "Engine", type: "string", jsonPath: ".status.engine", description: "Engine of web_search." },
    ],
  },
  PriceTable: {
    plural: "pricetables",
    singular: "pricetable",
    shortName: "ptable",
    description: "What tokens and tools cost.",
    spec: priceTableSpec,
    columns: [
      {
        name: "Models",
        type: "integer",
        jsonPath: ".status.models",
        description: "Number of priced models.",
      },
    ],
  },
  Organization: {
    plural: "organizations",
    singular: "organization",
    shortName: "gorg",
    description: "Who may call, and with which credit.",
    spec: organizationSpec,
    columns: [
      {
        name: "ID",
        type: "string",
        jsonPath: ".status.id",
        description: "Id under which it is charged, also where spec.id is not set.",
      },
      {
        name: "Suspended",
        type: "boolean",
        jsonPath: ".spec.suspended",
        description: "True: its keys are known, and serve nothing.",
      },
      {
        name: "Display Name",
        type: "string",
        jsonPath: ".spec.displayName",
        description: "Name shown to people.",
      },
      {
        name: "Limits",
        type: "string",
        jsonPath: ".status.limits",
        description: "Limits of credit, of keys and projects.",
      },
    ],
  },
};

export const isKind = (text: string): text is Kind => (KINDS as readonly string[]).includes(text);
