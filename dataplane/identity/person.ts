/** A person or a program with a token, as the directory keeps it: a principal beside the keys, without a secret (rule 13.2). */
import { createHash } from "node:crypto";
import { sql, type CommonQueryMethods } from "slonik";
import type { IdentityRule, Limits, OrganizationEntry, Role } from "../config/schema.ts";
import { jsonb } from "./limits.ts";
import type { Principal } from "./principal.ts";

export interface Person {
  /** `usr_…`: the same for as long as organization, issuer and subject are. */
  readonly id: string;
  /** Stands where a key's digest does: of who it is and of what the rules say of it. No key has it. */
  readonly sha256: string;
  readonly organizationId: string;
  /** That declares the organization: it has to own its id (rule 8.3). */
  readonly namespace: string;
  readonly kind: Principal["kind"];
  /** Name of a member's project; others have none. */
  readonly project: string | null;
  readonly limits: Limits | null;
  /** For the console; null: the token says none. */
  readonly name: string | null;
}

const kinds = { member: "inference", viewer: "viewer", admin: "admin" } as const satisfies Record<
  Role,
  Principal["kind"]
>;

/** Whom the rules of an organization make of a subject. */
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
    sha256: digestOf([...who, role, project, limits]).toString("hex"),
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

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** 24 characters, as ids have (lib/ids.ts). */
function base62(digest: Buffer): string {
  let rest = BigInt(`0x${digest.toString("hex")}`);
  let text = "";
  for (let length = 0; length < 24; length += 1) {
    text += DIGITS[Number(rest % 62n)];
    rest /= 62n;
  }
  return text;
}

/** Nothing is written where the organization or the project is not there (yet). */
export async function writePerson(pool: CommonQueryMethods, person: Person): Promise<void> {
  const { id, sha256, organizationId, namespace, kind, project, limits, name } = person;
  await pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, sha256, hint, source, limits)
    select ${id}, organization.id, project.id, ${kind}, ${name ?? ""}, ${sha256}, '', 'identity', ${jsonb(limits)}
    from organizations organization
    left join projects project on project.organization_id = organization.id and project.name = ${project}
    where organization.id = ${organizationId} and organization.namespace = ${namespace}
      and (${project}::text is null or project.id is not null)
    on conflict (id) do update set project_id = excluded.project_id, kind = excluded.kind, sha256 = excluded.sha256,
      name = case when ${name === null} then api_keys.name else excluded.name end, limits = excluded.limits
  `);
}
