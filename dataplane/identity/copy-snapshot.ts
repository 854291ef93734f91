/**
 * Copies organizations, projects, declared keys and grants of a snapshot into Postgres (design.md §2; rules 1.10,
 * 1.16, 5.3, 6.9): under a lock, never from a serial below one that was begun before, and each organization only
 * when its declaration changed. Repeating a copy, or going on with one that broke off, changes nothing twice.
 */
import { createHash } from "node:crypto";
import {
  sql,
  type DatabasePool,
  type DatabasePoolConnection,
  type DatabaseTransactionConnection,
} from "slonik";
import { z } from "zod";
import type { OrganizationEntry, Routing } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { NewId } from "../lib/ids.ts";
import { refusesData } from "../store/postgres.ts";
import { copyGrants } from "../billing/declared-grants.ts";
import { copyKeys } from "./declared-keys.ts";
import { bumpKeyEpoch } from "../billing/accounts.ts";
import { reachedMoneyStep } from "../billing/steps.ts";

const LOCK = 7_104_203;
/** Organizations in one transaction. */
const AT_ONCE = 200;

export interface Copied {
  /** Organizations whose account or keys changed: Redis has to hear of them. */
  readonly changed: readonly string[];
  /** Organizations that Postgres does not take as they are declared: they stay as they were. */
  readonly refused: readonly Refused[];
  /** Ids that are declared in another namespace than the one that owns them: they stay as they were. */
  readonly foreign: readonly string[];
}

export interface Refused {
  readonly organizationId: string;
  readonly error: unknown;
}

/** Copies unless a newer snapshot was copied, or begun to be copied, before. */
export async function copySnapshot(pool: DatabasePool, snapshot: Snapshot, newId: NewId): Promise<Copied> {
  const { serial } = snapshot.index;
  return await pool.connect(async (connection) => {
    // Of the session, not of a transaction: the copy is several transactions.
    await connection.query(sql.unsafe`select pg_advisory_lock(${LOCK})`);
    try {
      if (!(await begin(connection, serial)))
        return { changed: [], refused: [], foreign: await readForeign(connection, snapshot.routing) };
      reachedMoneyStep("directory.begun");
      const copied = await copyOrganizations(connection, snapshot.routing, newId);
      // Else each pod tries again, and so knows what it must not call programmed.
      if (copied.refused.length + copied.foreign.length === 0)
        await connection.query(sql.unsafe`update directory_state set copied_serial = ${serial}`);
      return copied;
    } finally {
      await connection.query(sql.unsafe`select pg_advisory_unlock(${LOCK})`);
    }
  });
}

/** False: this snapshot, or a newer one, was copied already. */
async function begin(connection: DatabasePoolConnection, serial: number): Promise<boolean> {
  const state = await connection.one(
    sql.type(z.object({ begun: z.bigint(), copied: z.bigint() }))`
      select begun_serial as begun, copied_serial as copied from directory_state
    `,
  );
  if (BigInt(serial) < state.begun || BigInt(serial) === state.copied) return false;
  await connection.query(sql.unsafe`update directory_state set begun_serial = ${serial}`);
  return true;
}

async function copyOrganizations(
  connection: DatabasePoolConnection,
  { organizations }: Routing,
  newId: NewId,
): Promise<Copied> {
  const foreign = await readForeign(connection, { organizations });
  const others = new Set(foreign);
  const own = organizations.filter(({ id }) => !others.has(id));
  const known = new Map(
    (
      await connection.any(
        // One without an owner gets one by being copied.
        sql.type(z.object({ id: z.string(), declaration: z.string() }))`
          select id, case when namespace is null then '' else declaration end as declaration
          from organizations where deleted_at is null
        `,
      )
    ).map(({ id, declaration }) => [id, declaration]),
  );
  const news = own
    .filter((entry) => known.get(entry.id) !== declarationOf(entry))
    .sort((one, other) => (one.id < other.id ? -1 : 1));
  // First, so that their keys' secrets are free for other organizations.
  const declared = new Set(own.map(({ id }) => id));
  const deleted = [...known.keys()].filter((id) => !declared.has(id)).sort();
  for (const id of deleted) await connection.transaction((transaction) => deleteOne(transaction, id));
  const refused: Refused[] = [];
  const waiting = new Set<string>();
  for (let at = 0; at < news.length; at += AT_ONCE) {
    const batch = await copyBatch(connection, news.slice(at, at + AT_ONCE), newId);
    refused.push(...batch.refused);
    for (const id of batch.waiting) waiting.add(id);
  }
  // A secret may have come before the organization that lets it go.
  const again = news.filter(({ id }) => waiting.has(id));
  if (again.length > 0) refused.push(...(await copyBatch(connection, again, newId)).refused);
  const kept = new Set(refused.map(({ organizationId }) => organizationId));
  const copied = news.map(({ id }) => id).filter((id) => !kept.has(id));
  return { changed: [...copied, ...deleted], refused, foreign };
}

/** Ids of the snapshot that belong to another namespace than the one that declares them (rule 8.3). */
async function readForeign(
  connection: DatabasePoolConnection,
  { organizations }: Pick<Routing, "organizations">,
): Promise<readonly string[]> {
  return await connection.anyFirst(sql.type(z.object({ id: z.string() }))`
    select id from organizations
    join ${sql.unnest(
      organizations.map(({ id, source }) => [id, source.namespace]),
      ["text", "text"],
    )} as declared (id, namespace) using (id)
    where organizations.namespace <> declared.namespace
    order by id
  `);
}

interface Batch {
  readonly refused: readonly Refused[];
  /** Organizations that declare a secret which another key has. */
  readonly waiting: readonly string[];
}

/** In one transaction; when Postgres refuses that, each by itself, so that one bad object blocks no other. */
async function copyBatch(
  connection: DatabasePoolConnection,
  entries: readonly OrganizationEntry[],
  newId: NewId,
): Promise<Batch> {
  try {
    const waiting = await connection.transaction((transaction) => copySome(transaction, entries, newId));
    return { refused: [], waiting };
  } catch (error) {
    if (!refusesData(error)) throw error;
    const [only, another] = entries;
    if (only !== undefined && another === undefined)
      return { refused: [{ organizationId: only.id, error }], waiting: [] };
  }
  const batches: Batch[] = [];
  for (const entry of entries) batches.push(await copyBatch(connection, [entry], newId));
  return {
    refused: batches.flatMap(({ refused }) => refused),
    waiting: batches.flatMap(({ waiting }) => waiting),
  };
}

/**
 * What an organization was copied from, so that the same is not copied twice. The number grows when copies of before
 * have to be made again.
 */
export function declarationOf(entry: OrganizationEntry): string {
  const { displayName, suspended, grants, projects, projectLimits, keyDefaults, apiKeys, adminKeys } = entry;
  const told = toldOf(entry);
  return createHash("sha256")
    .update(
      JSON.stringify([
        3,
        displayName,
        suspended,
        grants,
        projects,
        projectLimits ?? {},
        keyDefaults ?? null,
        apiKeys,
        adminKeys,
        ...(told === null ? [] : [told]),
      ]),
    )
    .digest("hex");
}

/** What the ledger has to know of notifications: no secret. null: there are none. */
const toldOf = ({ notifications }: OrganizationEntry): string | null =>
  notifications === undefined
    ? null
    : JSON.stringify(notifications.map(({ url, thresholds }) => ({ url, thresholds })));

/** Returns the organizations that declare a secret which another key has. */
async function copySome(
  transaction: DatabaseTransactionConnection,
  entries: readonly OrganizationEntry[],
  newId: NewId,
): Promise<readonly string[]> {
  const stopped = await copyEntries(transaction, entries);
  await copyProjects(transaction, entries, newId);
  const limited = await copyLimits(transaction, entries);
  const { ended, waiting } = await copyKeys(transaction, entries, newId);
  // Not as declared yet: the next copy looks at them again, and the other key may be gone by then.
  await transaction.query(sql.unsafe`
    update organizations set declaration = '' where id = any(${sql.array([...waiting], "text")})
  `);
  await copyGrants(transaction, entries);
  for (const id of new Set([...stopped, ...limited, ...ended])) await bumpKeyEpoch(transaction, id);
  return waiting;
}

/** Writes the organizations themselves; returns those that are suspended now and were not before. */
async function copyEntries(
  transaction: DatabaseTransactionConnection,
  entries: readonly OrganizationEntry[],
): Promise<string[]> {
  const ids = entries.map(({ id }) => id);
  const serving = new Set(
    await transaction.anyFirst(sql.type(z.object({ id: z.string() }))`
      select id from organizations
      where id = any(${sql.array(ids, "text")}) and not suspended and deleted_at is null
      order by id for update
    `),
  );
  await transaction.query(sql.unsafe`
    insert into organizations (id, display_name, suspended, declaration, namespace, notifications)
    select id, display_name, suspended, declaration, namespace, notifications::jsonb from ${sql.unnest(
      entries.map((entry) => [
        entry.id,
        entry.displayName,
        entry.suspended,
        declarationOf(entry),
        entry.source.namespace,
        toldOf(entry),
      ]),
      ["text", "text", "bool", "text", "text", "text"],
    )} as declared (id, display_name, suspended, declaration, namespace, notifications)
    on conflict (id) do update set display_name = excluded.display_name, suspended = excluded.suspended,
      declaration = excluded.declaration, namespace = excluded.namespace,
      notifications = excluded.notifications, deleted_at = null
  `);
  await transaction.query(sql.unsafe`
    insert into accounts (organization_id) select unnest(${sql.array(ids, "text")}) on conflict do nothing
  `);
  return entries.filter((entry) => entry.suspended && serving.has(entry.id)).map(({ id }) => id);
}

async function copyProjects(
  transaction: DatabaseTransactionConnection,
  entries: readonly OrganizationEntry[],
  newId: NewId,
): Promise<void> {
  const declared = entries.flatMap(({ id, projects }) => projects.map((name) => [id, name] as const));
  // `default` stands for the project of that name, else for the first one.
  const defaults = entries.map(({ id, projects }) => {
    return [id, projects.includes("default") ? "default" : (projects[0] ?? "default")] as const;
  });
  await transaction.query(sql.unsafe`
    insert into projects (id, organization_id, name)
    select * from ${sql.unnest(
      declared.map(([organizationId, name]) => [newId("proj"), organizationId, name]),
      ["text", "text", "text"],
    )}
    on conflict (organization_id, name) do update set archived_at = null
    where projects.archived_at is not null
  `);
  const pairs = (list: readonly (readonly [string, string])[]) =>
    sql.fragment`(select * from ${sql.unnest(list, ["text", "text"])})`;
  const ours = sql.fragment`organization_id = any(${sql.array(
    entries.map(({ id }) => id),
    "text",
  )})`;
  await transaction.query(sql.unsafe`
    update projects set archived_at = now()
    where ${ours} and archived_at is null and (organization_id, name) not in ${pairs(declared)}
  `);
  // In two steps: a unique index allows one default at a time.
  await transaction.query(sql.unsafe`
    update projects set is_default = false
    where ${ours} and is_default and (organization_id, name) not in ${pairs(defaults)}
  `);
  await transaction.query(sql.unsafe`
    update projects set is_default = true
    where ${ours} and not is_default and (organization_id, name) in ${pairs(defaults)}
  `);
}

/**
 * Limits of projects, and those of keys that name none. Where the resource says none for a project, those that the admin API
 * set stay. Returns the organizations in which some changed: what is known of their keys must be looked up again.
 */
async function copyLimits(
  transaction: DatabaseTransactionConnection,
  entries: readonly OrganizationEntry[],
): Promise<readonly string[]> {
  const idSchema = z.object({ id: z.string() });
  const defaults = await transaction.anyFirst(sql.type(idSchema)`
    update organizations organization set key_limits = declared.limits::jsonb
    from ${sql.unnest(
      entries.map(({ id, keyDefaults }) => [
        id,
        keyDefaults === undefined ? null : JSON.stringify(keyDefaults),
      ]),
      ["text", "text"],
    )} as declared (id, limits)
    where organization.id = declared.id and organization.key_limits is distinct from declared.limits::jsonb
    returning organization.id
  `);
  const declared = entries.flatMap(({ id, projects, projectLimits = {} }) =>
    projects.map((name) => {
      const limits = Object.hasOwn(projectLimits, name) ? projectLimits[name] : undefined;
      return [id, name, limits === undefined ? null : JSON.stringify(limits)] as const;
    }),
  );
  const projects = await transaction.anyFirst(sql.type(idSchema)`
    update projects project set limits = declared.limits::jsonb, limits_declared = declared.limits is not null
    from ${sql.unnest(declared, ["text", "text", "text"])} as declared (id, name, limits)
    where project.organization_id = declared.id and project.name = declared.name
      and (declared.limits is not null or project.limits_declared)
      and (project.limits is distinct from declared.limits::jsonb or not project.limits_declared)
    returning project.organization_id as id
  `);
  return [...defaults, ...projects];
}

/**
 * Rule 1.16: all its keys answer 401; data and balance stay, and the same id restores them. Its keys keep their
 * secrets until another organization declares them.
 */
async function deleteOne(transaction: DatabaseTransactionConnection, id: string): Promise<void> {
  await transaction.query(sql.unsafe`
    update organizations set deleted_at = now() where id = ${id}
  `);
  await bumpKeyEpoch(transaction, id);
}
