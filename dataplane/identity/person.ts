/** A person or a program with a token, as the directory keeps it: a principal like a key, without a secret (rule 13.2). */
import { createHash } from "node:crypto";
import { sql, type CommonQueryMethods, type DatabasePool, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import type { IdentityRule, Limits, OrganizationEntry, Role } from "../config/schema.ts";
import { BASE62 } from "../lib/ids.ts";
import { jsonb } from "./limits.ts";
import { lockOrganization } from "./lock-organization.ts";
import type { Principal } from "./principal.ts";

export interface Person {
  /** `usr_…`: the same as long as organization, issuer and subject are the same. */
  readonly id: string;
  /** In place of a key's digest: made of the person, the declaring namespace and what the rules say. No key has it. */
  readonly sha256: string;
  readonly organizationId: string;
  /** Namespace that declares the organization; it has to own the organization's id (rule 8.3). */
  readonly namespace: string;
  readonly kind: Principal["kind"];
  /** Name of a member's project; others have none. */
  readonly project: string | null;
  readonly limits: Limits | null;
  /** For the console; null: the token has none. */
  readonly name: string | null;
}

const kinds = { member: "inference", viewer: "viewer", admin: "admin" } as const satisfies Record<
  Role,
  Principal["kind"]
>;

/** Returns the person that a rule of an organization makes of a subject. */
export function personOf(
  { id: organizationId, source }: OrganizationEntry,
  {
    issuer,
    subject,
    name,
  }: { readonly issuer: string; readonly subject: string; readonly name: string | null },
  rule: IdentityRule,
): Person {
  const { role } = rule;
  const project = rule.project ?? null;
  const limits = rule.limits ?? null;
  const who = [organizationId, issuer, subject];
  return {
    id: `usr_${base62(digestOf(who))}`,
    sha256: digestOf([...who, source.namespace, role, project, limits]).toString("hex"),
    organizationId,
    namespace: source.namespace,
    kind: kinds[role],
    project,
    limits,
    name,
  };
}

const digestOf = (parts: readonly unknown[]): Buffer =>
  createHash("sha256")
    .update(JSON.stringify(["person", ...parts]))
    .digest();

/** Writes a digest in 24 characters, as ids have (lib/ids.ts). */
function base62(digest: Buffer): string {
  let rest = BigInt(`0x${digest.toString("hex")}`);
  let text = "";
  for (let length = 0; length < 24; length += 1) {
    text += BASE62[Number(rest % 62n)];
    rest /= 62n;
  }
  return text;
}

/**
 * Most people of one organization that are kept, as many as keys (keys.ts): a rule may match all whom a provider knows,
 * and the owner of an issuer can make up any number of subjects.
 */
export const MOST_PEOPLE = 10_000;
/**
 * A person who did not come for so long makes room for newcomers, once it is needed: longer than any batch of theirs may
 * run. Nothing is lost but the name: a person who comes again has the same id, and so the same usage and limits.
 */
export const UNSEEN_DAYS = 7;

/** Updates a person as their token says now. False: they are not there. */
export async function updatePerson(pool: CommonQueryMethods, person: Person): Promise<boolean> {
  const { id, sha256, organizationId, namespace, kind, project, limits, name } = person;
  const { rowCount } = await pool.query(sql.unsafe`
    update api_keys key set project_id = project.id, kind = ${kind}, sha256 = ${sha256},
      name = coalesce(${name}, key.name), limits = ${jsonb(limits)}
    from organizations organization
    left join projects project on project.organization_id = organization.id and project.name = ${project}
    where key.id = ${id} and organization.id = ${organizationId} and organization.namespace = ${namespace}
      and (${project}::text is null or project.id is not null)
  `);
  return rowCount > 0;
}

/**
 * Writes a person who was not there. `absent`: the organization or the project is not there (yet), or is another
 * namespace's. `full`: the organization has `MOST_PEOPLE`, all of whom came of late.
 */
export async function writePerson(
  pool: DatabasePool,
  person: Person,
): Promise<"written" | "full" | "absent"> {
  const { id, sha256, organizationId, namespace, kind, project, limits, name } = person;
  return await pool.transaction(async (transaction) => {
    // One at a time for an organization, so that no two take the last place.
    if (!(await lockOrganization(transaction, organizationId, namespace))) return "absent";
    // Another of their tokens may have come meanwhile.
    if (await updatePerson(transaction, person)) return "written";
    if (!(await hasRoom(transaction, organizationId))) return "full";
    const { rowCount } = await transaction.query(sql.unsafe`
      insert into api_keys (id, organization_id, project_id, kind, name, sha256, hint, source, limits)
      select ${id}, organization.id, project.id, ${kind}, ${name ?? ""}, ${sha256}, '', 'identity', ${jsonb(limits)}
      from organizations organization
      left join projects project on project.organization_id = organization.id and project.name = ${project}
      where organization.id = ${organizationId} and (${project}::text is null or project.id is not null)
      on conflict (id) do nothing
    `);
    return rowCount > 0 ? "written" : "absent";
  });
}

async function hasRoom(transaction: DatabaseTransactionConnection, organizationId: string): Promise<boolean> {
  const people = sql.fragment`organization_id = ${organizationId} and source = 'identity'`;
  const count = await transaction.oneFirst(
    sql.type(z.object({ count: z.bigint() }))`select count(*) as count from api_keys where ${people}`,
  );
  if (count < MOST_PEOPLE) return true;
  const { rowCount } = await transaction.query(sql.unsafe`
    delete from api_keys
    where ${people} and greatest(created_at, last_used_at) < now() - ${UNSEEN_DAYS} * interval '1 day'
  `);
  return rowCount > 0;
}
