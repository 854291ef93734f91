/** Organizations: one id each, grants, and the digests of declared keys. */
import type { OrganizationEntry } from "../../dataplane/config/schema.ts";
import { DEFAULT_PROJECT, type OrganizationSpec } from "../api/organization.ts";
import type { Claims } from "./claims.ts";
import { describeKey, isKeyOfForm, type KeyForm, lookUp, type SecretKeyRef } from "./credentials.ts";
import { micros } from "./decimal.ts";
import {
  type Declared,
  type Fault,
  pathText,
  type ResolvedReason,
  type Secrets,
  type Verdict,
  type WantedKey,
} from "./objects.ts";
import type { Prior } from "./prior.ts";
import { readSpec } from "./read-spec.ts";
import { sourceOf } from "./source.ts";

export interface OrganizationContext {
  readonly prior: Prior;
  readonly secrets: Secrets;
  /** Organization ids. */
  readonly claims: Claims;
  /** Digests of keys that are taken: one key authenticates one entry. */
  readonly keyDigests: Set<string>;
  /** Receives the keys that have to be made. */
  readonly wanted: WantedKey[];
}

interface Outcome {
  readonly verdict: Verdict;
  readonly entry: OrganizationEntry | null;
}

/** One organization; to be called oldest first. */
export function compileOrganization(object: Declared, context: OrganizationContext): Outcome {
  const read = readSpec(object);
  if (!read.ok) return keepLastGood(object, read.faults, context);
  const spec = read.spec as OrganizationSpec;
  const id = spec.id ?? `org_${object.namespace}_${object.name}`;
  const last = context.prior.organization(object.uid);
  if (last !== undefined && last.id !== id) {
    const message = `id is immutable: it is "${last.id}" and can be neither changed, nor added later, nor removed`;
    return keepLastGood(object, [{ reason: "Immutable", path: "spec.id", message }], context);
  }
  if (context.claims.takenIndex([id], object) >= 0) {
    const message = `the id "${id}" belongs to ${context.claims.describeHolder(id, object)}`;
    return keepLastGood(object, [{ reason: "Conflicted", path: "spec.id", message }], context);
  }
  context.claims.take([id], object);

  const resolved: Fault<ResolvedReason>[] = [];
  const entry: OrganizationEntry = {
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
    projects: [...new Set([DEFAULT_PROJECT, ...(spec.projects ?? []).map((project) => project.name)])],
    apiKeys: (spec.apiKeys ?? []).flatMap((key, index) => {
      const before = last?.apiKeys.find((entry) => entry.name === key.name);
      const found = resolveKey(
        object,
        "apiKeys",
        index,
        "inference",
        key.secretKeyRef,
        before,
        context,
        resolved,
      );
      return found === null ? [] : [{ name: key.name, ...found, project: key.project ?? DEFAULT_PROJECT }];
    }),
    adminKeys: (spec.adminKeys ?? []).flatMap((key, index) => {
      const before = last?.adminKeys.find((entry) => entry.name === key.name);
      const found = resolveKey(
        object,
        "adminKeys",
        index,
        "admin",
        key.secretKeyRef,
        before,
        context,
        resolved,
      );
      return found === null ? [] : [{ name: key.name, ...found }];
    }),
  };
  return {
    entry,
    verdict: { object, accepted: [], resolved, serves: object.generation, notes: [], facts: {} },
  };
}

function keepLastGood(object: Declared, accepted: readonly Fault[], context: OrganizationContext): Outcome {
  const last = context.prior.organization(object.uid);
  const free = last !== undefined && context.claims.takenIndex([last.id], object) < 0;
  const verdict: Verdict = { object, accepted, resolved: [], serves: null, notes: [], facts: {} };
  if (!free) return { entry: null, verdict };
  context.claims.take([last.id], object);
  for (const key of [...last.apiKeys, ...last.adminKeys]) context.keyDigests.add(key.sha256);
  return { entry: last, verdict: { ...verdict, serves: last.source.generation } };
}

interface Described {
  readonly sha256: string;
  readonly hint: string;
}

/**
 * Digest and hint of one declared key. A value that disappeared or lost its form leaves the last good digest;
 * one that was never there is wanted from whoever makes keys.
 */
function resolveKey(
  object: Declared,
  list: "apiKeys" | "adminKeys",
  index: number,
  form: KeyForm,
  ref: SecretKeyRef,
  before: Described | undefined,
  context: OrganizationContext,
  faults: Fault<ResolvedReason>[],
): Described | null {
  const path = pathText(["spec", list, index, "secretKeyRef"]);
  const current = lookUp(context.secrets, object.namespace, ref);
  const wellFormed = current.found && isKeyOfForm(current.value, form);
  if (current.found && !wellFormed) {
    const wants = form === "inference" ? '"sk-svc-" and 40 letters and digits' : '"sk-adm-svc-" and more';
    const message = `Secret "${ref.name}", key "${ref.key}": the value is not a key (${wants})`;
    faults.push({ reason: "SecretInvalid", path, message });
  } else if (!current.found) {
    faults.push({ reason: "SecretNotFound", path, message: current.message });
    if (before === undefined)
      context.wanted.push({
        namespace: object.namespace,
        secret: ref.name,
        key: ref.key,
        form,
        owner: object,
      });
  }
  const described = wellFormed
    ? describeKey(current.value, form)
    : before === undefined
      ? null
      : { sha256: before.sha256, hint: before.hint };
  if (described === null) return null;
  if (context.keyDigests.has(described.sha256)) {
    const message = `Secret "${ref.name}", key "${ref.key}": the same value is another entry's key already`;
    faults.push({ reason: "SecretInvalid", path, message });
    return null;
  }
  context.keyDigests.add(described.sha256);
  return described;
}
