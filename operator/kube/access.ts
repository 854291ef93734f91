/**
 * Where the API server is and how we authenticate to it. Of client-node only `KubeConfig` is used: it knows every way
 * to find and authenticate to a cluster. Its own calls open a connection for each request, and its informers end for
 * good at the first reset (client-node 2.0.1). Each reading is whole, every file that is named included, because any
 * of them may be replaced while we run.
 */
import type { RequestOptions } from "node:https";
import { KubeConfig } from "@kubernetes/client-node";

export interface Access {
  /** Without a trailing slash. */
  readonly url: string;
  /** An HTTP proxy on the way. */
  readonly proxy: string | null;
  /** Value of the `authorization` header; null: none is sent, a client certificate may identify us. */
  readonly authorization: string | null;
  /** Authority, certificate and key as PEM texts, and the other TLS options. */
  readonly tls: Pick<RequestOptions, "ca" | "cert" | "key" | "servername" | "rejectUnauthorized">;
  /** How long this may be used before it is read again, because credentials are renewed. */
  readonly freshForMs: number;
}

/** Credential files are renewed well before their content expires. */
const FRESH_MS = 60_000;

/**
 * Reads the access from a kubeconfig file; an empty name stands for the pod's own account.
 * @throws when the file or one that it names cannot be read, or its plugin fails.
 */
export async function readAccess(kubeconfig: string): Promise<Access> {
  const config = new KubeConfig();
  if (kubeconfig === "") config.loadFromCluster();
  else loadFile(config, kubeconfig);
  return accessOf(config);
}

function loadFile(config: KubeConfig, file: string): void {
  try {
    config.loadFromFile(file);
  } catch (error) {
    // The first line only, and none of its quotes: the others show the place in the file, where secrets may stand.
    const [line = ""] = (error instanceof Error ? error.message : String(error)).split("\n");
    const reason = line.replaceAll(/(["'`]).*\1/g, "…");
    throw new Error(`the kubeconfig ${file} cannot be read: ${reason}`, { cause: error });
  }
}

/** Reads the access from a configuration as it is at this moment. */
export async function accessOf(config: KubeConfig): Promise<Access> {
  const cluster = config.getCurrentCluster();
  if (cluster === null) throw new Error("the kubeconfig has no current cluster");
  const proxy = cluster.proxyUrl ?? null;
  if (proxy !== null && !/^https?:/.test(proxy))
    throw new Error("proxy-url in the kubeconfig: only http and https are supported");
  const options: RequestOptions = {};
  await config.applyToHTTPSOptions(options);
  const { ca, cert, key, servername, rejectUnauthorized } = options;
  const tls = Object.entries({ ca, cert, key, servername, rejectUnauthorized })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [name, Buffer.isBuffer(value) ? value.toString() : value]);
  return {
    url: cluster.server.replace(/\/$/, ""),
    proxy,
    authorization: authorizationOf(options),
    tls: Object.fromEntries(tls) as Access["tls"],
    freshForMs: FRESH_MS,
  };
}

function authorizationOf({ headers, auth }: RequestOptions): string | null {
  const header = new Headers(headers as Record<string, string>).get("authorization");
  if (header !== null) return header;
  return typeof auth === "string" ? `Basic ${Buffer.from(auth).toString("base64")}` : null;
}
