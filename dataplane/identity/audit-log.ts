/** The audit log: who did what to which key, when and from where. */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { ApiError } from "../lib/api-error.ts";
import { metrics } from "../telemetry/metrics.ts";

/** Most changes of an organization in 24 hours, enough to make all keys anew: each leaves a line, a deleted key also a row. */
export const MOST_CHANGES = 20_000;
/** Most bytes of changes in their lines: limits that name many models are long. */
export const MOST_CHANGED_BYTES = 16 * 1024 * 1024;

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
/** Old and new value by field; null where the field was not there. */
export type FieldChanges = Readonly<
  Record<string, { readonly from: string | null; readonly to: string | null }>
>;

/**
 * Writes one line about the key or the project with the id `keyId`: in the transaction of the change itself, so that neither is
 * without the other, and once the organization is locked.
 */
export async function writeAuditLog(
  transaction: CommonQueryMethods,
  actor: Actor,
  action: AuditedAction,
  keyId: string,
  changes: FieldChanges,
): Promise<void> {
  await transaction.query(sql.unsafe`
    insert into audit_log (organization_id, actor_key_id, action, key_id, changes, address, forwarded_for, request_id,
      lines_so_far, bytes_so_far)
    select line.*, coalesce(lines_so_far, 0) + 1, coalesce(bytes_so_far, 0) + octet_length(line.changes::text)
    from (values (${actor.organizationId}, ${actor.keyId}, ${action}, ${keyId}, ${sql.jsonb(changes)}, ${actor.address},
      ${actor.forwardedFor}::text, ${actor.requestId})
    ) line (organization_id, actor_key_id, action, key_id, changes, address, forwarded_for, request_id)
    left join (${newestLine(actor.organizationId)}) newest on true
  `);
}

/**
 * Limits the changes of an organization. To be called, once it is locked, before a change that may wait; one that ends a key may
 * not, and is only counted.
 * @throws ApiError 429 beyond `MOST_CHANGES` or `MOST_CHANGED_BYTES`.
 */
export async function limitChanges(transaction: CommonQueryMethods, organizationId: string): Promise<void> {
  const own = sql.fragment`select lines_so_far, bytes_so_far, changes_bytes from audit_log where organization_id = ${organizationId}`;
  const ofDay = await transaction.maybeOne(
    sql.type(z.object({ lines: z.bigint(), bytes: z.bigint() }))`
      select newest.lines_so_far - coalesce(older.lines_so_far, oldest.lines_so_far - 1) as lines,
        newest.bytes_so_far - coalesce(older.bytes_so_far, oldest.bytes_so_far - oldest.changes_bytes) as bytes
      from (${newestLine(organizationId)}) newest
      cross join (${own} order by position limit 1) oldest
      left join (
        ${own} and at <= now() - interval '1 day' order by at desc, position desc limit 1
      ) older on true
    `,
  );
  if (ofDay === null || (ofDay.lines < MOST_CHANGES && ofDay.bytes < MOST_CHANGED_BYTES)) return;
  metrics.refused.inc({ reason: "changes" });
  throw new ApiError(
    "rate_limited",
    `An organization may change its keys and projects at most ${MOST_CHANGES} times in 24 hours, by at most ${MOST_CHANGED_BYTES} bytes. Keys can still be deactivated and deleted.`,
    { retryAfterSeconds: 60, retry: false },
  );
}

const newestLine = (organizationId: string) => sql.fragment`
  select lines_so_far, bytes_so_far from audit_log where organization_id = ${organizationId} order by position desc limit 1
`;

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
