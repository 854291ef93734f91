/** Keys that Organizations declare: copying them with a snapshot, and notes on those that are not served (rules 5.3, 6.9). */
import { sql, type CommonQueryMethods, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import { limitsSchema, type Limits, type NoteReason, type OrganizationEntry } from "../config/schema.ts";
import type { NewId } from "../lib/ids.ts";

interface DeclaredKey {
  readonly organizationId: string;
  readonly kind: "inference" | "admin";
  readonly name: string;
  readonly sha256: string;
  readonly hint: string;
  /** Name of its project; admin keys have none. */
  readonly project: string | null;
  /** Unix milliseconds; null: never. */
  readonly expiresAt: number | null;
  readonly limits: Limits | null;
}

const storedSchema = z.object({
  id: z.string(),
  organizationId: z.string(),
  kind: z.enum(["inference", "admin"]),
  name: z.string(),
  sha256: z.string().nullable(),
  hint: z.string(),
  projectName: z.string().nullable(),
  expiresAt: z.number().nullable(),
  limits: limitsSchema.nullable(),
  active: z.boolean(),
});
type StoredKey = z.infer<typeof storedSchema>;

export interface CopiedKeys {
  /** Organizations in which a key ended or changed. */
  readonly ended: readonly string[];
  /** Organizations that declare a secret which another key has. */
  readonly waiting: readonly string[];
}

/**
 * Makes the declared keys of these organizations what the snapshot says. A declared key is identified by its name: with
 * another secret it is the same key and keeps its id and usage, even if it was removed and deleted meanwhile. A secret
 * that another key has already stays with that key, unless that key's organization is deleted.
 */
export async function copyKeys(
  transaction: DatabaseTransactionConnection,
  entries: readonly OrganizationEntry[],
  newId: NewId,
): Promise<CopiedKeys> {
  const declared = new Map(entries.flatMap(declaredKeys).map((key) => [nameOf(key), key]));
  const stored = await readStored(
    transaction,
    entries.map(({ id }) => id),
  );
  const ended = stored.filter((key) => key.active && !isSame(key, declared.get(nameOf(key))));
  // All ended keys first, so that a secret may move from one name to another.
  await transaction.query(sql.unsafe`
    update api_keys set status = 'inactive', sha256 = null
    where id = any(${sql.array(
      ended.map(({ id }) => id),
      "text",
    )})
  `);
  const unchanged = new Set(stored.filter((key) => key.active && !ended.includes(key)).map(nameOf));
  const known = new Map(stored.map((key) => [nameOf(key), key.id]));
  const wanted = [...declared.values()].filter((key) => !unchanged.has(nameOf(key)));
  await takeFromDeleted(transaction, wanted);
  const free = await withoutTaken(transaction, wanted);
  await write(
    transaction,
    free.map((key) => ({ ...key, id: known.get(nameOf(key)) ?? newId("apikey") })),
  );
  const copied = new Set(free);
  return {
    ended: ended.map(({ organizationId }) => organizationId),
    waiting: wanted.filter((key) => !copied.has(key)).map(({ organizationId }) => organizationId),
  };
}

/** A declared key that is not served as it is declared. */
export interface KeyNote {
  readonly organizationId: string;
  /** Path in the Organization. */
  readonly path: string;
  readonly reason: Extract<NoteReason, `Key${string}` | "NamesUsedUp">;
}

/** Declared keys that have expired by now (Unix milliseconds). */
export function expiredKeys({ id, apiKeys }: OrganizationEntry, now: number): KeyNote[] {
  return apiKeys.flatMap(({ expiresAt }, index) =>
    expiresAt === undefined || expiresAt > now
      ? []
      : [{ organizationId: id, path: `spec.apiKeys[${index}].expiresAt`, reason: "KeyExpired" }],
  );
}

/**
 * Compares the declarations with what is stored. Only tenants can use up their names, so only their keys may be in another
 * project than they declare.
 */
export async function keyNotes(
  pool: CommonQueryMethods,
  organizations: readonly OrganizationEntry[],
): Promise<KeyNote[]> {
  const declared = organizations.flatMap(({ id, apiKeys, adminKeys, isTenants }) => [
    ...apiKeys.map(({ name, sha256, project }, index) => [
      id,
      "inference",
      name,
      sha256,
      `spec.apiKeys[${index}]`,
      isTenants === true ? project : null,
    ]),
    ...adminKeys.map(({ name, sha256 }, index) => [
      id,
      "admin",
      name,
      sha256,
      `spec.adminKeys[${index}]`,
      null,
    ]),
  ]);
  const rowSchema = z.object({
    organizationId: z.string(),
    path: z.string(),
    served: z.boolean(),
    taken: z.boolean(),
  });
  const rows = await pool.any(
    sql.type(rowSchema)`
      select declared.organization_id as "organizationId", declared.path,
        key.sha256 is not distinct from declared.sha256 as served,
        exists (select from api_keys other where other.sha256 = declared.sha256) as taken
      from ${sql.unnest(declared, ["text", "text", "text", "text", "text", "text"])}
        as declared (organization_id, kind, name, sha256, path, project)
      left join api_keys key on key.organization_id = declared.organization_id and key.kind = declared.kind
        and key.name = declared.name and key.source = 'declared'
      left join projects project on project.id = key.project_id
      where key.sha256 is distinct from declared.sha256 or project.name <> declared.project
      order by declared.organization_id, declared.path
    `,
  );
  const tenants = new Set(organizations.filter(({ isTenants }) => isTenants === true).map(({ id }) => id));
  return rows.map(({ organizationId, path, served, taken }): KeyNote => {
    if (served) return { organizationId, path: `${path}.project`, reason: "NamesUsedUp" };
    const isTaken = taken || !tenants.has(organizationId);
    return { organizationId, path, reason: isTaken ? "KeyConflicted" : "NamesUsedUp" };
  });
}

/** Returns the keys that declare each secret, by the secret's SHA-256: all of them, as any may have it. */
export function keysBySecret(entries: readonly OrganizationEntry[]): ReadonlyMap<string, string> {
  const opened = new Map<string, string>();
  for (const key of entries.flatMap(declaredKeys)) {
    const others = opened.get(key.sha256) ?? "";
    opened.set(key.sha256, others + JSON.stringify([nameOf(key), key.project]));
  }
  return opened;
}

const nameOf = ({ organizationId, kind, name }: Pick<DeclaredKey, "organizationId" | "kind" | "name">) =>
  JSON.stringify([organizationId, kind, name]);

function declaredKeys(entry: OrganizationEntry): DeclaredKey[] {
  const organizationId = entry.id;
  return [
    ...entry.apiKeys.map((key) => ({
      ...key,
      organizationId,
      kind: "inference" as const,
      expiresAt: key.expiresAt ?? null,
      limits: key.limits ?? null,
    })),
    ...entry.adminKeys.map((key) => ({
      ...key,
      organizationId,
      kind: "admin" as const,
      project: null,
      expiresAt: null,
      limits: null,
    })),
  ];
}

/** Writes limits with their fields in the order of the schema. */
const limitsText = (limits: Limits | null): string => JSON.stringify(limits && limitsSchema.parse(limits));

function isSame(stored: StoredKey, declared: DeclaredKey | undefined): boolean {
  return (
    declared !== undefined &&
    stored.sha256 === declared.sha256 &&
    stored.projectName === declared.project &&
    stored.expiresAt === declared.expiresAt &&
    limitsText(stored.limits) === limitsText(declared.limits)
  );
}

async function readStored(
  transaction: DatabaseTransactionConnection,
  organizationIds: readonly string[],
): Promise<readonly StoredKey[]> {
  return await transaction.any(sql.type(storedSchema)`
    select key.id, key.organization_id as "organizationId", key.kind, key.name, key.sha256, key.hint,
      project.name as "projectName", key.expires_at as "expiresAt", key.limits, key.status = 'active' as active
    from api_keys key left join projects project on project.id = key.project_id
    where key.source = 'declared' and key.organization_id = any(${sql.array([...organizationIds], "text")})
  `);
}

/**
 * Takes these secrets from keys of deleted organizations. A key that was made through the admin API is deleted with its
 * secret: no declaration could bring it back.
 */
async function takeFromDeleted(
  transaction: DatabaseTransactionConnection,
  keys: readonly DeclaredKey[],
): Promise<void> {
  await transaction.query(sql.unsafe`
    update api_keys key
    set status = 'inactive', sha256 = null,
      deleted_at = case when key.source = 'created' then clock_timestamp() else key.deleted_at end
    from organizations organization
    where organization.id = key.organization_id and organization.deleted_at is not null
      and key.sha256 = any(${sql.array(
        keys.map(({ sha256 }) => sha256),
        "text",
      )})
  `);
}

/** Returns the keys whose secret is free. A secret opens one key: the stored one that has it, else the snapshot's first. */
async function withoutTaken(
  transaction: DatabaseTransactionConnection,
  keys: readonly DeclaredKey[],
): Promise<DeclaredKey[]> {
  const taken = new Set(
    await transaction.anyFirst(sql.type(z.object({ sha256: z.string() }))`
      select sha256 from api_keys where sha256 = any(${sql.array(
        keys.map(({ sha256 }) => sha256),
        "text",
      )})
    `),
  );
  return keys.filter(({ sha256 }) => {
    if (taken.has(sha256)) return false;
    taken.add(sha256);
    return true;
  });
}

async function write(
  transaction: DatabaseTransactionConnection,
  keys: readonly (DeclaredKey & { readonly id: string })[],
): Promise<void> {
  await transaction.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, sha256, hint, source, expires_at, limits)
    select declared.id, declared.organization_id, project.id, declared.kind, declared.name, declared.sha256,
      declared.hint, 'declared', from_unix_ms(declared.expires_ms), declared.limits::jsonb
    from ${sql.unnest(
      keys.map((key) => [
        key.id,
        key.organizationId,
        key.project,
        key.kind,
        key.name,
        key.sha256,
        key.hint,
        key.expiresAt,
        key.limits === null ? null : limitsText(key.limits),
      ]),
      ["text", "text", "text", "text", "text", "text", "text", "int8", "text"],
    )} as declared (id, organization_id, project, kind, name, sha256, hint, expires_ms, limits)
    left join projects project
      on project.organization_id = declared.organization_id and project.name = declared.project
    on conflict (id) do update set project_id = excluded.project_id, sha256 = excluded.sha256,
      hint = excluded.hint, expires_at = excluded.expires_at, limits = excluded.limits,
      status = 'active', deleted_at = null
  `);
}
