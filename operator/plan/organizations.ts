/** Organizations: one id each, grants, and the digests of declared keys. */
import type { IdentityEntry, Notification, OrganizationEntry } from "../../dataplane/config/schema.ts";
import { bytesOf } from "../api/fields.ts";
import { DEFAULT_PROJECT } from "../api/limits.ts";
import { type OrganizationSpec, storageDefaults, thresholdDefaults } from "../api/organization.ts";
import { momentMicros } from "../api/moment.ts";
import { foreignAudiences, withoutAudiences, withTrust } from "./audiences.ts";
import {
  type CredentialCollector,
  describeKey,
  isKeyOfForm,
  type KeyForm,
  lookUp,
  type SecretKeyRef,
  signingSecretFault,
} from "./credentials.ts";
import { micros } from "./decimal.ts";
import type { Judge } from "./judge.ts";
import { limitFacts, limitsOf, projectLimits } from "./limits.ts";
import {
  type Declared,
  type Fault,
  pathText,
  reference,
  type ResolvedReason,
  type KnownSecrets,
  type Verdict,
  type WantedKey,
} from "./objects.ts";
import type { Owners } from "./owners.ts";
import type { Prior } from "./prior.ts";
import { sourceOf } from "./source.ts";
import { defaultId, mayKeepOrganization, type Tenancy } from "./tenancy.ts";

export interface OrganizationContext extends KnownSecrets {
  readonly prior: Prior;
  readonly tenancy: Tenancy;
  readonly judge: Judge;
  /** Namespaces that own the ids. */
  readonly owners: Owners;
  /** Secrets that take no further data key. */
  readonly immutable: ReadonlySet<string>;
  /** Why keys could not be made, by `namespace/name/key`. */
  readonly refused: ReadonlyMap<string, string>;
  readonly credentials: CredentialCollector;
  /** Receives the keys that have to be made. */
  readonly wanted: WantedKey[];
}

interface Outcome {
  readonly verdict: Verdict;
  readonly entry: OrganizationEntry | null;
}

/** One declaration that is being resolved. */
interface Resolving {
  readonly object: Declared;
  /** Its entry in the last published snapshot. */
  readonly before: OrganizationEntry | undefined;
  readonly context: OrganizationContext;
  /** Receives its references that do not resolve. */
  readonly faults: Fault<ResolvedReason>[];
}

/** Compiles all organizations. @param objects oldest first */
export function compileOrganizations(objects: readonly Declared[], context: OrganizationContext): Outcome[] {
  const holders = idHolders(objects, context);
  const outcomes = objects.map((object) => compileOrganization(object, holders, context));
  return giveKeys(giveAudiences(outcomes, context), context.prior);
}

/** Removes audiences that belong to another namespace; the rest of an entry is served. */
function giveAudiences(outcomes: readonly Outcome[], { prior, tenancy }: OrganizationContext): Outcome[] {
  const foreignOf = foreignAudiences(outcomes, prior, tenancy);
  return outcomes.map(({ entry: compiled, verdict }) => {
    const entry = compiled === null ? null : withTrust(compiled, tenancy);
    const foreign = entry === null ? [] : foreignOf(entry);
    if (entry === null || foreign.length === 0) return { entry, verdict };
    const notes = foreign.map(
      (audience) =>
        `served without tokens for the audience "${audience}" of this issuer, which belong to another namespace; have the provider issue tokens for an audience of your own`,
    );
    return {
      entry: withoutAudiences(entry, foreign),
      verdict: { ...verdict, notes: [...verdict.notes, ...notes] },
    };
  });
}

/** Returns the entry that the object served before, if that may stay. */
function lastGood(object: Declared, { judge, prior, tenancy }: OrganizationContext) {
  const judged = judge(object);
  const last = judged.ok || judged.keepsLast ? prior.organization(object.uid) : undefined;
  return last !== undefined && mayKeepOrganization(last, tenancy) ? last : undefined;
}

/**
 * Decides which object holds each id. An id belongs to one namespace for ever (rule 8.3). Within that, or among all when
 * the id is new, the object that is served under it keeps it; else the oldest has it.
 */
function idHolders(
  objects: readonly Declared[],
  context: OrganizationContext,
): ReadonlyMap<string, Declared> {
  const holders = new Map<string, Declared>();
  const note = (id: string | undefined, object: Declared) => {
    if (id === undefined || holders.has(id)) return;
    if ((context.owners.get(id) ?? object.namespace) === object.namespace) holders.set(id, object);
  };
  for (const object of objects) note(lastGood(object, context)?.id, object);
  for (const object of objects)
    // An object that has an id keeps it: `compileOrganization` refuses another one.
    if (lastGood(object, context) === undefined) note(declaredId(object, context.judge), object);
  return holders;
}

/** Returns the id that the object asks for; undefined: its spec is not valid. */
export function declaredId(object: Declared, judge: Judge): string | undefined {
  const judged = judge(object);
  return judged.ok ? idOf(object, judged.spec as OrganizationSpec) : undefined;
}

const idOf = (object: Declared, spec: OrganizationSpec): string => spec.id ?? defaultId(object);

function compileOrganization(
  object: Declared,
  holders: ReadonlyMap<string, Declared>,
  context: OrganizationContext,
): Outcome {
  const read = context.judge(object);
  const last = lastGood(object, context);
  const keepLastGood = (accepted: readonly Fault[]): Outcome => {
    const kept = last !== undefined && holders.get(last.id) === object ? last : null;
    for (const { credential } of kept?.notifications ?? [])
      if (credential !== null) context.credentials.keep(credential, signingSecretFault);
    const serves = kept?.source.generation ?? null;
    const facts = kept === null ? {} : { id: kept.id };
    return { entry: kept, verdict: { object, accepted, resolved: [], serves, notes: [], facts } };
  };
  if (!read.ok) return keepLastGood(read.faults);
  const spec = read.spec as OrganizationSpec;
  const id = idOf(object, spec);
  if (last !== undefined && last.id !== id) {
    const message = `id is immutable: it is "${last.id}" and can be neither changed, nor added later, nor removed`;
    return keepLastGood([{ reason: "Immutable", path: "spec.id", message }]);
  }
  const holder = holders.get(id);
  if (holder !== object)
    return keepLastGood([
      { reason: "Conflicted", path: "spec.id", message: conflict(id, holder, object, context.owners) },
    ]);

  const resolved: Fault<ResolvedReason>[] = [];
  // Not `last`: its keys stay the same keys, also where the rest of its entry may not stay.
  const before = context.prior.organization(object.uid);
  const resolving: Resolving = { object, before, context, faults: resolved };
  return {
    entry: entryOf(resolving, id, spec),
    verdict: {
      object,
      accepted: [],
      resolved,
      serves: object.generation,
      notes: [],
      facts: { id, ...limitFacts(spec) },
    },
  };
}

/** Returns what a valid spec is served as. Faults of what it refers to are noted. */
function entryOf(resolving: Resolving, id: string, spec: OrganizationSpec): OrganizationEntry {
  const { object } = resolving;
  return {
    source: sourceOf(object),
    id,
    displayName: spec.displayName ?? object.name,
    suspended: spec.suspended ?? false,
    grants: (spec.credits?.grants ?? []).map((grant) => ({
      name: grant.name,
      amountMicros: micros(grant.amount).toString(),
    })),
    allowedModels: spec.models?.allow ?? ["*"],
    toolCallsPerMinute: spec.toolCallsPerMinute ?? null,
    rateLimits: {
      requestsPerMinute: spec.rateLimits?.requestsPerMinute ?? null,
      tokensPerMinute: spec.rateLimits?.tokensPerMinute ?? null,
      concurrentRequests: spec.rateLimits?.concurrentRequests ?? null,
    },
    storage: {
      maxBytes: bytesOf(spec.storage?.maxBytes ?? storageDefaults.maxBytes),
      maxFiles: spec.storage?.maxFiles ?? storageDefaults.maxFiles,
    },
    ...((spec.keyDefaults?.hold ?? spec.hold) === "Typical" ? { hold: "typical" } : {}),
    ...(spec.keyDefaults?.limits === undefined ? {} : { keyDefaults: limitsOf(spec.keyDefaults.limits) }),
    ...notificationsOf(resolving, spec),
    ...projectLimits(spec),
    projects: [...new Set([DEFAULT_PROJECT, ...(spec.projects ?? []).map((project) => project.name)])],
    apiKeys: apiKeysOf(resolving, spec),
    adminKeys: (spec.adminKeys ?? []).flatMap((key, index) => {
      const found = resolveKey(resolving, "adminKeys", index, key);
      return found === null ? [] : [{ name: key.name, ...found }];
    }),
    ...(spec.identity === undefined ? {} : { identity: identityOf(spec.identity) }),
  };
}

/** Returns the keys whose Secrets can be read; what is wrong with the others is noted. */
function apiKeysOf(resolving: Resolving, { apiKeys = [] }: OrganizationSpec): OrganizationEntry["apiKeys"] {
  return apiKeys.flatMap((key, index) => {
    const found = resolveKey(resolving, "apiKeys", index, key);
    if (found === null) return [];
    const expiresAt =
      key.expiresAt === undefined ? undefined : Number((momentMicros(key.expiresAt) ?? 0n) / 1000n);
    return [
      {
        name: key.name,
        ...found,
        project: key.project ?? DEFAULT_PROJECT,
        ...(expiresAt === undefined ? {} : { expiresAt }),
        ...(key.limits === undefined ? {} : { limits: limitsOf(key.limits) }),
      },
    ];
  });
}

function notificationsOf(
  { object, before, context, faults }: Resolving,
  { notifications = [] }: OrganizationSpec,
): Pick<OrganizationEntry, "notifications"> {
  if (notifications.length === 0) return {};
  const entries = notifications.map((declared, index): Notification => {
    const path = () => pathText(["spec", "notifications", index, "secretRef"]);
    const heldBefore = (id: string) =>
      before?.notifications?.some(({ credential }) => credential === id) === true;
    const { secretRef } = declared;
    const { id, fault } = context.credentials.resolve(
      object.namespace,
      secretRef,
      path,
      heldBefore,
      signingSecretFault,
    );
    if (fault !== null) faults.push(fault);
    return {
      url: declared.url,
      credential: id,
      thresholds: declared.thresholds ?? [...thresholdDefaults],
      allowCidrs: declared.allowCIDRs ?? [],
      allowPorts: declared.allowPorts ?? [],
    };
  });
  return { notifications: entries };
}

function identityOf(spec: NonNullable<OrganizationSpec["identity"]>): IdentityEntry {
  return {
    issuer: spec.issuer,
    audiences: spec.audiences,
    jwksUrl: spec.jwksURL ?? null,
    allowCidrs: spec.allowCIDRs ?? [],
    allowPorts: spec.allowPorts ?? [],
    ...(spec.console === undefined ? {} : { console: consoleOf(spec.console) }),
    rules: spec.rules.map(({ claims = {}, role, project = DEFAULT_PROJECT, limits }) => ({
      claims,
      role: roles[role],
      ...(role === "Member" ? { project } : {}),
      ...(limits === undefined ? {} : { limits: limitsOf(limits) }),
    })),
  };
}

type DeclaredSignIn = NonNullable<NonNullable<OrganizationSpec["identity"]>["console"]>;

const consoleOf = (declared: DeclaredSignIn): NonNullable<IdentityEntry["console"]> => ({
  clientId: declared.clientID,
  scopes: declared.scopes ?? [],
  audience: declared.audience ?? null,
  resource: declared.resource ?? null,
  origins: declared.origins ?? [],
});

const roles = { Member: "member", Viewer: "viewer", Admin: "admin" } as const;

function conflict(id: string, holder: Declared | undefined, object: Declared, owners: Owners): string {
  const owner = holder?.namespace ?? owners.get(id);
  return owner === object.namespace && holder !== undefined
    ? `the id "${id}" belongs to Organization ${reference(holder)}, which had it first; choose another id`
    : `the id "${id}" belongs to another namespace, for ever; choose another id, or ask the platform team to release it (main.ts release-organization ${id})`;
}

interface Described {
  readonly sha256: string;
  readonly hint: string;
}

const forms = { apiKeys: "inference", adminKeys: "admin" } as const satisfies Record<string, KeyForm>;
type KeyList = keyof typeof forms;
const lists = Object.keys(forms) as KeyList[];

const slotOf = (object: { readonly uid: string }, list: KeyList, name: string): string =>
  `${object.uid} ${list} ${name}`;

/** Gives a value that several keys have to one of them: the one that it serves already, else the oldest (rule 8.3). */
function giveKeys(outcomes: readonly Outcome[], prior: Prior): Outcome[] {
  const holders = new Map<string, string>();
  const note = ({ sha256 }: Described, slot: string) => {
    if (!holders.has(sha256)) holders.set(sha256, slot);
  };
  const all = outcomes.flatMap(({ entry }) => entry ?? []);
  for (const entry of all)
    for (const list of lists)
      for (const key of entry[list]) {
        const before = prior.organization(entry.source.uid)?.[list] ?? [];
        if (before.some(({ sha256 }) => sha256 === key.sha256))
          note(key, slotOf(entry.source, list, key.name));
      }
  for (const entry of all)
    for (const list of lists) for (const key of entry[list]) note(key, slotOf(entry.source, list, key.name));
  return outcomes.map((outcome) => withoutForeignKeys(outcome, holders));
}

function withoutForeignKeys(outcome: Outcome, holders: ReadonlyMap<string, string>): Outcome {
  const { entry, verdict } = outcome;
  if (entry === null) return outcome;
  const isOwn = (list: KeyList) => (key: Described & { readonly name: string }) =>
    holders.get(key.sha256) === slotOf(entry.source, list, key.name);
  const foreign = lists.flatMap((list) =>
    entry[list].filter((key) => !isOwn(list)(key)).map(({ name }) => ({ list, name })),
  );
  if (foreign.length === 0) return outcome;
  const faults = foreign.map(({ list, name }) => keyTaken(verdict, list, name));
  return {
    entry: {
      ...entry,
      apiKeys: entry.apiKeys.filter(isOwn("apiKeys")),
      adminKeys: entry.adminKeys.filter(isOwn("adminKeys")),
    },
    verdict: { ...verdict, resolved: [...verdict.resolved, ...faults] },
  };
}

function keyTaken({ object, accepted }: Verdict, list: KeyList, name: string): Fault<ResolvedReason> {
  // A last good entry was not made of the present spec.
  const declared = accepted.length === 0 ? ((object.spec as OrganizationSpec)[list] ?? []) : [];
  const index = declared.findIndex((key) => key.name === name);
  const ref = declared[index]?.secretKeyRef;
  const where = ref === undefined ? `key "${name}"` : `Secret "${ref.name}", key "${ref.key}"`;
  return {
    reason: "SecretInvalid",
    path: index < 0 ? `spec.${list}` : pathText(["spec", list, index, "secretKeyRef"]),
    message: `${where}: the same value is another entry's key already`,
  };
}

/**
 * Returns digest and hint of one declared key. When its value disappeared or lost its form, the last good digest stays;
 * a value that was never there goes to `context.wanted`, to be made.
 */
function resolveKey(
  { object, before: published, context, faults }: Resolving,
  list: KeyList,
  index: number,
  { name, secretKeyRef: ref }: { readonly name: string; readonly secretKeyRef: SecretKeyRef },
): Described | null {
  const before = published?.[list].find((entry) => entry.name === name);
  const path = pathText(["spec", list, index, "secretKeyRef"]);
  const form = forms[list];
  const current = lookUp(context, object.namespace, ref);
  if (current.found) {
    if (isKeyOfForm(current.value, form)) return describeKey(current.value, form);
    const wants =
      form === "inference"
        ? '"sk-svc-" and 40 letters and digits'
        : '"sk-adm-svc-" and up to 200 letters, digits and - _ + /, perhaps with = at the end';
    const message = `Secret "${ref.name}", key "${ref.key}": the value is not a key (${wants})`;
    faults.push({ reason: "SecretInvalid", path, message });
  } else {
    const isImmutable = context.immutable.has(`${object.namespace}/${ref.name}`);
    const refusal =
      before === undefined ? context.refused.get(`${object.namespace}/${ref.name}/${ref.key}`) : undefined;
    const advice = isImmutable
      ? "; the Secret is immutable, so that none can be made there: name another"
      : refusal === undefined
        ? ""
        : `; the key cannot be made there: ${refusal}`;
    faults.push({ reason: current.reason, path, message: current.message + advice });
    if (before === undefined && !isImmutable && current.mayBeMade)
      context.wanted.push({
        namespace: object.namespace,
        secret: ref.name,
        key: ref.key,
        form,
        owner: object,
      });
  }
  return before === undefined ? null : { sha256: before.sha256, hint: before.hint };
}
