/**
 * The operator. With `--manifests DIR --out DIR --data DIR [--ack URL]` it compiles a folder and watches it
 * (design.md §2, one machine).
 */
import { parseArgs } from "node:util";
import { runFolder } from "./folder/run.ts";

const { manifests, out, data, ack } = readOptions();

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

function readOptions(): { manifests: string; out: string; data: string; ack: string | undefined } {
  try {
    const { values } = parseArgs({
      options: {
        manifests: { type: "string" },
        out: { type: "string" },
        data: { type: "string" },
        ack: { type: "string" },
      },
    });
    const { manifests: from, out: to, data: kept, ack: url } = values;
    if (from === undefined || to === undefined || kept === undefined)
      throw new Error("--manifests, --out and --data are needed");
    return { manifests: from, out: to, data: kept, ack: url };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const usage = "usage: operator/main.ts --manifests DIR --out DIR --data DIR [--ack URL]";
    process.stderr.write(`operator: ${message}\n${usage}\n`);
    process.exit(2);
  }
}
