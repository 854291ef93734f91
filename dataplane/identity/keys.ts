/**
 * Inference keys of an organization, as the admin API lists, makes, changes and deletes them (rules 5.1–5.7).
 * Every statement is bound to the organization. A key that stops being valid moves the organization's key epoch,
 * and Redis is told before the caller is answered, so that the key is refused at once on every pod.
 */
import { createHash } from "node:crypto";
import { sql, type CommonQueryMethods, type DatabasePool, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import { ApiError } from "../lib/api-error.ts";
import { newKeySecret, type NewId } from "../lib/ids.ts";
import { cutColumns, pageFrom, type ListPage, type PageAsked } from "../store/list-page.ts";
import { readRows } from "../store/read-rows.ts";
import type { Reads } from "../store/reads.ts";
import { bumpKeyEpoch } from "../billing/ledger/accounts.ts";
import type { KeyDirectory } from "./directory.ts";
import type { Holds } from "../billing/holds/holds.ts";
import { isPersonId } from "../billing/scopes.ts";
import { reachedMoneyStep } from "../billing/steps.ts";
import { keyPrefixes, limitsSchema, type Limits } from "../config/schema.ts";
import { changedLimits, jsonb, type LimitsChange } from "./limits.ts";
import { changeOrganization } from "./lock-organization.ts";
import type { Principal } from "./principal.ts";
import { tellKeyEpoch } from "./tell-key-epoch.ts";
import { limitChanges, writeAuditLog, type Actor, type FieldChanges } from "./audit-log.ts";

/** Length of a hint: the prefix and six characters of the secret; 34 stay unknown. */
const HINT_CHARACTERS = keyPrefixes.inference.length + 6;
/** Most keys that an organization may have made and not deleted: as many as one page of the longest list shows. */
export const MOST_KEYS = 10_000;

/** Makes an inference key. */
export const newInferenceKey = (): string => `${keyPrefixes.inference}${newKeySecret()}`;

export const keyStatuses = ["active", "inactive"] as const;

const keySchema = z.object({
  id: z.string(),
  projectId: z.string(),
  name: z.string(),
  hint: z.string(),
  status: z.enum(keyStatuses),
  source: z.enum(["declared", "created", "identity"]),
  /** Who made it: an admin key, or for a declared key the organization itself. */
  createdBy: z.string(),
  createdAt: z.number(),
  /** When it begins to answer 401; null: never. */
  expiresAt: z.number().nullable(),
  /** The key's own limits. */
  limits: limitsSchema.nullable(),
  lastUsedAt: z.number().nullable(),
});
const listedSchema = keySchema.extend(cutColumns);
/** Times are Unix milliseconds. */
export type ApiKey = z.infer<typeof keySchema>;
export type KeyStatus = ApiKey["status"];

const columns = sql.fragment`
  id, project_id as "projectId", name, hint, status, source, coalesce(created_by, organization_id) as "createdBy",
  created_at as "createdAt", expires_at as "expiresAt", limits, last_used_at as "lastUsedAt"
`;
/** Inference keys, deleted ones too: admin keys are never listed, and people are no keys. */
const everShown = sql.fragment`kind = 'inference' and source <> 'identity'`;
const shown = sql.fragment`${everShown} and deleted_at is null`;

/** Which keys: all of an organization, or those of one of its projects. */
export interface KeyScope {
  readonly organizationId: string;
  readonly projectId: string | null;
}

export interface KeyListQuery extends KeyScope, PageAsked {
  readonly status: KeyStatus | null;
  /** Filters of the first dialect's admin API: an exact value, null for none. */
  readonly workspaceId: string | null;
  readonly createdBy: string | null;
}

/** Absent fields stay as they are. */
export interface KeyChange {
  readonly name?: string;
  readonly status?: KeyStatus;
  readonly expiresAt?: number | null;
  readonly limits?: LimitsChange | null;
}

/** Fields of a key that is to be made. */
export interface NewKey {
  readonly name: string;
  readonly expiresAt: number | null;
  readonly limits?: Limits | null;
}

/**
 * The outcome of a change. `declared`: an Organization resource declares the key, so only there it can be changed.
 * `removed`: it was declared before, so it is revoked, and all that can be done with it is to delete it.
 */
export type KeyOutcome =
  | { readonly kind: "done"; readonly key: ApiKey }
  | { readonly kind: "unknown" | "declared" | "removed" };

export interface KeysOptions {
  readonly pool: DatabasePool;
  readonly directory: Pick<KeyDirectory, "forget" | "recheck">;
  readonly holds: Pick<Holds, "refresh">;
  readonly reads: Pick<Reads, "changing">;
  readonly newId: NewId;
  /** Makes the secret of a new key; from a cryptographic source. */
  readonly newKey: () => string;
}

const inScope = ({ organizationId, projectId }: KeyScope, which = shown) => sql.fragment`
  organization_id = ${organizationId}
  ${projectId === null ? sql.fragment`` : sql.fragment`and project_id = ${projectId}`} and ${which}
`;

export class Keys {
  readonly #options: KeysOptions;

  constructor(options: KeysOptions) {
    this.#options = options;
  }

  /** Reads a key. `from`: where; the primary, unless the answer may be a moment old. */
  async get(
    scope: KeyScope,
    id: string,
    from: CommonQueryMethods = this.#options.pool,
  ): Promise<ApiKey | null> {
    return await from.maybeOne(sql.type(keySchema)`
      select ${columns} from api_keys where id = ${id} and ${inScope(scope)}
    `);
  }

  /** Returns the caller's own key, or the caller if that is a person. */
  async own({ organizationId, keyId }: Pick<Principal, "organizationId" | "keyId">): Promise<ApiKey | null> {
    // Brings the person in line with their token: one for another role or under another rule may have been written since.
    if (isPersonId(keyId) && (await this.#options.directory.recheck(keyId)) === null) return null;
    return await this.#options.pool.maybeOne(sql.type(keySchema)`
      select ${columns} from api_keys
      where id = ${keyId} and organization_id = ${organizationId} and kind = 'inference' and deleted_at is null
    `);
  }

  /** Lists one page, in the order asked for; null when the cursor names no key of the scope. */
  async list(
    query: KeyListQuery,
    from: CommonQueryMethods = this.#options.pool,
  ): Promise<ListPage<ApiKey> | null> {
    const { cursor, status, workspaceId, createdBy } = query;
    const position = cursor === null ? null : await positionOf(from, query, cursor.id);
    if (cursor !== null && position === null) return null;
    const page = pageFrom(query, position);
    const found = sql.fragment`
      select * from api_keys
      where ${inScope(query)}
        ${status === null ? sql.fragment`` : sql.fragment`and status = ${status}`}
        ${workspaceId === null ? sql.fragment`` : sql.fragment`and project_id = ${workspaceId}`}
        ${createdBy === null ? sql.fragment`` : sql.fragment`and coalesce(created_by, organization_id) = ${createdBy}`}
        ${page.beyond}
      ${page.walk}
    `;
    const rows = await readRows(
      from,
      listedSchema,
      sql.fragment`select ${columns}, found, "largeBytes" from ${page.within(found, sql.fragment`limits_bytes`)}`,
    );
    return page.show<ApiKey>(rows);
  }

  /**
   * Makes a key. Its secret is returned here and never again: only its hash and hint are kept.
   * @throws ApiError 400 beyond `MOST_KEYS`, 429 beyond `MOST_CHANGES`.
   */
  async create(
    actor: Actor,
    projectId: string,
    { name, expiresAt, limits = null }: NewKey,
  ): Promise<{ readonly key: ApiKey; readonly secret: string }> {
    const secret = this.#options.newKey();
    const id = this.#options.newId("apikey");
    const hint = `${secret.slice(0, HINT_CHARACTERS)}...`;
    await this.#options.reads.changing(actor.organizationId);
    const key = await changeOrganization(this.#options.pool, actor.organizationId, async (transaction) => {
      await leaveRoom(transaction, actor.organizationId);
      await limitChanges(transaction, actor.organizationId);
      const made = await transaction.one(sql.type(keySchema)`
        insert into api_keys (id, organization_id, project_id, kind, name, sha256, hint, source, created_by,
          expires_at, limits)
        values (${id}, ${actor.organizationId}, ${projectId}, 'inference', ${name}, ${digest(secret)}, ${hint},
          'created', ${actor.keyId}, from_unix_ms(${expiresAt}::int8), ${jsonb(limits)})
        returning ${columns}
      `);
      await writeAuditLog(transaction, actor, "key.created", id, {
        name: { from: null, to: name },
        project: { from: null, to: projectId },
        ...(expiresAt === null ? {} : { expires_at: { from: null, to: moment(expiresAt) } }),
        ...(limits === null ? {} : { limits: { from: null, to: JSON.stringify(limits) } }),
      });
      return made;
    });
    return { key, secret };
  }

  /** @throws ApiError 429 beyond `MOST_CHANGES`, unless it only switches the key off. */
  async update(actor: Actor, scope: KeyScope, id: string, change: KeyChange): Promise<KeyOutcome> {
    if (Object.keys(change).length === 0) {
      const key = await this.get(scope, id);
      return key === null ? { kind: "unknown" } : { kind: "done", key };
    }
    return await this.#change("update", actor, scope, id, async (transaction, before) => {
      const { name, status, expiresAt } = { ...before, ...change };
      const limits =
        change.limits === undefined ? before.limits : changedLimits(before.limits, change.limits);
      const changes = differences(before, { name, status, expiresAt, limits });
      if (Object.keys(changes).length === 0) return { key: before, ended: false };
      const onlyEnds = status === "inactive" && Object.keys(changes).join() === "status";
      if (!onlyEnds) await limitChanges(transaction, actor.organizationId);
      const key = await transaction.one(sql.type(keySchema)`
        update api_keys set name = ${name}, status = ${status}, expires_at = from_unix_ms(${expiresAt}::int8),
          limits = ${jsonb(limits)}
        where id = ${id} returning ${columns}
      `);
      await writeAuditLog(transaction, actor, "key.updated", id, changes);
      // What other processes remember of the key must not outlive its new end.
      const sooner = expiresAt !== null && (before.expiresAt === null || expiresAt < before.expiresAt);
      // New limits hold for requests that are admitted from now on.
      const ended = "limits" in changes || (before.status === "active" && (status === "inactive" || sooner));
      return { key, ended };
    });
  }

  /** Ends a key for good; what it used stays in the books (rule 5.7). */
  async delete(actor: Actor, scope: KeyScope, id: string): Promise<KeyOutcome> {
    return await this.#change("delete", actor, scope, id, async (transaction, before) => {
      const key = await transaction.one(sql.type(keySchema)`
        update api_keys set status = 'inactive', sha256 = null, deleted_at = clock_timestamp() where id = ${id}
        returning ${columns}
      `);
      // No list shows the key any more: what it was called stands here.
      await writeAuditLog(transaction, actor, "key.deleted", id, {
        name: { from: before.name, to: null },
        status: { from: before.status, to: null },
      });
      return { key, ended: true };
    });
  }

  async #change(
    what: "update" | "delete",
    actor: Actor,
    scope: KeyScope,
    id: string,
    apply: (
      transaction: DatabaseTransactionConnection,
      before: ApiKey,
    ) => Promise<{ readonly key: ApiKey; readonly ended: boolean }>,
  ): Promise<KeyOutcome> {
    const { pool, directory, holds, reads } = this.#options;
    await reads.changing(actor.organizationId);
    // Locks in the order of copying a snapshot: the organization, its keys, its account.
    const done = await changeOrganization(pool, actor.organizationId, async (transaction) => {
      const before = await transaction.maybeOne(sql.type(keySchema.extend({ sha256: z.string().nullable() }))`
        select ${columns}, sha256 from api_keys where id = ${id} and ${inScope(scope)} for update
      `);
      if (before === null) return { kind: "unknown" } as const;
      const { sha256, ...key } = before;
      if (key.source === "declared") {
        if (sha256 !== null) return { kind: "declared" } as const;
        if (what !== "delete") return { kind: "removed" } as const;
      }
      const { key: after, ended } = await apply(transaction, key);
      if (ended) await bumpKeyEpoch(transaction, actor.organizationId);
      return { kind: "done", key: after, ended, sha256 } as const;
    });
    if (done.kind !== "done") return done;
    if (done.ended) {
      if (done.sha256 !== null) directory.forget(done.sha256);
      reachedMoneyStep("keys.ended");
      await tellKeyEpoch(holds, actor.organizationId);
    }
    return { kind: "done", key: done.key };
  }
}

/** Refuses a key beyond `MOST_KEYS`; to be called once the organization is locked, so that no two take the last place. */
async function leaveRoom(transaction: DatabaseTransactionConnection, organizationId: string): Promise<void> {
  const made = await transaction.oneFirst(sql.type(z.object({ count: z.bigint() }))`
    select count(*) as count from api_keys
    where organization_id = ${organizationId} and source = 'created' and ${shown}
  `);
  if (made < MOST_KEYS) return;
  throw new ApiError(
    "invalid_request",
    `An organization may have at most ${MOST_KEYS} API keys: delete those that are not used any more.`,
  );
}

/** Returns a key's position, also of a deleted key: a client that deletes what it lists asks for the page after it. */
async function positionOf(pool: CommonQueryMethods, scope: KeyScope, id: string): Promise<bigint | null> {
  return await pool.maybeOneFirst(sql.type(z.object({ position: z.bigint() }))`
    select position from api_keys where id = ${id} and ${inScope(scope, everShown)}
  `);
}

const digest = (secret: string): string => createHash("sha256").update(secret).digest("hex");

const moment = (unixMs: number | null): string | null =>
  unixMs === null ? null : new Date(unixMs).toISOString();

type Changeable = Pick<ApiKey, "name" | "status" | "expiresAt" | "limits">;
const asLogged = ({ name, status, expiresAt, limits }: Changeable) => ({
  name,
  status,
  expires_at: moment(expiresAt),
  limits: limits && JSON.stringify(limits),
});

function differences(before: Changeable, after: Changeable): FieldChanges {
  const [from, to] = [asLogged(before), asLogged(after)];
  const changed = (["name", "status", "expires_at", "limits"] as const).filter(
    (field) => from[field] !== to[field],
  );
  return Object.fromEntries(changed.map((field) => [field, { from: from[field], to: to[field] }]));
}
