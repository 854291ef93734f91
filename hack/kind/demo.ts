/** What the demo manifests point at, for a cluster: listens on every address. */
import { startDemoUpstream } from "../demo.ts";

const upstream = await startDemoUpstream({ host: "0.0.0.0", port: Number(process.env["PORT"] || "9400") });
process.stdout.write(`listening on ${upstream.port}\n`);
for (const signal of ["SIGTERM", "SIGINT"] as const)
  process.once(signal, () => void upstream.close().then(() => process.exit(0)));
