import { metrics } from "../../dataplane/telemetry/metrics.ts";

/** Returns how many requests were counted as refused for a reason. */
export async function refusedFor(reason: string): Promise<number> {
  const { values } = await metrics.refused.get();
  return values.find(({ labels }) => labels.reason === reason)?.value ?? 0;
}
