/**
 * Migrations `-- migrate: concurrently`: indexes and checks of large tables, statement by statement outside of a transaction.
 * The catalog alone decides what to do next, so a run continues where another one was killed: an index that was left invalid
 * is dropped and made again, one that the killed run's server process still builds is waited for. For a partitioned table,
 * for which Postgres has no `concurrently`, each partition's index is made so, and then attached to the table's.
 */
import type { MigrationRun } from "./migrate-run.ts";

const BUILT_POLL_MS = 500;
/** Postgres cuts longer names. */
const MOST_NAME = 63;

export type OnlineStatement =
  | {
      readonly kind: "index";
      readonly unique: boolean;
      readonly name: string;
      readonly table: string;
      /** What follows the table's name: columns, condition. */
      readonly rest: string;
    }
  | { readonly kind: "validate"; readonly table: string; readonly name: string };

const INDEX =
  /^create\s+(?<unique>unique\s+)?index\s+concurrently\s+(?<name>\w+)\s+on\s+(?<table>\w+)\s*(?<rest>[(u][\s\S]*)$/i;
const VALIDATE = /^alter\s+table\s+(?<table>\w+)\s+validate\s+constraint\s+(?<name>\w+)$/i;

/** @throws Error for a statement of another form. */
export function readOnline(sql: string): OnlineStatement[] {
  return sql
    .replaceAll(/^\s*--.*$/gm, "")
    .split(";")
    .map((text) => text.trim())
    .filter((text) => text !== "")
    .map((text) => {
      const index = INDEX.exec(text)?.groups;
      if (index !== undefined) {
        const { name = "", table = "", rest = "", unique } = index;
        return { kind: "index", unique: unique !== undefined, name, table, rest };
      }
      const check = VALIDATE.exec(text)?.groups;
      if (check !== undefined)
        return { kind: "validate", table: check["table"] ?? "", name: check["name"] ?? "" };
      throw new Error(
        `"${text}" is neither create [unique] index concurrently NAME on TABLE … nor alter table TABLE validate constraint NAME`,
      );
    });
}

/** A table or a partition of it, and what it has of an index or a check. */
export interface Part {
  readonly table: string;
  /** Whether it is the table that the statement names; else it is a partition of that. */
  readonly root: boolean;
  /** Whether it has partitions. */
  readonly partitioned: boolean;
  /** State of its index of this name, or of the check; `building`: somebody builds this or another index of the table. */
  readonly state: "absent" | "building" | "invalid" | "valid";
  /** Whether an index of the partition, under whatever name, is attached to the table's. */
  readonly attached: boolean;
}

export type OnlineAction =
  /** A statement that may take long; nobody waits for it. */
  | { readonly kind: "online"; readonly sql: string }
  /** A statement that takes a moment, and a lock that others wait for. */
  | { readonly kind: "brief"; readonly sql: string }
  /** Somebody builds an index, perhaps this one. */
  | { readonly kind: "wait" };

/** Returns the next thing to do for a statement; null: it is done. @throws Error for tables that it is not made for. */
export function nextAction(statement: OnlineStatement, parts: readonly Part[]): OnlineAction | null {
  const root = parts.find((part) => part.root);
  if (root === undefined) throw new Error(`there is no table ${statement.table}`);
  const partitions = parts.filter((part) => !part.root);
  const deep = partitions.find(({ partitioned }) => partitioned);
  if (deep !== undefined) throw new Error(`${deep.table} has partitions of its own`);
  return statement.kind === "index"
    ? nextOfIndex(statement, root, partitions)
    : nextOfCheck(statement, root, partitions);
}

function nextOfIndex(
  statement: OnlineStatement & { readonly kind: "index" },
  root: Part,
  partitions: readonly Part[],
): OnlineAction | null {
  const { name, rest } = statement;
  const create = statement.unique ? "create unique index" : "create index";
  if (!root.partitioned) return build(create, name, root, rest);
  // Partitions that are made from now on get the index by themselves.
  if (root.state === "absent")
    return { kind: "brief", sql: `${create} ${name} on only ${root.table} ${rest}` };
  for (const part of partitions.filter(({ attached }) => !attached)) {
    const own = partIndexName(part.table, name);
    const action = build(create, own, part, rest);
    return action ?? { kind: "brief", sql: `alter index ${name} attach partition ${own}` };
  }
  if (root.state !== "valid") throw new Error(`${name} has an index of each partition and is not valid`);
  return null;
}

function build(create: string, name: string, part: Part, rest: string): OnlineAction | null {
  switch (part.state) {
    case "absent":
      return { kind: "online", sql: `${create} concurrently if not exists ${name} on ${part.table} ${rest}` };
    case "building":
      return { kind: "wait" };
    case "invalid":
      return { kind: "online", sql: `drop index concurrently ${name}` };
    case "valid":
      return null;
  }
}

function nextOfCheck(
  { name, table }: OnlineStatement,
  root: Part,
  partitions: readonly Part[],
): OnlineAction | null {
  if (root.state === "absent") throw new Error(`${table} has no constraint ${name}`);
  // One by one, so that no lock is held on all of them; the table's own then takes a moment.
  const part = [...partitions, root].find(({ state }) => state === "invalid");
  if (part === undefined) return null;
  return { kind: "online", sql: `alter table ${part.table} validate constraint ${name}` };
}

/** Returns the name of a partition's index. @throws Error when it is too long. */
export function partIndexName(partition: string, index: string): string {
  const name = `${partition}_${index}`;
  if (name.length > MOST_NAME)
    throw new Error(`${name} is longer than ${MOST_NAME}: give the index a shorter name`);
  return name;
}

/** Takes one step of the first statement that is not done. @returns how long to pause; null: all are done. */
export async function takeOnlineStep(run: MigrationRun, sql: string): Promise<number | null> {
  for (const statement of readOnline(sql)) {
    const action = nextAction(statement, await readParts(run, statement));
    switch (action?.kind) {
      case undefined:
        continue;
      case "wait":
        return BUILT_POLL_MS;
      case "online":
        await run.online(action.sql);
        return 0;
      case "brief":
        await run.brief(action.sql);
        return 0;
    }
  }
  return null;
}

/** `$1` the table, `$2` the name of its index or check, `$3` tables of which somebody builds an index. */
const partsSql = (state: string, attached: string) => `
  select part.oid::regclass::text as "table", part.oid = root.oid as root, part.relkind = 'p' as partitioned,
    case when ${state} then 'valid' when part.oid = any ($3::oid[]) then 'building' when (${state}) is null then 'absent' else 'invalid' end as state,
    ${attached} as attached
  from pg_class root
  join pg_class part on part.oid = root.oid or part.oid in (select inhrelid from pg_inherits where inhparent = root.oid)
  where root.oid = to_regclass($1)
  order by part.relname
`;
const indexParts = partsSql(
  `(
     select indisvalid from pg_index join pg_class index on index.oid = indexrelid
     where indrelid = part.oid
       and index.relname = case when part.oid = root.oid then $2 else part.relname || '_' || $2 end
   )`,
  `exists (
     select from pg_index join pg_inherits on inhrelid = indexrelid join pg_class whole on whole.oid = inhparent
     where indrelid = part.oid and whole.relname = $2
   )`,
);
const checkParts = partsSql(
  "(select convalidated from pg_constraint where conrelid = part.oid and conname = $2)",
  "false",
);

async function readParts({ client }: MigrationRun, { kind, table, name }: OnlineStatement): Promise<Part[]> {
  // Asked first: an index that nobody builds now and that is invalid a moment later was given up.
  const { rows } = await client.query<{ built: number[] | null }>(
    "select array_agg(relid) as built from pg_stat_progress_create_index where datid = (select oid from pg_database where datname = current_database())",
  );
  const built = kind === "index" ? (rows[0]?.built ?? []) : [];
  const sql = kind === "index" ? indexParts : checkParts;
  return (await client.query<Part>(sql, [table, name, built])).rows;
}
