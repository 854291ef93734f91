/**
 * The neighbour: another organization's client, in a process of its own, that asks for something small every 50 ms and
 * notes how long each answer takes. It first tells its parent the address of its upstream, which it is itself, then is
 * told whom to ask (`Start`), and from then on answers each `report` with what it has seen since the last one.
 */
import { Agent, request } from "node:http";
import { startSink } from "./sink.ts";

/** What the neighbour is to ask for, and where. */
export interface Start {
  readonly port: number;
  readonly key: string;
  readonly model: string;
}

export interface NeighbourReport {
  /** Milliseconds from sending to the end of the answer, one for each answer, and for each that never came. */
  readonly latenciesMs: readonly number[];
  /** How many answers were not 200, by what they were. */
  readonly faults: Readonly<Record<string, number>>;
}

const EVERY_MS = 50;
const TIMEOUT_MS = 60_000;

const agent = new Agent({ keepAlive: true, maxSockets: 256 });

let latenciesMs: number[] = [];
let faults: Record<string, number> = {};
/** When each request that is under way was sent. */
const running = new Set<{ readonly at: number }>();

function ask({ port, key, model }: Start): void {
  const body = JSON.stringify({ model, max_tokens: 16, messages: [{ role: "user", content: "hello" }] });
  const sent = { at: performance.now() };
  running.add(sent);
  const over = (what: string) => {
    if (!running.delete(sent)) return;
    latenciesMs.push(performance.now() - sent.at);
    if (what !== "200") faults[what] = (faults[what] ?? 0) + 1;
  };
  const call = request({
    agent,
    host: "127.0.0.1",
    port,
    method: "POST",
    path: "/v1/messages",
    timeout: TIMEOUT_MS,
    headers: { "content-type": "application/json", "content-length": body.length, "x-api-key": key },
  });
  call.on("timeout", () => call.destroy(new Error("time-out")));
  call.on("error", (error: NodeJS.ErrnoException) => over(error.code ?? error.message));
  call.on("response", (response) => {
    response.on("end", () => over(String(response.statusCode)));
    response.on("error", () => over("cut"));
    response.resume();
  });
  call.end(body);
}

function report(): NeighbourReport {
  // What has not come yet has taken that long already.
  const now = performance.now();
  const late = Array.from(running, ({ at }) => now - at).filter((ms) => ms > EVERY_MS);
  const seen = { latenciesMs: [...latenciesMs, ...late], faults };
  latenciesMs = [];
  faults = {};
  return seen;
}

process.on("message", (told: Start | "report") => {
  if (told === "report") process.send?.(report());
  else setInterval(ask, EVERY_MS, told);
});
process.on("disconnect", () => process.exit(0));
const { url } = await startSink();
process.send?.(url);
