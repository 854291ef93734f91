/** Finds stored requests (rule 14.2). */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { pageFrom, type ListPage, type PageAsked } from "../store/list-page.ts";
import { timestamp } from "../store/timestamp.ts";

const trySchema = z.object({
  upstream: z.string(),
  status: z.number().nullable().default(null),
  fault: z.string().nullable().default(null),
  reason: z.string().nullable().default(null),
  words: z.string().nullable().default(null),
  ms: z.number(),
});

const count = z
  .bigint()
  .nullable()
  .transform((value) => Number(value ?? 0n));
const rowSchema = z.object({
  id: z.string(),
  acceptedAt: z.number(),
  organizationId: z.string().nullable(),
  projectId: z.string().nullable(),
  keyId: z.string().nullable(),
  method: z.string().nullable(),
  url: z.string().nullable(),
  dialect: z.string().nullable(),
  path: z.string().nullable(),
  model: z.string().nullable(),
  upstream: z.string().nullable(),
  status: z.number(),
  error: z.string().nullable(),
  errorCode: z.string().nullable(),
  streamed: z
    .boolean()
    .nullable()
    .transform((value) => value === true),
  firstByteMs: z.number().nullable(),
  durationMs: z.number(),
  tries: z
    .array(trySchema)
    .nullable()
    .transform((value) => value ?? []),
  inputTokens: count,
  outputTokens: count,
  micros: z
    .bigint()
    .nullable()
    .transform((value) => value ?? 0n),
  toolCalls: z.record(z.string(), z.number()).nullable(),
  batchId: z.string().nullable(),
  traceId: z.string().nullable(),
  tags: z.string().nullable(),
});
/** A request as it is stored. */
export type KeptRequest = z.output<typeof rowSchema>;

const columns = sql.fragment`
  id, accepted_at as "acceptedAt", organization_id as "organizationId", project_id as "projectId", key_id as "keyId",
  method, url, dialect, path, model, upstream, status, error, error_code as "errorCode", streamed,
  first_byte_ms as "firstByteMs", duration_ms as "durationMs", tries, input_tokens as "inputTokens",
  output_tokens as "outputTokens", credit_micros as micros, tool_calls as "toolCalls", batch_id as "batchId",
  trace_id as "traceId", tags
`;

/** Finds a request by its id; of any organization when none is given. null: unknown, another's, or too old. */
export async function findRequest(
  pool: CommonQueryMethods,
  id: string,
  organizationId: string | null = null,
): Promise<KeptRequest | null> {
  const own =
    organizationId === null ? sql.fragment`` : sql.fragment`and organization_id = ${organizationId}`;
  const [newest = null] = await pool.any(sql.type(rowSchema)`
    select ${columns} from request_records where id = ${id} ${own} order by accepted_at desc limit 1
  `);
  return newest;
}

/** Filter of a list; null: anything. Times are Unix milliseconds. */
export interface RequestFilter {
  readonly organizationId: string;
  readonly keyId: string | null;
  readonly projectId: string | null;
  readonly model: string | null;
  readonly status: number | null;
  readonly code: string | null;
  readonly from: number;
  /** Exclusive. */
  readonly to: number | null;
}

/** Returns one page of inference requests. null: the cursor names none of these, or none of the organization's. */
export async function listRequests(
  pool: CommonQueryMethods,
  filter: RequestFilter,
  asked: PageAsked,
): Promise<ListPage<KeptRequest> | null> {
  const { cursor } = asked;
  const at = cursor === null ? null : await findRequest(pool, cursor.id, filter.organizationId);
  if (cursor !== null && (at === null || at.dialect === null)) return null;
  const place = at === null ? null : sql.fragment`${timestamp(at.acceptedAt)}, ${at.id}`;
  const page = pageFrom(asked, place, ["accepted_at", "id"]);
  const { from, to } = filter;
  const only = (column: string, value: string | number | null) =>
    value === null ? sql.fragment`` : sql.fragment`and ${sql.identifier([column])} = ${value}`;
  const rows = await pool.any(sql.type(rowSchema)`
    select ${columns} from request_records
    where organization_id = ${filter.organizationId} and dialect is not null
      and accepted_at >= ${timestamp(from)}
      ${to === null ? sql.fragment`` : sql.fragment`and accepted_at < ${timestamp(to)}`}
      ${only("key_id", filter.keyId)} ${only("project_id", filter.projectId)} ${only("model", filter.model)}
      ${only("status", filter.status)} ${only("error_code", filter.code)}
      ${page.beyond}
    ${page.walk}
  `);
  return page.show(rows);
}
