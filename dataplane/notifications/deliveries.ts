/** Deliveries of messages (webhook_deliveries in store/migrations/0002_ledger.sql), shared by all pods that send them. */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { DAY_MS } from "../lib/clock.ts";
import type { ThresholdMessage } from "./message.ts";

/** A message to one of its receivers. */
export interface DueDelivery extends ThresholdMessage {
  readonly url: string;
  /** Tries so far, this one included. */
  readonly tries: number;
  /** The namespace that owns the organization's id; empty: none. */
  readonly namespace: string;
}

/** Why a delivery failed; `refused`: by the URL guard. */
export type DeliveryFailure = "refused" | "not declared" | "no signing secret" | "failed";

/** Time in which a pod must be done with a delivery; after it another pod takes it. */
const LEASE_SECONDS = 60;
/**
 * Days after the end of its window at which a message is deleted. A charge of that window which comes later, such as a dead
 * letter, crosses nothing any more: note_thresholds in store/migrations/0003_charging.sql looks back 60 days only, so that no
 * clock makes it tell again what was deleted here.
 */
const FORGOTTEN_DAYS = 62;

const deliverySchema = z.object({
  id: z.string(),
  organizationId: z.string(),
  scope: z.enum(["organization", "project", "key"]),
  scopeId: z.string(),
  per: z.string().nullable(),
  toDay: z.number().nullable(),
  threshold: z.number(),
  amount: z.bigint(),
  spent: z.bigint(),
  crossedAt: z.number(),
  url: z.string(),
  tries: z.number(),
  namespace: z.string(),
});

/** Limits of one claim. */
export interface ClaimOptions {
  readonly most: number;
  readonly ofOrganization: number;
  readonly ofNamespace: number;
  /** Organizations and namespaces whose deliveries are not claimed. */
  readonly busy: { readonly organizations: readonly string[]; readonly namespaces: readonly string[] };
}

/**
 * Claims due deliveries, some of each namespace and of each of its organizations, so that none waits for another's
 * receivers.
 */
export async function claimDeliveries(
  pool: CommonQueryMethods,
  { most, ofOrganization, ofNamespace, busy }: ClaimOptions,
): Promise<readonly DueDelivery[]> {
  return await pool.any(sql.type(deliverySchema)`
    with recursive waiting (organization_id) as (
      (select min(organization_id) from webhook_deliveries where ended_at is null)
      union all
      select (
        select min(next.organization_id) from webhook_deliveries next
        where next.ended_at is null and next.organization_id > waiting.organization_id
      ) from waiting where waiting.organization_id is not null
    ), homed as (
      select organization_id, coalesce(organization.namespace, '') as namespace
      from waiting left join organizations organization on organization.id = waiting.organization_id
      where organization_id <> all (${sql.array([...busy.organizations], "text")})
    ), ready as (
      select organization_id, namespace, row_number() over (partition by namespace order by random()) as turn
      from homed
      where namespace <> all (${sql.array([...busy.namespaces], "text")})
        and exists (
          select from webhook_deliveries delivery
          where ended_at is null and delivery.organization_id = homed.organization_id
            and next_at <= clock_timestamp()
        )
    ), offered as materialized (
      select offered.message_id, offered.url, organization.namespace
      from (
        select organization_id, namespace from ready
        where turn <= ${ofNamespace} order by turn, random() limit ${most}
      ) organization
      cross join lateral (
        select message_id, url from webhook_deliveries delivery
        where ended_at is null and delivery.organization_id = organization.organization_id
          and next_at <= clock_timestamp()
        order by next_at limit ${ofOrganization} for update skip locked
      ) offered
    ), due as (
      select message_id, url, namespace
      from (select *, row_number() over (partition by namespace order by random()) as turn from offered) offered
      where turn <= ${ofNamespace} order by turn, random() limit ${most}
    ), taken as (
      update webhook_deliveries delivery
      set tries = tries + 1, next_at = clock_timestamp() + make_interval(secs => ${LEASE_SECONDS})
      from due where delivery.message_id = due.message_id and delivery.url = due.url
      returning delivery.message_id, delivery.url, delivery.tries, due.namespace
    )
    select message.id, message.organization_id as "organizationId", message.scope, message.scope_id as "scopeId",
      message.per, message.to_day as "toDay", message.threshold, message.amount_micros as amount,
      message.spent_micros as spent, message.crossed_at as "crossedAt", taken.url, taken.tries, taken.namespace
    from taken join threshold_messages message on message.id = taken.message_id
  `);
}

/** Ends a delivery that was accepted (`failure` null) or is given up. */
export async function endDelivery(
  pool: CommonQueryMethods,
  { id, url }: DueDelivery,
  failure: DeliveryFailure | null,
): Promise<void> {
  await pool.query(sql.unsafe`
    update webhook_deliveries set ended_at = clock_timestamp(), failure = ${failure}
    where message_id = ${id} and url = ${url}
  `);
}

/** Lets a delivery be tried again later. */
export async function postponeDelivery(
  pool: CommonQueryMethods,
  { id, url }: DueDelivery,
  failure: DeliveryFailure,
  waitMs: number,
): Promise<void> {
  await pool.query(sql.unsafe`
    update webhook_deliveries
    set failure = ${failure}, next_at = clock_timestamp() + make_interval(secs => ${waitMs / 1000})
    where message_id = ${id} and url = ${url} and ended_at is null
  `);
}

/** Deletes messages of windows that are long over. */
export async function forgetMessages(pool: CommonQueryMethods, now: number): Promise<void> {
  const today = Math.floor(now / DAY_MS);
  await pool.query(sql.unsafe`delete from threshold_messages where to_day < ${today - FORGOTTEN_DAYS}`);
}

const refusedSchema = z.object({ organizationId: z.string(), url: z.string() });
export type RefusedDestination = z.infer<typeof refusedSchema>;

/** Returns receivers whose address the URL guard refused, of deliveries that have not ended. */
export async function refusedDestinations(pool: CommonQueryMethods): Promise<readonly RefusedDestination[]> {
  return await pool.any(sql.type(refusedSchema)`
    select distinct organization_id as "organizationId", url from webhook_deliveries
    where failure = 'refused' and ended_at is null
  `);
}
