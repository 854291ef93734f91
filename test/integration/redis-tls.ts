/** What tests of a Redis that speaks TLS alone stand on (rule 12.1): a certificate of a private authority, and a program that asks every shard. */
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Redis } from "ioredis";
import { stopProcess } from "../../hack/processes.ts";
import { endWithUs } from "../../hack/reaper.ts";
import { findRedis } from "../../hack/redis.ts";
import { privateAuthority } from "../fakes/certificate.ts";
import { programEnvironment } from "../fakes/program-environment.ts";

const main = resolve(import.meta.dirname, "../../dataplane/main.ts");

export interface TlsServers {
  readonly folder: string;
  /** The authority's certificate. */
  readonly authorityFile: string;
  /** Of every server. */
  readonly settings: Readonly<Record<string, string>>;
  /** Starts a server; the disposal ends it. `first`: arguments before its settings. @returns ends it at once. */
  start(settings: Readonly<Record<string, string>>, first?: readonly string[]): () => Promise<void>;
  /** Of a server that may not have begun yet. */
  client(port: number): Redis;
}

/** `stops` ends all of it. */
export async function tlsServers(stops: AsyncDisposableStack): Promise<TlsServers> {
  const folder = await mkdtemp(join(tmpdir(), "gapura-redis-tls-"));
  stops.defer(() => rm(folder, { recursive: true, force: true }));
  const authority = privateAuthority("tests");
  // Of no address: whoever goes to 127.0.0.1 instead of the name is refused.
  const certificate = authority.issue(["localhost"]);
  const files = { "ca.crt": authority.cert, "node.crt": certificate.cert, "node.key": certificate.key };
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  const program = await findRedis(() => {});
  return {
    folder,
    authorityFile: join(folder, "ca.crt"),
    settings: {
      port: "0",
      bind: "127.0.0.1 -::1",
      "tls-cert-file": join(folder, "node.crt"),
      "tls-key-file": join(folder, "node.key"),
      "tls-ca-cert-file": join(folder, "ca.crt"),
      "tls-auth-clients": "no",
      dir: folder,
    },
    start: (settings, first = []) => {
      const words = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, ...value.split(" ")]);
      const child = spawn(program.path, [...first, ...words], {
        env: { ...process.env, ...program.environment },
        stdio: "ignore",
      });
      endWithUs(child, "SIGTERM");
      child.on("error", () => {});
      const stop = () => stopProcess(child, "SIGKILL", 5_000);
      stops.defer(stop);
      return stop;
    },
    client: (port) => {
      const redis = new Redis({
        port,
        host: "localhost",
        family: 4,
        tls: { ca: authority.cert },
        retryStrategy: () => 50,
        maxRetriesPerRequest: null,
      });
      redis.on("error", () => {});
      stops.defer(() => redis.disconnect());
      return redis;
    },
  };
}

/** `main.ts reconcile`, which asks every shard. */
export async function reconcile(
  environment: Readonly<Record<string, string>>,
): Promise<[code: number | null, said: string]> {
  const child = spawn(process.execPath, [main, "reconcile"], {
    env: { ...programEnvironment(), ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (bytes: Buffer) => (said += bytes.toString()));
  const code = await new Promise<number | null>((done) => child.once("close", done));
  return [code, said];
}
