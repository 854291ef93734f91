/**
 * Whom the operator trusts with what (rules.md §8). `Trusted`: every namespace that is watched. `Namespaced`: only the
 * platform's namespaces; what the others declare serves nobody but themselves, and opens nothing of the cluster.
 */
import type { OrganizationEntry, Policy } from "../../dataplane/config/schema.ts";
import { isNamespaceName, NAMESPACE_FORM } from "../api/fields.ts";
import type { OrganizationSpec } from "../api/organization.ts";
import type { ToolPolicySpec } from "../api/tool-policy.ts";
import type { Declared, Fault } from "./objects.ts";

const TENANCIES = ["Trusted", "Namespaced"] as const;

export interface Tenancy {
  readonly mode: (typeof TENANCIES)[number];
  /** Namespaces whose resources may do everything. */
  readonly platformNamespaces: ReadonlySet<string>;
  /** For each other namespace under `Namespaced`. */
  readonly quotas: Quotas;
}

export interface Quotas {
  /** Objects of the four kinds together. */
  readonly objects: number;
  /** Bytes of the compiled entries as plain JSON. */
  readonly bytes: number;
}

const quotaDefaults: Quotas = { objects: 100, bytes: 256 * 1024 };
export const TRUSTED: Tenancy = { mode: "Trusted", platformNamespaces: new Set(), quotas: quotaDefaults };

/** The tenancy as flags or the environment give it; an empty text counts as absent. */
export interface TenancySettings {
  readonly tenancy?: string | undefined;
  /** Comma list. */
  readonly platformNamespaces?: string | undefined;
  readonly quotaObjects?: string | undefined;
  readonly quotaBytes?: string | undefined;
}

/** The flags of programs that read a folder, for `parseArgs`; `settingsOf` takes their values. */
export const tenancyFlags = {
  tenancy: { type: "string" },
  "platform-namespaces": { type: "string" },
  "quota-objects": { type: "string" },
  "quota-bytes": { type: "string" },
} as const;
export const TENANCY_USAGE =
  "[--tenancy Trusted|Namespaced] [--platform-namespaces A,B] [--quota-objects N] [--quota-bytes N]";

/** @throws as `readTenancy` does. */
export const tenancyOfFlags = (values: {
  readonly [Flag in keyof typeof tenancyFlags]?: string | undefined;
}) =>
  readTenancy(
    {
      tenancy: values.tenancy,
      platformNamespaces: values["platform-namespaces"],
      quotaObjects: values["quota-objects"],
      quotaBytes: values["quota-bytes"],
    },
    // Where a manifest names no namespace.
    "default",
  );

/**
 * @param ownNamespace the platform's namespace where none is named
 * @throws Error that names the setting and its value.
 */
export function readTenancy(settings: TenancySettings, ownNamespace: string): Tenancy {
  const mode = TENANCIES.find((name) => name === (settings.tenancy || "Trusted"));
  if (mode === undefined)
    throw new Error(`unknown tenancy "${settings.tenancy}": it is one of ${TENANCIES.join(", ")}`);
  const named = readNamespaces("the platform's namespaces", settings.platformNamespaces ?? "");
  return {
    mode,
    platformNamespaces: new Set(named.length === 0 ? [ownNamespace] : named),
    quotas: {
      objects: readCount("the quota of objects", settings.quotaObjects, quotaDefaults.objects),
      bytes: readCount("the quota of bytes", settings.quotaBytes, quotaDefaults.bytes),
    },
  };
}

/**
 * Returns the names of a comma list, each once. A name that no namespace can have would be watched and trusted in vain.
 * @throws Error that names the setting and the name.
 */
export function readNamespaces(what: string, text: string): readonly string[] {
  const names = text.split(",").flatMap((name) => name.trim() || []);
  const bad = names.find((name) => !isNamespaceName(name));
  if (bad !== undefined)
    throw new Error(`${what}: "${bad}" is not the name of one: ${NAMESPACE_FORM}, with commas between names`);
  return [...new Set(names)];
}

const UNITS: Readonly<Record<string, number>> = { "": 1, Ki: 1024, Mi: 1024 * 1024, Gi: 1024 ** 3 };

function readCount(what: string, text: string | undefined, fallback: number): number {
  if (text === undefined || text === "") return fallback;
  const [, digits = "", unit = ""] = /^(\d{1,12})(Ki|Mi|Gi)?$/.exec(text) ?? [];
  if (digits === "") throw new Error(`${what} is a whole number, with Ki, Mi or Gi behind it: not "${text}"`);
  return Number(digits) * (UNITS[unit] ?? 1);
}

/** Whether what the namespace declares serves only itself. */
export const isTenant = ({ mode, platformNamespaces }: Tenancy, namespace: string): boolean =>
  mode === "Namespaced" && !platformNamespaces.has(namespace);

/** Returns the one namespace whose organizations the routes of `namespace` serve; undefined: they serve all. */
export const scopeOf = (tenancy: Tenancy, namespace: string): string | undefined =>
  isTenant(tenancy, namespace) ? namespace : undefined;

/** Returns the id of an Organization that names none. */
export const defaultId = ({ namespace, name }: { namespace: string; name: string }): string =>
  `org_${namespace}_${name}`;

/** Returns what the object's namespace may not declare, each with the setting that says so and with what helps. */
export function notPermitted(object: Declared, spec: unknown, tenancy: Tenancy): readonly Fault[] {
  if (!isTenant(tenancy, object.namespace)) return [];
  const fault = (path: string, message: string): Fault => ({
    reason: "NotPermitted",
    path,
    message: `${message} (${whyNot(object.namespace)})`,
  });
  if (object.kind === "Organization") return organizationFaults(object, spec as OrganizationSpec, fault);
  return object.kind === "ToolPolicy" ? policyFaults(spec as ToolPolicySpec, fault) : [];
}

/** Says which settings make a namespace a tenant's. */
export const whyNot = (namespace: string): string =>
  `tenancy is Namespaced, and platformNamespaces does not name "${namespace}"`;

type MakeFault = (path: string, message: string) => Fault;

function organizationFaults(object: Declared, spec: OrganizationSpec, fault: MakeFault): Fault[] {
  const id = defaultId(object);
  const faults: Fault[] = [];
  if (spec.id !== undefined && spec.id !== id)
    faults.push(
      fault(
        "spec.id",
        `an Organization of this namespace has the id "${id}" and no other: leave the field out, or have the platform team declare it in one of its namespaces`,
      ),
    );
  if ((spec.credits?.grants ?? []).length > 0)
    faults.push(
      fault(
        "spec.credits.grants",
        `an Organization of this namespace grants itself no credit: remove the grants; the platform team adds credit with main.ts grant --organization ${id}`,
      ),
    );
  for (const [index, { allowCIDRs = [], allowPorts = [] }] of (spec.notifications ?? []).entries())
    for (const name of openedBy({ allowCIDRs, allowPorts }))
      faults.push(
        fault(
          `spec.notifications[${index}].${name}`,
          "a notification of this namespace opens nothing beyond the public internet: remove the field, or have the platform team declare the Organization",
        ),
      );
  const { allowCIDRs = [], allowPorts = [] } = spec.identity ?? {};
  for (const name of openedBy({ allowCIDRs, allowPorts }))
    faults.push(
      fault(
        `spec.identity.${name}`,
        "an Organization of this namespace opens nothing beyond the public internet: remove the field, or have the platform team declare it in one of its namespaces",
      ),
    );
  return faults;
}

/** The fields that are not empty. */
const openedBy = (fields: Readonly<Record<string, readonly unknown[]>>): string[] =>
  Object.keys(fields).filter((name) => (fields[name] ?? []).length > 0);

function policyFaults(spec: ToolPolicySpec, fault: MakeFault): Fault[] {
  const { allowCIDRs = [], allowPorts = [], proxy } = spec.webFetch?.egress ?? {};
  const opened = [...openedBy({ allowCIDRs, allowPorts }), ...(proxy === undefined ? [] : ["proxy"])];
  return opened.map((name) =>
    fault(
      `spec.webFetch.egress.${name}`,
      "a ToolPolicy of this namespace opens nothing beyond the public internet: remove the field, or have the platform team serve the route",
    ),
  );
}

/** Whether the entry that was served before may stay; after a switch of the tenancy it may not (rule 8.2). */
export function mayKeepOrganization(
  { id, grants, notifications = [], identity, source }: OrganizationEntry,
  tenancy: Tenancy,
): boolean {
  if (!isTenant(tenancy, source.namespace)) return true;
  const opening = identity === undefined ? notifications : [...notifications, identity];
  return (
    id === defaultId(source) &&
    grants.length === 0 &&
    opening.every(({ allowCidrs, allowPorts }) => allowCidrs.length + allowPorts.length === 0)
  );
}

/** Whether a policy's last entry may be served on: a tenant's only while it opens no address or port and names no proxy. */
export function mayKeepPolicy({ webFetch, source }: Policy, tenancy: Tenancy): boolean {
  if (!isTenant(tenancy, source.namespace) || webFetch === null) return true;
  return webFetch.allowCidrs.length === 0 && webFetch.allowPorts.length === 0 && webFetch.proxy === null;
}
