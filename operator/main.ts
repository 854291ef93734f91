/**
 * The operator. With `--manifests DIR --out DIR --data DIR [--ack URL]` and the flags of a tenancy it compiles a folder
 * and watches it (design.md §2, one machine); without arguments it runs in a cluster, set up by its environment (design.md §7).
 */
import { parseArgs } from "node:util";
import { setFlagsFromString } from "node:v8";
import { z } from "zod";
import { isNamespaceName, NAMESPACE_FORM, objectName } from "./api/fields.ts";
import { runFolder } from "./folder/run.ts";
import { LABEL_MAX_LENGTH } from "./api/labels.ts";
import { labelSelector } from "./kube/label-selector.ts";
import {
  readNamespaces,
  readTenancy,
  TENANCY_USAGE,
  type Tenancy,
  tenancyFlags,
  tenancyOfFlags,
} from "./plan/tenancy.ts";

const usage = `usage: operator/main.ts [--manifests DIR --out DIR --data DIR [--ack URL] ${TENANCY_USAGE}]`;

const LOG_LEVELS = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

const environmentSchema = z.object({
  KUBECONFIG: z.string().default(""),
  /** Set in every pod; read where there is no KUBECONFIG. */
  KUBERNETES_SERVICE_HOST: z.string().default(""),
  POD_NAMESPACE: z.string().refine(isNamespaceName, `must be a name of ${NAMESPACE_FORM}`),
  POD_NAME: objectName(),
  DATA_PLANE_SELECTOR: labelSelector().default(
    "app.kubernetes.io/name=gapura,app.kubernetes.io/component=data-plane",
  ),
  OPS_PORT: z
    .string()
    .refine(
      (text) => /^\d{1,5}$/.test(text) && Number(text) <= 65_535,
      "must be a whole number from 0 to 65535",
    )
    .transform(Number)
    .default(9091),
  /** Prefix of the names of Secrets and lease, and the value of a label. */
  SNAPSHOT_NAME: objectName().max(LABEL_MAX_LENGTH).default("gapura"),
  SEAL_SECRET: z.literal("").or(objectName()).default(""),
  /** `readNamespaces` and `readTenancy` judge these. */
  WATCH_NAMESPACES: z.string().default(""),
  TENANCY: z.string().optional(),
  PLATFORM_NAMESPACES: z.string().optional(),
  QUOTA_OBJECTS: z.string().optional(),
  QUOTA_BYTES: z.string().optional(),
  LOG_LEVEL: z.enum(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(", ")}`).default("info"),
});

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
  // An empty variable counts as absent: charts and shells set such. One of nothing but white space is a mistake.
  const given = new Map(Object.entries(process.env).filter(([, value = ""]) => value !== ""));
  const read = environmentSchema.safeParse(Object.fromEntries(given));
  const faults = new Map(read.error?.issues.map(({ path, message }) => [path.join("."), message]));
  for (const name of Object.keys(environmentSchema.shape))
    if (given.get(name)?.trim() === "" && !faults.has(name)) faults.set(name, "is blank");
  for (const [name, fault] of faults)
    process.stderr.write(`operator: ${name}: ${given.has(name) ? fault : "is missing"}\n`);
  if (!read.success || faults.size > 0) process.exit(2);
  const environment = read.data;
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
