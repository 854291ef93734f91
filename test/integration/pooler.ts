/** A real PgBouncer in transaction mode before a Postgres, with few connections to it. */
import { spawn } from "node:child_process";
import { chown, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { arch, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { findProgram } from "../../hack/debian.ts";
import { freePort } from "../../hack/free-port.ts";
import { hasEnded, stopProcess } from "../../hack/processes.ts";
import { endWithUs } from "../../hack/reaper.ts";

/** PgBouncer does not run as root. */
const NOBODY = 65534;
const READY_WITHIN_MS = 20_000;
const choices = [{ program: "pgbouncer", debianPackage: "pgbouncer" }];

export interface Pooler extends AsyncDisposable {
  /** The same database of the Postgres behind it, through it. */
  through(url: string): string;
  /** Connections that it has to its Postgres now. */
  servers(): Promise<number>;
}

/** `size`: the most connections to each database. @throws Error saying why there is none. */
export async function startPooler(postgresUrl: string, size = 4): Promise<Pooler> {
  const program = await findProgram({ folder: `pgbouncer-${arch()}`, choices }, (line) =>
    process.stderr.write(`pooler: ${line}\n`),
  );
  await using disposal = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), "gapura-pooler-"));
  disposal.defer(() => rm(folder, { recursive: true, force: true }));
  const { hostname, port: serverPort } = new URL(postgresUrl);
  const port = await freePort();
  const file = join(folder, "pgbouncer.ini");
  const log = join(folder, "pgbouncer.log");
  // As it comes, but for what docs/operations.md advises: no start-up parameter is ignored, and Debian 12's version knows no
  // prepared statements.
  const settings = {
    listen_addr: "127.0.0.1",
    listen_port: port,
    unix_socket_dir: "",
    logfile: log,
    auth_type: "any",
    admin_users: "pgbouncer",
    pool_mode: "transaction",
    default_pool_size: size,
    max_client_conn: 1_000,
    server_login_retry: 1,
  };
  await writeFile(
    file,
    [
      "[databases]",
      `* = host=${hostname} port=${serverPort} user=postgres`,
      "[pgbouncer]",
      ...Object.entries(settings).map(([name, value]) => `${name} = ${value}`),
    ].join("\n"),
  );
  const asRoot = process.geteuid?.() === 0;
  if (asRoot) for (const path of [folder, file]) await chown(path, NOBODY, NOBODY);
  const child = spawn(program.path, [file], {
    env: { ...process.env, ...program.environment },
    stdio: "ignore",
    ...(asRoot ? { uid: NOBODY, gid: NOBODY } : {}),
  });
  endWithUs(child, "SIGTERM");
  child.on("error", () => {});
  disposal.defer(() => stopProcess(child, "SIGKILL", 5_000));
  const show = async (what: string) => {
    const client = new pg.Client({ host: "127.0.0.1", port, database: "pgbouncer", user: "pgbouncer" });
    client.on("error", () => {});
    try {
      await client.connect();
      return (await client.query<Record<string, string>>(`show ${what}`)).rows;
    } finally {
      await client.end();
    }
  };
  const deadline = Date.now() + READY_WITHIN_MS;
  while (
    !(await show("version").then(
      () => true,
      () => false,
    ))
  ) {
    if (hasEnded(child) || Date.now() > deadline)
      throw new Error(`PgBouncer did not start: ${await readFile(log, "utf8").catch(() => "no log")}`);
    await sleep(10);
  }
  const held = disposal.move();
  return {
    through: (url) => {
      const through = new URL(url);
      through.port = String(port);
      return through.href;
    },
    servers: async () => (await show("servers")).length,
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}
