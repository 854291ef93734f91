/** Reads V8's CPU profiles: which functions the time went to. */
import { readFileSync } from "node:fs";
import { z } from "zod";

const profileSchema = z.object({
  nodes: z.array(
    z.object({
      id: z.number(),
      callFrame: z.object({ functionName: z.string(), url: z.string(), lineNumber: z.number() }),
    }),
  ),
  samples: z.array(z.number()),
  timeDeltas: z.array(z.number()),
});

export interface HotSpot {
  readonly where: string;
  /** Part of the time that was not idle, 0 to 1. */
  readonly share: number;
}

export interface Profile {
  /** By function: its own time without what it called. */
  readonly functions: readonly HotSpot[];
  /** By package, room of ours or module of Node. */
  readonly rooms: readonly HotSpot[];
}

/** What used the most time in the last `lastMs` of a profile: before that the program started and warmed up. */
export function readProfile(file: string, lastMs: number): Profile {
  const { nodes, samples, timeDeltas } = profileSchema.parse(JSON.parse(readFileSync(file, "utf8")));
  const frames = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]));
  const functions = new Map<string, number>();
  const rooms = new Map<string, number>();
  const from = timeDeltas.reduce((sum, delta) => sum + delta, 0) - lastMs * 1_000;
  let at = 0;
  for (const [n, id] of samples.entries()) {
    const delta = timeDeltas[n] ?? 0;
    const frame = frames.get(id);
    at += delta;
    if (at < from || frame === undefined || frame.functionName === "(idle)") continue;
    add(functions, placeOf(frame), delta);
    add(rooms, roomOf(frame), delta);
  }
  return { functions: ranking(functions), rooms: ranking(rooms) };
}

function add(times: Map<string, number>, where: string, delta: number): void {
  times.set(where, (times.get(where) ?? 0) + delta);
}

function ranking(times: ReadonlyMap<string, number>): HotSpot[] {
  const busy = [...times.values()].reduce((sum, time) => sum + time, 0);
  return [...times]
    .map(([where, time]) => ({ where, share: time / busy }))
    .sort((one, other) => other.share - one.share);
}

interface CallFrame {
  readonly functionName: string;
  readonly url: string;
  readonly lineNumber: number;
}

/** `name file:line`, the file from the repository's or the package's folder on. */
function placeOf({ functionName, url, lineNumber }: CallFrame): string {
  const name = functionName === "" ? "(anonymous)" : functionName;
  if (url === "") return name;
  const file = url.replace(/^.*\/node_modules\//, "").replace(/^file:.*\/(dataplane\/)/, "$1");
  return `${name} ${file}:${lineNumber + 1}`;
}

/** The package, `dataplane/` room or module of Node; native code by its name. */
function roomOf(frame: CallFrame): string {
  const place = placeOf(frame).split(" ").at(-1) ?? "";
  if (place.startsWith("dataplane/")) return place.split("/").slice(0, 2).join("/");
  if (frame.url.includes("/node_modules/")) return place.split("/")[0] ?? place;
  return frame.url === "" ? frame.functionName || "(native)" : frame.url;
}
