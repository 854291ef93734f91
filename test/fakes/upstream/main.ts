/**
 * The scripted upstream as a process: `node test/fakes/upstream/main.ts [--port N] [--pace-ms N] [--replay FOLDER]`.
 * Prints `listening http://127.0.0.1:PORT`; ends on SIGTERM, SIGINT, or when its input closes (its parent died).
 */
import { parseArgs } from "node:util";
import { readReplay } from "./replay.ts";
import { startUpstream } from "./server.ts";

const { values } = parseArgs({
  options: {
    port: { type: "string", default: "0" },
    "pace-ms": { type: "string", default: "0" },
    replay: { type: "string" },
  },
});

const upstream = await startUpstream({
  port: Number(values.port),
  paceMs: Number(values["pace-ms"]),
  createdAt: Math.floor(Date.now() / 1000),
  ...(values.replay === undefined ? {} : { replay: readReplay(values.replay) }),
});
process.stdout.write(`listening ${upstream.url}\n`);

const stop = () => void upstream.close().then(() => process.exit(0));
process.on("SIGTERM", stop);
process.on("SIGINT", stop);
process.stdin.on("end", stop);
process.stdin.on("error", stop);
process.stdin.resume();
