/** The operator's environment in a cluster (service.md "Environment of the operator"), read once by `main.ts`. */
import { z } from "zod";
import { isNamespaceName, NAMESPACE_FORM, objectName } from "./api/fields.ts";
import { LABEL_MAX_LENGTH } from "./api/labels.ts";
import { labelSelector } from "./kube/label-selector.ts";

const LOG_LEVELS = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

export const operatorEnvironmentSchema = z.object({
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
export type OperatorEnvironment = z.infer<typeof operatorEnvironmentSchema>;

/** @returns the environment, or a line for each variable that is missing or wrong; never with a value. */
export function readOperatorEnvironment(
  variables: Readonly<Record<string, string | undefined>>,
): { readonly environment: OperatorEnvironment } | { readonly faults: readonly string[] } {
  // An empty variable counts as absent: charts and shells set such. One of nothing but white space is a mistake.
  const given = new Map(Object.entries(variables).filter(([, value = ""]) => value !== ""));
  const read = operatorEnvironmentSchema.safeParse(Object.fromEntries(given));
  const faults = new Map(read.error?.issues.map(({ path, message }) => [path.join("."), message]));
  for (const name of Object.keys(operatorEnvironmentSchema.shape))
    if (given.get(name)?.trim() === "" && !faults.has(name)) faults.set(name, "is blank");
  if (read.success && faults.size === 0) return { environment: read.data };
  return {
    faults: Array.from(faults, ([name, fault]) => `${name}: ${given.has(name) ? fault : "is missing"}`),
  };
}
