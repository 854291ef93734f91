/**
 * Where the API server is and how we authenticate to it: from a kubeconfig file, or from the pod's own account. Each
 * reading is whole, every file that is named included, because any of them may be replaced while we run. (The
 * KubeConfig of `@kubernetes/client-node` brings generated models of 85 MiB into memory.)
 */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { isIPv6 } from "node:net";
import { dirname, resolve } from "node:path";
import { promisify } from "node:util";
import { parse } from "yaml";
import { z } from "zod";

export interface Access {
  /** Without a trailing slash. */
  readonly url: string;
  /** An HTTP proxy on the way. */
  readonly proxy: string | null;
  /** Of the same name's header; null: there is none, a client certificate may tell who we are. */
  readonly authorization: string | null;
  readonly tls: TlsFiles;
  /** So long it counts; what is renewed is read again afterwards. */
  readonly freshForMs: number;
}

/** PEM texts and what else is asked of TLS. */
export interface TlsFiles {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly servername?: string;
  readonly rejectUnauthorized?: boolean;
}

/** Files are renewed well before what stands in them ends. */
const FRESH_MS = 60_000;
const PLUGIN_TIMEOUT_MS = 30_000;
const ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount";

/** The pod's own account. `folder`: where its token and authority lie. */
export async function readAccount(host: string, port: number, folder = ACCOUNT_FOLDER): Promise<Access> {
  const read = (name: string) => readFile(resolve(folder, name), "utf8");
  const [token, ca] = await Promise.all([read("token"), read("ca.crt")]);
  return {
    url: `https://${isIPv6(host) ? `[${host}]` : host}:${port}`,
    proxy: null,
    authorization: `Bearer ${token.trim()}`,
    tls: { ca },
    freshForMs: FRESH_MS,
  };
}

const clusterSchema = z.looseObject({
  server: z.string(),
  "certificate-authority": z.string().optional(),
  "certificate-authority-data": z.string().optional(),
  "insecure-skip-tls-verify": z.boolean().optional(),
  "tls-server-name": z.string().optional(),
  "proxy-url": z.string().optional(),
});
const pluginSchema = z.looseObject({
  apiVersion: z.string(),
  command: z.string(),
  args: z.array(z.string()).nullish(),
  env: z.array(z.object({ name: z.string(), value: z.string() })).nullish(),
});
type Plugin = z.infer<typeof pluginSchema>;
const userSchema = z.looseObject({
  token: z.string().optional(),
  tokenFile: z.string().optional(),
  username: z.string().optional(),
  password: z.string().optional(),
  "client-certificate": z.string().optional(),
  "client-certificate-data": z.string().optional(),
  "client-key": z.string().optional(),
  "client-key-data": z.string().optional(),
  exec: pluginSchema.optional(),
});
type User = z.infer<typeof userSchema>;
const configSchema = z.looseObject({
  "current-context": z.string(),
  contexts: z.array(
    z.looseObject({
      name: z.string(),
      context: z.looseObject({ cluster: z.string(), user: z.string().optional() }),
    }),
  ),
  clusters: z.array(z.looseObject({ name: z.string(), cluster: clusterSchema })),
  users: z.array(z.looseObject({ name: z.string(), user: userSchema.nullish() })).nullish(),
});

/**
 * `environment`: what a plugin that the file names runs in.
 * @throws when the file or one that it names cannot be read, or its plugin fails.
 */
export async function readKubeconfig(
  file: string,
  environment: Readonly<Record<string, string | undefined>>,
): Promise<Access> {
  const config = configSchema.parse(parse(await readFile(file, "utf8")));
  const context = byName(config.contexts, config["current-context"], "context").context;
  const { cluster } = byName(config.clusters, context.cluster, "cluster");
  const user =
    context.user === undefined ? {} : (byName(config.users ?? [], context.user, "user").user ?? {});
  if ("auth-provider" in user)
    throw new Error("auth-provider in the kubeconfig is not supported; a plugin (exec) takes its place");
  const proxy = cluster["proxy-url"] ?? null;
  if (proxy !== null && !/^https?:/.test(proxy))
    throw new Error("proxy-url in the kubeconfig: only http and https are supported");

  const folder = dirname(file);
  const ca = await content(folder, cluster["certificate-authority-data"], cluster["certificate-authority"]);
  const plugin = user.exec === undefined ? null : await runPlugin(user.exec, folder, environment);
  const cert =
    plugin?.cert ?? (await content(folder, user["client-certificate-data"], user["client-certificate"]));
  const key = plugin?.key ?? (await content(folder, user["client-key-data"], user["client-key"]));
  const servername = cluster["tls-server-name"];
  return {
    url: cluster.server.replace(/\/$/, ""),
    proxy,
    authorization: await authorizationOf(user, plugin?.token, folder),
    tls: {
      ...(ca === undefined ? {} : { ca }),
      ...(cert === undefined ? {} : { cert }),
      ...(key === undefined ? {} : { key }),
      ...(servername === undefined ? {} : { servername }),
      ...(cluster["insecure-skip-tls-verify"] === true ? { rejectUnauthorized: false } : {}),
    },
    freshForMs: plugin?.freshForMs ?? FRESH_MS,
  };
}

function byName<Named extends { readonly name: string }>(
  list: readonly Named[],
  name: string,
  what: string,
): Named {
  const found = list.find((entry) => entry.name === name);
  if (found === undefined) throw new Error(`the kubeconfig has no ${what} "${name}"`);
  return found;
}

/** Inline data go before a file, as in kubectl. */
async function content(
  folder: string,
  data: string | undefined,
  file: string | undefined,
): Promise<string | undefined> {
  if (data !== undefined) return Buffer.from(data, "base64").toString();
  return file === undefined ? undefined : readFile(resolve(folder, file), "utf8");
}

async function authorizationOf(
  user: User,
  pluginToken: string | undefined,
  folder: string,
): Promise<string | null> {
  const { tokenFile, username, password } = user;
  const inFile = tokenFile === undefined ? undefined : await readFile(resolve(folder, tokenFile), "utf8");
  const token = inFile?.trim() ?? user.token ?? pluginToken;
  if (token !== undefined) return `Bearer ${token}`;
  if (username === undefined) return null;
  return `Basic ${Buffer.from(`${username}:${password ?? ""}`).toString("base64")}`;
}

const credentialSchema = z.looseObject({
  status: z.looseObject({
    token: z.string().optional(),
    clientCertificateData: z.string().optional(),
    clientKeyData: z.string().optional(),
    expirationTimestamp: z.string().optional(),
  }),
});

/** Runs a credential plugin (client.authentication.k8s.io). Without an end its answer counts until it is refused. */
async function runPlugin(
  { apiVersion, command, args, env }: Plugin,
  folder: string,
  environment: Readonly<Record<string, string | undefined>>,
) {
  const info = { apiVersion, kind: "ExecCredential", spec: { interactive: false } };
  const own = (env ?? []).map(({ name, value }) => [name, value] as const);
  const program = command.includes("/") ? resolve(folder, command) : command;
  const { stdout } = await promisify(execFile)(program, args ?? [], {
    env: { ...environment, KUBERNETES_EXEC_INFO: JSON.stringify(info), ...Object.fromEntries(own) },
    timeout: PLUGIN_TIMEOUT_MS,
  });
  const { status } = credentialSchema.parse(JSON.parse(stdout));
  const end = Date.parse(status.expirationTimestamp ?? "");
  return {
    token: status.token,
    cert: status.clientCertificateData,
    key: status.clientKeyData,
    freshForMs: Number.isFinite(end) ? end - Date.now() : Infinity,
  };
}
