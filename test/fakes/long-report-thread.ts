/** Makes a long report in a thread of its own, whose heap is bounded, and tells how many bytes it has. */
import { parentPort, workerData } from "node:worker_threads";
import { jsonInSlices } from "../../dataplane/lib/json-slices.ts";
import { longReports, longRows, poolOf } from "./long-reports.ts";

const report = longReports[workerData as keyof typeof longReports];
const pieces: Buffer[] = [];
for await (const piece of jsonInSlices(await report(poolOf(longRows)), 5)) pieces.push(piece);
parentPort?.postMessage(pieces.reduce((sum, { length }) => sum + length, 0));
