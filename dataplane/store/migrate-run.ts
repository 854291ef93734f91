/**
 * One run of the migrations on its connections: one at a time, and never in others' way. A session that waits for a lock of a
 * table makes all later ones wait behind it, so a run waits for less than a second, lets everybody pass, and tries again.
 */
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { causesOf, codeOf, sqlStateOf } from "../lib/causes.ts";
import { wordsOf } from "../lib/words-of.ts";
import { isRefusal, nowAndThen, onceThere } from "./once-there.ts";

/** How long Postgres, which may have been started with this program, is waited for; whoever started both tries again. */
const STARTS_WITHIN_MS = 120_000;
/** Advisory lock of all runs. Any number will do, as long as nothing else in this database uses it. */
const LOCK = 7_104_201;
const LOCK_POLL_MS = 200;
/** How long a statement waits for a lock: first this, then twice as long each time, up to the most. */
const FIRST_WAIT_MS = 100;
/** Together with the statement itself it stays below the second of rule 12.6. */
const MOST_WAIT_MS = 800;
/** How often a run looks whom a step waits for, and how often it says so for a step that may take long. */
const LOOK_MS = 200;
const TELL_MS = 10_000;
/** Number of tries after which a run says that it waits: the first are too short to see for whom. */
const TELL_FROM = 3;

/** How often a step is tried that meets locks of others, and how long others are let pass in between. */
export interface Patience {
  readonly tries: number;
  readonly pauseMs: (attempt: number) => number;
}

/** Some five minutes. */
const usualPatience: Patience = {
  tries: 60,
  pauseMs: (attempt) => Math.min(5_000, 500 * 2 ** attempt),
};

/** Returns how long to wait for a lock, in milliseconds, by the number of earlier tries. */
export const lockTimeoutMs = (attempt: number): number =>
  Math.min(MOST_WAIT_MS, FIRST_WAIT_MS * 2 ** attempt);

/** lock_not_available, which lock_timeout ends in, and deadlock_detected. */
const LOCKED = new Set(["55P03", "40P01"]);

const isLocked = (error: unknown): boolean =>
  causesOf(error).some((cause) => LOCKED.has(sqlStateOf(cause) ?? ""));

/** Classes of SQLSTATE of a server that takes no session now: starting up, none to spare, a pooler that reaches no server. */
const AWAY = new Set(["08", "53", "57"]);
/** Errors of `pg` without a code. */
const SILENCE = /^(?:timeout expired|Connection terminated)/;

/** Whether a connection may be had a moment later. */
function isUnreachable(error: Error): boolean {
  const code = codeOf(error) ?? "";
  return (
    isRefusal(error) ||
    /^E(?!RR_)[A-Z_]+$/.test(code) ||
    AWAY.has(code.slice(0, 2)) ||
    SILENCE.test(error.message)
  );
}

export class MigrationRun implements AsyncDisposable {
  /** During `alone` it is in the transaction that holds the lock of all runs. */
  readonly client: pg.Client;
  readonly say: (line: string) => void;
  readonly #url: string;
  readonly #patience: Patience;
  readonly #others: pg.Client[] = [];
  #beside: pg.Client | null = null;
  #watcher: pg.Client | null = null;
  #isBeside = false;
  /** The server process of `client`. */
  #pid = 0;
  /** The process that the present step waited for last. */
  #holder = "";
  readonly #note = (who: string) => {
    this.#holder = who;
  };
  /** How often the present step was tried before. */
  attempt = 0;
  /** Of the present backfill: rows of its next step, and when (`performance.now()`) its progress was last reported. */
  readonly pace = { rows: 500, toldAt: performance.now() };

  private constructor(url: string, client: pg.Client, say: (line: string) => void, patience: Patience) {
    this.#url = url;
    this.client = client;
    this.say = say;
    this.#patience = patience;
  }

  static async open(
    url: string,
    options: { readonly say?: (line: string) => void; readonly patience?: Patience },
  ): Promise<MigrationRun> {
    const { say = () => {}, patience = usualPatience } = options;
    const onAway = nowAndThen((error) => say(`waiting for Postgres: ${wordsOf(error)}`));
    const client = await onceThere(() => connect(url), isUnreachable, { withinMs: STARTS_WITHIN_MS, onAway });
    return new MigrationRun(url, client, say, patience);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of [this.client, ...this.#others]) await client.end();
  }

  pause(ms: number): Promise<void> {
    return sleep(ms);
  }

  /**
   * Does the work in a transaction of `client` while no other run has one, and again when it meets a lock.
   * @throws Error naming who holds the lock when it is still held after all tries.
   */
  async alone<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#holder = "somebody else";
    for (this.attempt = 0; ; this.attempt += 1) {
      this.#pid = await this.#begin();
      try {
        const result = await this.#watch(this.#pid, LOOK_MS, this.#note, work);
        await this.client.query("commit");
        return result;
      } catch (error) {
        await this.client.query("rollback").catch(() => {});
        if (!isLocked(error)) throw error;
        const tries = this.attempt + 1;
        const why = error instanceof Error ? error.message : String(error);
        if (tries >= this.#patience.tries)
          throw new Error(
            `${why}; tried ${tries} times, each time for at most ${MOST_WAIT_MS / 1_000} s, as all others wait meanwhile. ` +
              `${this.#holder} holds the lock: when that has ended, or was ended (pg_terminate_backend), migrate again`,
            { cause: error },
          );
        if (tries === TELL_FROM || tries % 10 === 0)
          this.say(`${why}; ${this.#holder} holds the lock; trying again`);
        await sleep(this.#patience.pauseMs(this.attempt));
      }
    }
  }

  /** Runs a statement outside of a transaction, on a second connection: one that may take long and is in nobody's way. */
  online(sql: string): Promise<void> {
    return this.#besides(sql, TELL_MS, (who) => this.say(`waiting for ${who}`));
  }

  /** Runs a statement there in a transaction of its own: one that takes a moment, and a lock that others may wait for. */
  brief(sql: string): Promise<void> {
    // One message is one transaction.
    return this.#besides(
      `set local lock_timeout = ${lockTimeoutMs(this.attempt)}; ${sql}`,
      LOOK_MS,
      this.#note,
    );
  }

  async #besides(sql: string, everyMs: number, tell: (who: string) => void): Promise<void> {
    this.#beside ??= await this.#open();
    const client = this.#beside;
    const { rows } = await client.query<{ pid: number }>("select pg_backend_pid() as pid");
    // The last statement with parameters leaves its portal open, and with it its snapshot, which an index would wait for.
    await this.client.query("select");
    this.#isBeside = true;
    try {
      await this.#watch(rows[0]?.pid ?? 0, everyMs, tell, () => client.query(sql));
    } finally {
      this.#isBeside = false;
    }
  }

  /** Begins a transaction that holds the lock of all runs. @returns the server process of `client`. */
  async #begin(): Promise<number> {
    // Settings and lock of the transaction: the next one may have another session (rule 12.3). Read committed: its snapshots
    // end with its statements, as `create index concurrently` waits for all older ones.
    const begin = `begin isolation level read committed; set local lock_timeout = ${lockTimeoutMs(this.attempt)};
      set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0`;
    for (let told = false; ; told = true) {
      await this.client.query(begin);
      // The lock is never waited for in the server: a waiting statement has a snapshot, which `create index concurrently` of
      // the run that has the lock would wait for in its turn, on another connection, where Postgres sees no deadlock.
      const { rows } = await this.client.query<{ locked: boolean; pid: number }>(
        "select pg_try_advisory_xact_lock($1) as locked, pg_backend_pid() as pid",
        [LOCK],
      );
      const [row] = rows;
      if (row?.locked === true) return row.pid;
      await this.client.query("rollback");
      if (!told) this.say("another process migrates this database: waiting for it");
      await sleep(LOCK_POLL_MS);
    }
  }

  /** Reports, while the work goes on, whom a server process waits for, if it waits. */
  async #watch<Result>(
    pid: number,
    everyMs: number,
    tell: (who: string) => void,
    work: () => Promise<Result>,
  ): Promise<Result> {
    const ended = new AbortController();
    const watching = (async () => {
      for (;;) {
        await sleep(everyMs, undefined, { signal: ended.signal }).catch(() => {});
        if (ended.signal.aborted) return;
        // The step runs on the second connection, maybe for hours, and is watched there.
        if (this.#isBeside && pid === this.#pid) continue;
        const who = await this.#holders(pid).catch(() => "");
        if (who !== "" && !ended.signal.aborted) tell(who);
      }
    })();
    try {
      return await work();
    } finally {
      ended.abort();
      await watching;
    }
  }

  async #holders(pid: number): Promise<string> {
    // Not on `client`: this query takes a snapshot, and a transaction that once had one is waited for as a whole.
    this.#watcher ??= await this.#open();
    const { rows } = await this.#watcher.query<{ who: string | null }>(
      `select string_agg(format('process %s (%s, %s, its transaction began %s s ago)', pid, coalesce(nullif(application_name, ''), usename, ''),
         coalesce(state, 'unknown'), round(extract(epoch from now() - xact_start))), ', ' order by xact_start) as who
       from pg_stat_activity where pid = any (pg_blocking_pids($1))`,
      [pid],
    );
    return rows[0]?.who ?? "";
  }

  async #open(): Promise<pg.Client> {
    const client = await connect(this.#url);
    this.#others.push(client);
    return client;
  }
}

/** Types of JSON, which stays text: what a backfill passes to its next step may hold numbers that JavaScript has not. */
const JSON_TYPES = new Set([114, 3802]);
const types: pg.CustomTypesConfig = {
  getTypeParser: (number, format) =>
    JSON_TYPES.has(number) ? (text: string) => text : pg.types.getTypeParser(number, format),
};

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: 10_000,
    keepAlive: true,
    types,
  });
  client.on("error", () => {});
  await client.connect();
  return client;
}
