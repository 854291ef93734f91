/**
 * The operator. With `--manifests DIR --out DIR --data DIR [--ack URL]` it compiles a folder and watches it
 * (design.md §2, one machine).
 */
import { parseArgs } from "node:util";
import { runFolder } from "./folder/run.ts";

const usage = "usage: operator/main.ts --manifests DIR --out DIR --data DIR [--ack URL]\n";

const { values } = parseArgs({
  options: {
    manifests: { type: "string" },
    out: { type: "string" },
    data: { type: "string" },
    ack: { type: "string" },
  },
});
const { manifests, out, data, ack } = values;
if (manifests === undefined || out === undefined || data === undefined) {
  process.stderr.write(usage);
  process.exit(2);
}

const stop = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) process.on(name, () => stop.abort());
try {
  await runFolder(
    {
      manifests,
      out,
      data,
      ack: ack ?? null,
      print: (line) => process.stdout.write(`${line}\n`),
      now: () => Date.now(),
    },
    stop.signal,
  );
} catch (error) {
  process.stderr.write(`operator: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}
