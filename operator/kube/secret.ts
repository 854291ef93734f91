/** Secrets of the API server, as they are read whole. */
import { z } from "zod";
import { isStatus, type KubeApi } from "./client.ts";
import { metadataSchema } from "./informer.ts";

export const secretSchema = z.looseObject({
  metadata: metadataSchema,
  data: z.record(z.string(), z.string()).default({}),
  immutable: z.boolean().optional(),
});
export type Secret = z.infer<typeof secretSchema>;

export const secretPath = (namespace: string, name?: string): string =>
  `/api/v1/namespaces/${namespace}/secrets${name === undefined ? "" : `/${name}`}`;

/** Reads a Secret; null: there is none. */
export async function readSecret(api: KubeApi, namespace: string, name: string): Promise<Secret | null> {
  try {
    return secretSchema.parse(await api.call({ method: "GET", path: secretPath(namespace, name) }));
  } catch (error) {
    if (isStatus(error, 404)) return null;
    throw error;
  }
}
