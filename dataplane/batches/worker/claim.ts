/** Takes waiting items for this worker, many at a time and never one that another worker takes (SKIP LOCKED). */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { dialects } from "../../dialects/dialect.ts";
import { timestamp } from "../../store/timestamp.ts";
import { batchForms } from "../batch.ts";
import { SUSPECT_LOSSES } from "./losses.ts";

/** Batches of one organization that stand in line at once; the others follow as these end. */
const BATCHES_EACH = 8;
const MOST_BATCHES = 1_000;
/** Most items of a batch that are searched for ones that may begin now and that no other worker is claiming. */
const MOST_CANDIDATES = 10_000;
/** Larger bodies are read when their items run: sixty of 32 MiB would not fit into memory. */
export const SMALL_BODY_BYTES = 256 * 1024;

const claimedSchema = z.object({
  batchId: z.string(),
  number: z.number(),
  /** New with each claim. A run's result is stored only while the item still has this one. */
  claim: z.string(),
  customId: z.string(),
  requestId: z.string(),
  acceptedAt: z.number(),
  model: z.string().nullable(),
  /** null: larger than SMALL_BODY_BYTES. */
  body: z.instanceof(Buffer).nullable(),
  bodyBytes: z.number(),
  faults: z.number(),
  ownFaults: z.number(),
  losses: z.number(),
  firstFaultAt: z.number().nullable(),
  organizationId: z.string(),
  projectId: z.string(),
  keyId: z.string(),
  /** The batch's times. */
  createdAt: z.number(),
  expiresAt: z.number(),
  form: z.enum(batchForms),
  dialect: z.enum(dialects),
  headers: z.string(),
});
export type ClaimedItem = Readonly<z.infer<typeof claimedSchema>>;

/** An organization and a model, by the name that its items use. */
export interface ModelAsked {
  readonly organizationId: string;
  readonly model: string;
}

/** How many more items of an organization and model may begin. */
export interface ModelRoom extends ModelAsked {
  readonly room: number;
}

/** Models and batches of which no more items may begin for now. */
export interface Blocked {
  /** Blocked for all organizations. */
  readonly models: readonly string[];
  /** Blocked for one organization each. */
  readonly asked: readonly ModelAsked[];
  readonly batches: readonly string[];
  /** Whether items that may end their process are blocked, as one runs here (losses.ts). */
  readonly suspects: boolean;
}

/** A batch that has items to run now. */
export interface BatchInLine {
  readonly id: string;
  readonly organizationId: string;
}

/** Condition of items that may begin now; the index of waiting items has all its columns. */
const ready = ({ suspects }: Pick<Blocked, "suspects">) => sql.fragment`
  item.state = 'waiting' and (item.not_before is null or item.not_before <= clock_timestamp())
  and (item.losses < ${SUSPECT_LOSSES} or not ${suspects})
`;
const runnable = (now: number) => sql.fragment`
  batch.state = 'in_progress' and batch.cancel_initiated_at is null and batch.expires_at > ${timestamp(now)}
`;
/** Items of suspended and deleted organizations wait (rule 4.5). */
const isServed = sql.fragment`
  not coalesce(organization.suspended or organization.deleted_at is not null, false)
`;
const unblocked = (
  { models, asked }: Pick<Blocked, "models" | "asked">,
  model = sql.fragment`item.model`,
) => sql.fragment`
  (${model} is null or not (
    ${model} = any(${sql.array([...models], "text")})
    or (batch.organization_id, ${model}) in (select * from ${sql.unnest(
      asked.map(({ organizationId, model: name }) => [organizationId, name]),
      ["text", "text"],
    )})
  ))
`;
/** Whether some item of the batch may be unblocked, as far as `batches.models` tells: its items may be very many. */
const hasUnblocked = (blocked: Pick<Blocked, "models" | "asked">) => sql.fragment`
  (batch.models is null or exists (
    select from unnest(batch.models) as named (model) where ${unblocked(blocked, sql.fragment`named.model`)}
  ))
`;

/**
 * Returns the batches in line: the oldest of each organization, then the second of each, and so on. Those of suspended and
 * deleted organizations wait (rule 4.5). One that is blocked takes no place in line from those behind it (rule 9.6).
 */
export async function batchesInLine(
  db: CommonQueryMethods,
  now: number,
  blocked: Blocked,
): Promise<readonly BatchInLine[]> {
  return await db.any(sql.type(z.object({ id: z.string(), organizationId: z.string() }))`
    select line.id, holder.organization_id as "organizationId"
    from (select distinct organization_id from batches where state = 'in_progress') as holder
      left join organizations organization on organization.id = holder.organization_id
      -- Of each only as many as stand in line are looked into: an organization may have any number.
      cross join lateral (
        select batch.id, batch.position, row_number() over (order by batch.position) as place
        from (
          select batch.id, batch.position from batches batch
          where batch.organization_id = holder.organization_id and ${runnable(now)}
            and not batch.id = any(${sql.array([...blocked.batches], "text")}) and ${hasUnblocked(blocked)}
            and (
              -- An order and a limit make Postgres read the index. An exists() ignores both, and where it expects many it reads the whole table.
              select true from batch_items item where item.batch_id = batch.id and ${ready(blocked)} and ${unblocked(blocked)}
              order by item.number limit 1
            )
          order by batch.position limit ${BATCHES_EACH}
        ) as batch
      ) as line
    where ${isServed}
    order by line.place, line.position limit ${MOST_BATCHES}
  `);
}

/** What may be claimed at the moment. */
export interface Claim {
  /** Most items of each batch. */
  readonly shares: ReadonlyMap<string, number>;
  readonly blocked: Omit<Blocked, "batches">;
  /** Most items of each of these models, over all batches. */
  readonly modelRooms: ReadonlyMap<string, number>;
  readonly askedRooms: readonly ModelRoom[];
}

/**
 * Claims items of each batch in input order. Where a model has fewer places than items, organizations take turns, and so do
 * the batches of each; who is first is drawn by lot (rule 4.5). A worker that the others took for dead gets none until its
 * next heartbeat: they would take them from it again.
 */
export async function claimItems(
  db: CommonQueryMethods,
  workerId: string,
  now: number,
  { shares, blocked, modelRooms, askedRooms }: Claim,
): Promise<readonly ClaimedItem[]> {
  const claimed = await db.any(sql.type(claimedSchema)`
    with locked as (
      select item.batch_id, item.number, item.model, item.losses
      from ${sql.unnest([...shares], ["text", "int4"])} as share (batch_id, count)
      join batches batch on batch.id = share.batch_id
      cross join lateral (
        select item.batch_id, item.number, item.model, item.losses
        from (
          -- First through the index alone: where rows are locked, Postgres fetches each, also of the thousands that may not begin yet.
          select item.batch_id, item.number from batch_items item
          where item.batch_id = share.batch_id and ${ready(blocked)} and ${unblocked(blocked)}
            and exists (select from batch_workers where id = ${workerId})
          order by item.number limit ${MOST_CANDIDATES}
        ) as candidate
        cross join lateral (
          select item.batch_id, item.number, item.model, item.losses from batch_items item
          where item.batch_id = candidate.batch_id and item.number = candidate.number and ${ready(blocked)}
          for update skip locked
        ) as item
        order by candidate.number limit share.count
      ) as item
    ), within_batches as (
      select locked.*, batch.organization_id,
        row_number() over (partition by locked.model, locked.batch_id order by locked.number) as turn
      from locked join batches batch on batch.id = locked.batch_id
    ), within_organizations as (
      select *, row_number() over (partition by model, organization_id order by turn, random()) as turn_of_all
      from within_batches
    ), counted as (
      select within_organizations.*, row_number() over (partition by model order by turn_of_all, random()) as place,
        row_number() over (partition by losses >= ${SUSPECT_LOSSES} order by losses, random()) as place_of_suspects
      from within_organizations left join ${sql.unnest(
        askedRooms.map(({ organizationId, model, room }) => [organizationId, model, room]),
        ["text", "text", "int4"],
      )} as asked (organization_id, model, count) using (organization_id, model)
      where asked.count is null or turn_of_all <= asked.count
    ), picked as (
      select counted.batch_id, counted.number
      from counted left join ${sql.unnest([...modelRooms], ["text", "int4"])} as room (model, count)
        on room.model = counted.model
      where (room.count is null or counted.place <= room.count)
        and (counted.losses < ${SUSPECT_LOSSES} or counted.place_of_suspects = 1)
    )
    update batch_items item set state = 'running', worker = ${workerId}, claim = gen_random_uuid(), not_before = null
    from picked, batches batch
    where item.batch_id = picked.batch_id and item.number = picked.number
      and batch.id = item.batch_id and ${runnable(now)}
    returning item.batch_id as "batchId", item.number, item.claim, item.custom_id as "customId", item.request_id as "requestId",
      item.accepted_at as "acceptedAt", item.model, octet_length(item.body) as "bodyBytes",
      case when octet_length(item.body) <= ${SMALL_BODY_BYTES} then item.body end as body,
      item.faults, item.own_faults as "ownFaults", item.losses, item.first_fault_at as "firstFaultAt",
      batch.organization_id as "organizationId", batch.project_id as "projectId", batch.key_id as "keyId",
      batch.created_at as "createdAt", batch.expires_at as "expiresAt", batch.form, batch.dialect, batch.headers
  `);
  return claimed.toSorted((one, other) => one.number - other.number);
}

/**
 * Whether a claimed item that has waited for room may still begin: since then it may have been taken from this worker, or its batch
 * been cancelled, or be overdue.
 */
export async function mayBegin(
  db: CommonQueryMethods,
  { batchId, number, claim }: Pick<ClaimedItem, "batchId" | "number" | "claim">,
  now: number,
): Promise<boolean> {
  return await db.exists(sql.unsafe`
    select from batch_items item join batches batch on batch.id = item.batch_id
      left join organizations organization on organization.id = batch.organization_id
    where item.batch_id = ${batchId} and item.number = ${number} and item.state = 'running' and item.claim = ${claim}
      and ${runnable(now)} and ${isServed}
  `);
}

/** Reads the body of a claimed item; null when the item was taken meanwhile. */
export async function readBodyOf(
  db: CommonQueryMethods,
  { batchId, number, claim }: Pick<ClaimedItem, "batchId" | "number" | "claim">,
): Promise<Buffer | null> {
  return await db.maybeOneFirst(sql.type(z.object({ body: z.instanceof(Buffer) }))`
    select body from batch_items
    where batch_id = ${batchId} and number = ${number} and state = 'running' and claim = ${claim}
  `);
}
