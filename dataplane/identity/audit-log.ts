/** The audit log: who did what to which key, when and from where. */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";

/** Who asks for a change, and from where. */
export interface Actor {
  readonly organizationId: string;
  /** The admin key. */
  readonly keyId: string;
  readonly requestId: string;
  /** The connection's peer. */
  readonly address: string;
  /** `x-forwarded-for` as it came: a claim, not a fact; null when there is none. */
  readonly forwardedFor: string | null;
}

const actions = ["key.created", "key.updated", "key.deleted", "project.updated"] as const;
export type AuditedAction = (typeof actions)[number];
/** Field by field; null where the field was not there. */
export type FieldChanges = Readonly<
  Record<string, { readonly from: string | null; readonly to: string | null }>
>;

/** Writes one line, of a key or, by its id, a project; in the transaction of the change itself, so that neither is without the other. */
export async function writeAuditLog(
  transaction: CommonQueryMethods,
  actor: Actor,
  action: AuditedAction,
  keyId: string,
  changes: FieldChanges,
): Promise<void> {
  await transaction.query(sql.unsafe`
    insert into audit_log
      (organization_id, actor_key_id, action, key_id, changes, address, forwarded_for, request_id)
    values (${actor.organizationId}, ${actor.keyId}, ${action}, ${keyId}, ${sql.jsonb(changes)}, ${actor.address},
      ${actor.forwardedFor}, ${actor.requestId})
  `);
}

const entrySchema = z.object({
  at: z.number(),
  organizationId: z.string(),
  actorKeyId: z.string(),
  action: z.enum(actions),
  keyId: z.string(),
  changes: z.record(z.string(), z.object({ from: z.string().nullable(), to: z.string().nullable() })),
  address: z.string(),
  forwardedFor: z.string().nullable(),
  requestId: z.string(),
});
/** One line; `at` in Unix milliseconds. */
export type AuditEntry = z.infer<typeof entrySchema>;

export interface AuditQuery {
  readonly organizationId: string | null;
  readonly keyId: string | null;
  /** Unix milliseconds. */
  readonly since: number | null;
  readonly limit: number;
}

/** The newest lines that match, newest first. */
export async function readAuditLog(
  pool: CommonQueryMethods,
  query: AuditQuery,
): Promise<readonly AuditEntry[]> {
  const { organizationId, keyId, since, limit } = query;
  return await pool.any(sql.type(entrySchema)`
    select at, organization_id as "organizationId", actor_key_id as "actorKeyId", action, key_id as "keyId", changes,
      address, forwarded_for as "forwardedFor", request_id as "requestId"
    from audit_log
    where (${organizationId}::text is null or organization_id = ${organizationId})
      and (${keyId}::text is null or key_id = ${keyId})
      and (${since}::float8 is null or at >= to_timestamp(${since}::float8 / 1000))
    order by position desc limit ${limit}
  `);
}
