/**
 * The operator. With `--manifests DIR --out DIR --data DIR [--ack URL]` and the flags of a tenancy it compiles a folder
 * and watches it (design.md §2, one machine); without arguments it runs in a cluster, set up by its environment (design.md §7).
 */
import { parseArgs } from "node:util";
import { setFlagsFromString } from "node:v8";
import { readOperatorEnvironment } from "./environment.ts";
import { runFolder } from "./folder/run.ts";
import {
  readNamespaces,
  readTenancy,
  TENANCY_USAGE,
  type Tenancy,
  tenancyFlags,
  tenancyOfFlags,
} from "./plan/tenancy.ts";

const usage = `usage: operator/main.ts [--manifests DIR --out DIR --data DIR [--ack URL] ${TENANCY_USAGE}]`;

const stop = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) process.on(name, () => stop.abort());
const now = () => Date.now();
try {
  const folder = readOptions();
  if (folder === null) await runInCluster();
  else {
    const print = (line: string) => process.stdout.write(`${line}\n`);
    await runFolder({ ...folder, print, now }, stop.signal);
  }
} catch (error) {
  process.stderr.write(`operator: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}

async function runInCluster(): Promise<void> {
  const read = readOperatorEnvironment(process.env);
  if ("faults" in read) {
    for (const fault of read.faults) process.stderr.write(`operator: ${fault}\n`);
    process.exit(2);
  }
  const { environment } = read;
  const tenancy = readTenancy(
    {
      tenancy: environment.TENANCY,
      platformNamespaces: environment.PLATFORM_NAMESPACES,
      quotaObjects: environment.QUOTA_OBJECTS,
      quotaBytes: environment.QUOTA_BYTES,
    },
    environment.POD_NAMESPACE,
  );
  const watchNamespaces = readNamespaces("WATCH_NAMESPACES", environment.WATCH_NAMESPACES);
  // By default V8 collects only when garbage is several times the live heap. Growing by half costs an edit among
  // 10,000 routes no time, and sets larger clusters no limit (docs/decisions/performance.md).
  setFlagsFromString("--heap-growing-percent=50");
  // The folder form does not pay for loading a Kubernetes client.
  const [{ pino }, { readAccess }, { runCluster }] = await Promise.all([
    import("pino"),
    import("./kube/access.ts"),
    import("./kube/run.ts"),
  ]);
  const { KUBECONFIG: file, KUBERNETES_SERVICE_HOST: host } = environment;
  if (file === "" && host === "") throw new Error("neither KUBECONFIG nor a pod's own account is there");
  // Credentials that cannot be read at all end the start.
  await readAccess(file);
  await runCluster(
    {
      readAccess: () => readAccess(file),
      namespace: environment.POD_NAMESPACE,
      podName: environment.POD_NAME,
      watchNamespaces,
      tenancy,
      dataPlaneSelector: environment.DATA_PLANE_SELECTOR,
      snapshotName: environment.SNAPSHOT_NAME,
      sealSecret: environment.SEAL_SECRET === "" ? null : environment.SEAL_SECRET,
      opsPort: environment.OPS_PORT,
      log: pino({
        level: environment.LOG_LEVEL,
        base: null,
        timestamp: pino.stdTimeFunctions.isoTime,
        formatters: { level: (label) => ({ level: label }) },
      }),
      now,
    },
    stop.signal,
  );
  process.exit(0);
}

/** Reads the flags; null: there are none. */
function readOptions(): {
  manifests: string;
  out: string;
  data: string;
  ack: string | null;
  tenancy: Tenancy;
} | null {
  const { values } = parse();
  if (Object.keys(values).length === 0) return null;
  const { manifests, out, data, ack } = values;
  if (manifests === undefined || out === undefined || data === undefined)
    return misused("--manifests, --out and --data belong together");
  if (ack !== undefined && !/^https?:$/.test(URL.parse(ack)?.protocol ?? ""))
    return misused("--ack must be an http or https URL");
  return { manifests, out, data, ack: ack ?? null, tenancy: tenancyOfFlags(values) };
}

function parse() {
  try {
    return parseArgs({
      options: {
        manifests: { type: "string" },
        out: { type: "string" },
        data: { type: "string" },
        ack: { type: "string" },
        ...tenancyFlags,
      },
    });
  } catch (error) {
    return misused(error instanceof Error ? error.message : String(error));
  }
}

function misused(message: string): never {
  process.stderr.write(`operator: ${message}\n${usage}\n`);
  process.exit(2);
}
