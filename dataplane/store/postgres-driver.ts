/**
 * A driver for slonik in place of its own, which bounds statements by start-up parameters: PgBouncer refuses those, and
 * a setting of a session reaches whoever has the server connection next (rule 12.3). Here a bound costs no round trip:
 * a transaction's is in the same message that begins it, and a single statement is timed by us and cancelled.
 */
import { connect } from "node:net";
import type { Duplex } from "node:stream";
import pg from "pg";
import {
  BackendTerminatedError,
  createDriverFactory,
  parseDsn,
  StatementTimeoutError,
  type DriverCommand,
  type DriverFactory,
  type DriverTypeParser,
} from "slonik";

export interface DriverLimits {
  /** A statement that takes longer is cancelled. Milliseconds. */
  readonly statementMs: number;
  /** A transaction whose client sends nothing for so long is ended by the server. Milliseconds. */
  readonly idleInTransactionMs: number;
}

/** How long a server may take to cancel a statement; then its connection is given up. */
const CANCEL_MS = 5_000;
/** The statement with which slonik begins a transaction. */
const BEGIN = "START TRANSACTION";

/**
 * Makes the driver. @throws, from its queries, StatementTimeoutError for a statement over its time; BackendTerminatedError when
 * the connection ended.
 */
export const boundedDriver = ({ statementMs, idleInTransactionMs }: DriverLimits): DriverFactory => {
  // The same bounds in the server: they hold also when this process stands still, and its locks with it.
  const begin = [
    BEGIN,
    `set local statement_timeout = ${statementMs}`,
    `set local idle_in_transaction_session_timeout = ${idleInTransactionMs}`,
  ].join("; ");
  return createDriverFactory(async ({ driverConfiguration }) => {
    const { connectionUri, connectionTimeout, typeParsers } = driverConfiguration;
    const types = { getTypeParser: typesOf(typeParsers) };
    const config: pg.ClientConfig = {
      ...addressOf(connectionUri),
      types,
      ...(connectionTimeout === "DISABLE_TIMEOUT" ? {} : { connectionTimeoutMillis: connectionTimeout }),
    };
    return {
      createPoolClient: async ({ clientEventEmitter }) => {
        const client = new pg.Client(config);
        client.on("error", (error: Error) => {
          clientEventEmitter.emit("error", told(error));
        });
        return {
          connect: async () => {
            await client.connect();
            readInTurns(client.connection.stream);
          },
          end: () => client.end(),
          query: async (text, values) => {
            // Without values `pg` sends one simple message, which may hold several statements.
            const asked = text === BEGIN ? client.query(begin) : client.query(text, values);
            const result = await bounded(client, asked, statementMs).catch((error: Error) => {
              throw told(error);
            });
            const { command, fields, rowCount, rows } = Array.isArray(result) ? emptyResult : result;
            return {
              command: command as DriverCommand,
              fields: fields.map(({ dataTypeID, name }) => ({ dataTypeId: dataTypeID, name })),
              rowCount,
              rows: rows as Record<string, unknown>[],
            };
          },
          stream: () => {
            throw new TypeError("rows are read in pages, not as a stream: a cursor would pin a connection");
          },
        };
      },
    };
  });
};

/** Bytes of an answer that are read before others have their turn: a millisecond or two of rows. */
const READ_AT_ONCE = 128 * 1024;

/** Reads a socket in portions: Node would take megabytes in one turn if they are there, and `pg` make rows of all at once. */
function readInTurns(stream: Duplex): void {
  let read = 0;
  stream.on("data", ({ length }: Buffer) => {
    read += length;
    if (read < READ_AT_ONCE) return;
    read = 0;
    stream.pause();
    setImmediate(() => stream.resume());
  });
}

/** Stands for the several results of the message that begins a transaction. */
const emptyResult: pg.QueryResult = { command: "BEGIN", fields: [], rowCount: null, rows: [], oid: 0 };

function addressOf(url: string): pg.ClientConfig {
  const { applicationName, databaseName, host, options, password, port, sslMode, username } = parseDsn(url);
  return {
    ...(applicationName === undefined ? {} : { application_name: applicationName }),
    ...(databaseName === undefined ? {} : { database: databaseName }),
    ...(host === undefined ? {} : { host }),
    ...(options === undefined ? {} : { options }),
    ...(password === undefined ? {} : { password }),
    ...(port === undefined ? {} : { port }),
    ...(username === undefined ? {} : { user: username }),
    ssl: sslMode === "require" || (sslMode === "no-verify" && { rejectUnauthorized: false }),
  };
}

/** Numbers of the types that slonik reads in its own way, and of their arrays: the same in every Postgres (pg_type.dat). */
const typeNumbers: Readonly<Record<string, readonly [one: number, array: number]>> = {
  int8: [20, 1016],
  date: [1082, 1182],
  interval: [1186, 1187],
  numeric: [1700, 1231],
  timestamp: [1114, 1115],
  timestamptz: [1184, 1185],
};

/** Makes the parsers of `pg` of slonik's. @throws Error for a type that has no number here. */
function typesOf(parsers: readonly DriverTypeParser[]): pg.CustomTypesConfig["getTypeParser"] {
  const known = new Map<number, (text: string) => unknown>();
  for (const { name, parse } of parsers) {
    const numbers = typeNumbers[name];
    if (numbers === undefined) throw new Error(`the number of the type ${name} is not known`);
    known.set(numbers[0], parse);
    known.set(numbers[1], (text) => pg.types.arrayParser(text, parse));
  }
  return (number, format) => known.get(number) ?? pg.types.getTypeParser(number, format);
}

/** Waits for a statement, has it cancelled when its time is over, and gives its connection up when that has no effect. */
async function bounded<Result>(client: pg.Client, asked: Promise<Result>, ms: number): Promise<Result> {
  let cancelled: Promise<void> | null = null;
  let last: NodeJS.Timeout | undefined;
  const timer = setTimeout(() => {
    cancelled = cancel(client);
    last = setTimeout(() => client.connection.stream.destroy(), CANCEL_MS);
  }, ms);
  try {
    return await asked;
  } finally {
    clearTimeout(timer);
    clearTimeout(last);
    // The cancel request must not reach the next statement.
    // eslint-disable-next-line typescript/await-thenable -- set by the timer
    await cancelled;
  }
}

/** Number of a cancel request, in the place of a protocol's version. */
const CANCEL_REQUEST = 80_877_102;

/**
 * Asks the server to end what this connection runs, as libpq's PQcancel does: on a connection of its own, unencrypted.
 * Resolves when the server has passed the request on and closed that connection, or after CANCEL_MS.
 */
function cancel(client: pg.Client): Promise<void> {
  // From the server's first messages (BackendKeyData).
  const { processID, secretKey } = client as pg.Client & {
    processID: number | null;
    secretKey: number | null;
  };
  if (processID === null || secretKey === null) return Promise.resolve();
  const { promise, resolve } = Promise.withResolvers<void>();
  const { host, port } = client;
  const socket = host.startsWith("/") ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host);
  const message = Buffer.alloc(16);
  message.writeInt32BE(message.length, 0);
  message.writeInt32BE(CANCEL_REQUEST, 4);
  message.writeInt32BE(processID, 8);
  message.writeInt32BE(secretKey, 12);
  socket.setTimeout(CANCEL_MS, () => socket.destroy());
  socket.on("error", () => {});
  socket.on("close", () => resolve());
  socket.resume();
  socket.write(message);
  return promise;
}

/** Turns an error into slonik's own where slonik acts on that: it rolls back on a connection unless it knows that it ended. */
function told(error: Error): Error {
  const { code, severity } = error as Partial<pg.DatabaseError>;
  if (code === "57014") return new StatementTimeoutError(error);
  const ended = /connection terminated|not queryable/i.test(error.message) || /^E[A-Z]+$/.test(code ?? "");
  return ended || severity === "FATAL" ? new BackendTerminatedError(error) : error;
}
