/**
 * Copies organizations, projects, declared keys and grants of a snapshot into Postgres (design.md §2; rules 1.10,
 * 1.16, 5.3, 6.9): data planes take turns, never from a serial below one that was begun before, and each organization
 * only when its declaration changed. Repeating a copy, or resuming one that broke off, changes nothing twice.
 */
import { createHash } from "node:crypto";
import { sql, type CommonQueryMethods, type DatabasePool, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import type { OrganizationEntry } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { NewId } from "../lib/ids.ts";
import { refusesData } from "../store/postgres.ts";
import { copyGrants, newGrants } from "../billing/ledger/declared-grants.ts";
import { copyKeys } from "./declared-keys.ts";
import { withinNames } from "./tenant-names.ts";
import { bumpKeyEpoch, lockAccounts } from "../billing/ledger/accounts.ts";
import { reachedMoneyStep } from "../billing/steps.ts";

/** Organizations in one transaction. */
const AT_ONCE = 200;

export interface Copied {
  /** Organizations whose account or keys changed: Redis has to hear of them. */
  readonly changed: readonly string[];
  /** Organizations that Postgres does not take as they are declared: they stay as they were. */
  readonly refused: readonly Refused[];
  /** Ids that are declared in another namespace than the one that owns them: they stay as they were. */
  readonly foreign: readonly string[];
  /** New ids of namespaces that have used up their names: they are not copied. */
  readonly beyondNames: readonly string[];
}

export interface Refused {
  readonly organizationId: string;
  readonly error: unknown;
}

/** Another data plane has begun to copy a newer snapshot. */
class Superseded extends Error {
  override readonly name = "Superseded";
}

/** Copies the snapshot unless it was copied, or a newer one was begun, before; stops when a newer one is begun meanwhile. */
export async function copySnapshot(pool: DatabasePool, snapshot: Snapshot, newId: NewId): Promise<Copied> {
  const { serial } = snapshot.index;
  const { organizations } = snapshot.routing;
  if (!(await begin(pool, serial)))
    return { changed: [], refused: [], foreign: await readForeign(pool, organizations), beyondNames: [] };
  reachedMoneyStep("directory.begun");
  const copy = new Copy(pool, serial, newId);
  try {
    await copy.run(organizations);
  } catch (error) {
    if (!(error instanceof Superseded)) throw error;
    const foreign = await readForeign(pool, organizations);
    return { changed: [...copy.changed], refused: [], foreign, beyondNames: [] };
  }
  const { refused, foreign } = copy;
  const beyondNames = [...copy.beyondNames];
  // Otherwise each pod tries again, and so knows which objects it must not call programmed.
  if (refused.length + foreign.length + beyondNames.length === 0)
    await pool.query(
      sql.unsafe`update directory_state set copied_serial = ${serial} where begun_serial = ${serial}`,
    );
  return { changed: [...copy.changed], refused, foreign, beyondNames };
}

/** False: this snapshot was copied already, or a newer one was begun. */
async function begin(pool: DatabasePool, serial: number): Promise<boolean> {
  return await pool.transaction(async (transaction) => {
    const state = await transaction.one(
      sql.type(z.object({ begun: z.bigint(), copied: z.bigint() }))`
        select begun_serial as begun, copied_serial as copied from directory_state for update
      `,
    );
    if (BigInt(serial) < state.begun || BigInt(serial) === state.copied) return false;
    await transaction.query(sql.unsafe`update directory_state set begun_serial = ${serial}`);
    return true;
  });
}

/**
 * One copy. Several data planes copy the same snapshot at the same time and take turns: a transaction locks the row of
 * `directory_state`, and copies what no other has copied since.
 */
class Copy {
  readonly changed = new Set<string>();
  readonly refused: Refused[] = [];
  readonly beyondNames = new Set<string>();
  foreign: readonly string[] = [];
  readonly #pool: DatabasePool;
  readonly #serial: number;
  readonly #newId: NewId;

  constructor(pool: DatabasePool, serial: number, newId: NewId) {
    this.#pool = pool;
    this.#serial = serial;
    this.#newId = newId;
  }

  /** @throws Superseded */
  async run(organizations: readonly OrganizationEntry[]): Promise<void> {
    this.foreign = await readForeign(this.#pool, organizations);
    const others = new Set(this.foreign);
    const own = organizations.filter(({ id }) => !others.has(id));
    const known = await readDeclarations(this.#pool);
    const news = own
      .filter((entry) => known.get(entry.id) !== declarationOf(entry))
      .sort((one, other) => (one.id < other.id ? -1 : 1));
    // Deletions first, so that their keys' secrets are free for other organizations.
    const declared = new Set(own.map(({ id }) => id));
    const deleted = [...known.keys()].filter((id) => !declared.has(id)).sort();
    for (const id of deleted)
      if (await this.#inTurn((transaction) => deleteOne(transaction, id))) this.changed.add(id);
    const waiting = new Set<string>();
    for (let at = 0; at < news.length; at += AT_ONCE)
      for (const id of await this.#copyBatch(news.slice(at, at + AT_ONCE))) waiting.add(id);
    // An organization may have come before the one that gives its secret up.
    const again = news.filter(({ id }) => waiting.has(id));
    if (again.length > 0) await this.#copyBatch(again);
  }

  /**
   * Copies in one transaction; when Postgres refuses that, each organization by itself, so that a bad one blocks no other.
   * Returns the organizations that declare a secret which another key has.
   */
  async #copyBatch(entries: readonly OrganizationEntry[]): Promise<readonly string[]> {
    try {
      const { copied, waiting, refused } = await this.#inTurn(async (transaction) => {
        const known = await readDeclarations(
          transaction,
          entries.map(({ id }) => id),
        );
        const changed = entries.filter((entry) => known.get(entry.id) !== declarationOf(entry));
        // An organization that is copied without some of its names is looked at again by the next copy.
        const { entries: news, refused } = await withinNames(transaction, changed);
        return {
          copied: news,
          waiting: news.length === 0 ? [] : await copySome(transaction, news, this.#newId),
          refused,
        };
      });
      for (const { id } of copied) this.changed.add(id);
      for (const id of refused) this.beyondNames.add(id);
      return waiting;
    } catch (error) {
      if (!refusesData(error)) throw error;
      const [only, another] = entries;
      if (only !== undefined && another === undefined) {
        this.refused.push({ organizationId: only.id, error });
        return [];
      }
    }
    const waiting: string[] = [];
    for (const entry of entries) waiting.push(...(await this.#copyBatch([entry])));
    return waiting;
  }

  /** @throws Superseded */
  async #inTurn<Result>(
    work: (transaction: DatabaseTransactionConnection) => Promise<Result>,
  ): Promise<Result> {
    return await this.#pool.transaction(async (transaction) => {
      const begun = await transaction.oneFirst(sql.type(z.object({ begun: z.bigint() }))`
        select begun_serial as begun from directory_state for update
      `);
      if (begun !== BigInt(this.#serial)) throw new Superseded();
      return await work(transaction);
    });
  }
}

/** Returns what organizations were copied from: the declarations of `ids`, or of all. */
async function readDeclarations(
  database: CommonQueryMethods,
  ids?: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  // An organization without an owner counts as changed, as the copy gives it one.
  const rows = await database.any(
    sql.type(z.object({ id: z.string(), declaration: z.string() }))`
      select id, case when namespace is null then '' else declaration end as declaration
      from organizations
      where deleted_at is null ${ids === undefined ? sql.fragment`` : sql.fragment`and id = any(${sql.array([...ids], "text")})`}
    `,
  );
  return new Map(rows.map(({ id, declaration }) => [id, declaration]));
}

/** Ids of the snapshot that belong to another namespace than the one that declares them (rule 8.3). */
async function readForeign(
  pool: DatabasePool,
  organizations: readonly OrganizationEntry[],
): Promise<readonly string[]> {
  return await pool.anyFirst(sql.type(z.object({ id: z.string() }))`
    select id from organizations
    join ${sql.unnest(
      organizations.map(({ id, source }) => [id, source.namespace]),
      ["text", "text"],
    )} as declared (id, namespace) using (id)
    where organizations.namespace <> declared.namespace
    order by id
  `);
}

/**
 * Returns a digest of what an organization is copied from, so that the same is not copied twice. The number in it grows
 * when earlier copies have to be made again.
 */
function declarationOf(entry: OrganizationEntry): string {
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

/** Returns what the ledger has to know of notifications, without secrets; null: there are none. */
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
  const archived = await copyProjects(transaction, entries, newId);
  const limited = await copyLimits(transaction, entries);
  const { ended, waiting } = await copyKeys(transaction, entries, newId);
  const grants = await newGrants(transaction, entries);
  const changed = new Set([...stopped, ...archived, ...limited, ...ended]);
  // All accounts first, in the order in which charges lock them, so that copies and charges never deadlock.
  await lockAccounts(transaction, [...grants.map(({ organizationId }) => organizationId), ...changed]);
  const refused = await copyGrants(transaction, grants);
  // These are not as declared yet. The next copy looks at them again: the other key may be gone, or the grant may fit.
  await transaction.query(sql.unsafe`
    update organizations set declaration = '' where id = any(${sql.array([...waiting, ...refused], "text")})
  `);
  for (const id of changed) await bumpKeyEpoch(transaction, id);
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

/** Copies projects. Returns the organizations that no longer list one: its keys stop until it is listed again. */
async function copyProjects(
  transaction: DatabaseTransactionConnection,
  entries: readonly OrganizationEntry[],
  newId: NewId,
): Promise<readonly string[]> {
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
  const archived = await transaction.anyFirst(sql.type(z.object({ id: z.string() }))`
    update projects set archived_at = now()
    where ${ours} and archived_at is null and (organization_id, name) not in ${pairs(declared)}
    returning organization_id as id
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
  return archived;
}

/**
 * Copies the limits of projects, and the default limits of keys. Where the resource declares none for a project, those that the
 * admin API set stay. Returns the organizations in which some changed: their keys must be looked up again.
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
 * Deletes an organization (rule 1.16): all its keys answer 401; data and balance stay, and the same id restores them.
 * Its keys keep their secrets until another organization declares them. False: it is deleted already.
 */
async function deleteOne(transaction: DatabaseTransactionConnection, id: string): Promise<boolean> {
  const { rowCount } = await transaction.query(sql.unsafe`
    update organizations set deleted_at = now() where id = ${id} and deleted_at is null
  `);
  if (rowCount === 0) return false;
  await bumpKeyEpoch(transaction, id);
  return true;
}
