/** The data plane's seal key: a Secret that is made once and never changed (design.md §7). */
import { randomBytes } from "node:crypto";
import { isStatus, type KubeApi } from "./client.ts";
import { secretPath } from "./secret.ts";

/** Creates the seal key, never over another: what was sealed must open again. @returns whether it was created now. */
export async function createSealKey(
  api: KubeApi,
  namespace: string,
  snapshotName: string,
  permit: () => void,
): Promise<boolean> {
  const name = `${snapshotName}-seal`;
  const text = `k1:${randomBytes(32).toString("base64")}`;
  try {
    await api.call({
      method: "POST",
      path: secretPath(namespace),
      body: {
        apiVersion: "v1",
        kind: "Secret",
        type: "Opaque",
        metadata: { name, namespace, labels: { "app.kubernetes.io/managed-by": "gapura-operator" } },
        data: { "seal-keys": Buffer.from(text).toString("base64") },
      },
      permit,
    });
    return true;
  } catch (error) {
    if (isStatus(error, 409)) return false;
    throw error;
  }
}
