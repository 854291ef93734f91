/** Starts the real kube-apiserver over etcd in a temporary folder, for tests. */
import { type ChildProcess, spawn } from "node:child_process";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createWriteStream } from "node:fs";
import * as fs from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, fetch } from "undici";
import type { KubeBinaries } from "./kube-binaries.ts";
import { freePort } from "./free-port.ts";
import { hasEnded, stopProcess } from "./processes.ts";
import { endWithUs, type StartedKind } from "./reaper.ts";

const START_TIMEOUT_MS = 90_000;

/** What a client needs; plain data, so that it can be passed to test workers. */
export interface KubeAccess {
  readonly url: string;
  /** A kubeconfig file of the administrator (group `system:masters`). */
  readonly kubeconfig: string;
  readonly token: string;
  /** The serving certificate's authority, PEM. */
  readonly certificateAuthority: string;
  /** Log of the requests of service accounts and their decisions: one `audit.k8s.io/v1` Event a line. */
  readonly auditLog: string;
}

export interface KubeApiServer {
  readonly access: KubeAccess;
  readonly folder: string;
  /** For chaos tests: end and start each of the two again on the same data and ports. */
  readonly etcd: Restartable;
  readonly apiServer: Restartable;
  stop(): Promise<void>;
}

export interface Restartable {
  /** The running process; another one after a restart. */
  process(): ChildProcess;
  stop(signal?: NodeJS.Signals): Promise<void>;
  /** Resolves when it serves. */
  start(): Promise<void>;
}

/**
 * `clientAuthority`: PEM of the authority that signs client certificates.
 * @throws when one of the two does not come up; the message holds the end of its log.
 */
export async function startKubeApiServer(
  binaries: KubeBinaries,
  { clientAuthority }: { readonly clientAuthority?: string } = {},
): Promise<KubeApiServer> {
  const folder = await fs.mkdtemp(join(tmpdir(), "gapura-kube-"));
  const [etcdPort, securePort] = [await freePort(), await freePort()];
  const token = randomBytes(24).toString("hex");
  const certificates = join(folder, "certificates");
  await fs.mkdir(certificates);
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const accountKey = join(folder, "sa.key");
  await fs.writeFile(accountKey, privateKey.export({ type: "pkcs1", format: "pem" }), { mode: 0o600 });
  const tokens = join(folder, "tokens.csv");
  await fs.writeFile(tokens, `${token},admin,admin,"system:masters"\n`, { mode: 0o600 });

  const clients = join(folder, "client-ca.pem");
  if (clientAuthority !== undefined) await fs.writeFile(clients, clientAuthority);
  const auditLog = join(folder, "audit.log");
  const auditPolicy = join(folder, "audit-policy.json");
  await fs.writeFile(auditPolicy, JSON.stringify(AUDIT_POLICY));

  const url = `https://127.0.0.1:${securePort}`;
  const etcd = restartable({
    program: binaries.etcd,
    kind: "store",
    args: etcdArguments(folder, etcdPort),
    log: join(folder, "etcd.log"),
    ready: () => answers(`http://127.0.0.1:${etcdPort}/health`, null),
  });
  const flags = apiServerArguments({
    etcdPort,
    securePort,
    certificates,
    accountKey,
    tokens,
    url,
    auditLog,
    auditPolicy,
  });
  if (clientAuthority !== undefined) flags.push(`--client-ca-file=${clients}`);
  const apiServer = restartable({
    program: binaries.apiServer,
    kind: "program",
    args: flags,
    log: join(folder, "kube-apiserver.log"),
    ready: () => answers(`${url}/readyz`, token),
  });
  const stop = async () => {
    await apiServer.stop();
    await etcd.stop();
    await fs.rm(folder, { recursive: true, force: true });
  };
  try {
    await etcd.start();
    await apiServer.start();
    const certificateAuthority = await fs.readFile(join(certificates, "apiserver.crt"), "utf8");
    const kubeconfig = join(folder, "kubeconfig");
    await fs.writeFile(kubeconfig, kubeconfigText(url, certificateAuthority, token), { mode: 0o600 });
    const access = { url, kubeconfig, token, certificateAuthority, auditLog };
    return { access, folder, etcd, apiServer, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

const etcdArguments = (folder: string, port: number): string[] => [
  `--data-dir=${join(folder, "etcd")}`,
  `--listen-client-urls=http://127.0.0.1:${port}`,
  `--advertise-client-urls=http://127.0.0.1:${port}`,
  "--listen-peer-urls=http://127.0.0.1:0",
  "--unsafe-no-fsync",
  "--log-level=warn",
];

const apiServerArguments = (options: {
  etcdPort: number;
  securePort: number;
  certificates: string;
  accountKey: string;
  tokens: string;
  url: string;
  auditLog: string;
  auditPolicy: string;
}): string[] => [
  `--etcd-servers=http://127.0.0.1:${options.etcdPort}`,
  "--bind-address=127.0.0.1",
  `--secure-port=${options.securePort}`,
  `--cert-dir=${options.certificates}`,
  `--token-auth-file=${options.tokens}`,
  "--authorization-mode=RBAC",
  "--service-cluster-ip-range=10.0.0.0/24",
  "--disable-admission-plugins=ServiceAccount",
  "--allow-privileged=true",
  `--service-account-issuer=${options.url}/`,
  `--service-account-key-file=${options.accountKey}`,
  `--service-account-signing-key-file=${options.accountKey}`,
  `--audit-log-path=${options.auditLog}`,
  `--audit-policy-file=${options.auditPolicy}`,
];

/** Audits only service accounts: tests write as the administrator, and by the thousand. */
const AUDIT_POLICY = {
  apiVersion: "audit.k8s.io/v1",
  kind: "Policy",
  omitStages: ["RequestReceived"],
  rules: [{ level: "Metadata", userGroups: ["system:serviceaccounts"] }, { level: "None" }],
};

function restartable({
  program,
  kind,
  args,
  log,
  ready,
}: {
  readonly program: string;
  readonly kind: StartedKind;
  readonly args: readonly string[];
  /** Path of the file that gets what it prints. */
  readonly log: string;
  readonly ready: () => Promise<boolean>;
}): Restartable {
  let child: ChildProcess | null = null;
  const running = () => {
    if (child === null) throw new Error(`${program} was not started`);
    return child;
  };
  return {
    process: running,
    stop: async (signal = "SIGTERM") => {
      if (child !== null) await stopProcess(child, signal, 10_000);
    },
    start: async () => {
      const output = createWriteStream(log, { flags: "a" });
      // Its own group: Ctrl-C reaches the tests first, and they stop it.
      child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], detached: true });
      endWithUs(child, "SIGTERM", kind);
      child.stdout?.pipe(output);
      child.stderr?.pipe(output);
      child.on("error", () => {});
      const deadline = Date.now() + START_TIMEOUT_MS;
      while (!(await ready())) {
        if (hasEnded(child) || Date.now() > deadline) {
          const text = await fs.readFile(log, "utf8").catch(() => "");
          await stopProcess(child, "SIGKILL", 1000);
          throw new Error(`${program} did not start:\n${text.slice(-2000)}`);
        }
        await sleep(100);
      }
    },
  };
}

async function answers(url: string, token: string | null): Promise<boolean> {
  // The certificate is made by the server itself while it starts.
  const dispatcher = new Agent({ connect: { rejectUnauthorized: false } });
  try {
    const answer = await fetch(url, {
      dispatcher,
      headers: token === null ? {} : { authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(2000),
    });
    await answer.text();
    return answer.ok;
  } catch {
    return false;
  } finally {
    await dispatcher.close();
  }
}

function kubeconfigText(url: string, certificateAuthority: string, token: string): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    "current-context": "test",
    clusters: [
      {
        name: "test",
        cluster: {
          server: url,
          "certificate-authority-data": Buffer.from(certificateAuthority).toString("base64"),
        },
      },
    ],
    users: [{ name: "admin", user: { token } }],
    contexts: [{ name: "test", context: { cluster: "test", user: "admin", namespace: "default" } }],
  });
}
