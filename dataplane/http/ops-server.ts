/** The ops port: for the kubelet, the operator and Prometheus; never exposed to clients (design.md §7). */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Logger } from "pino";
import { shownRouting } from "../config/dump.ts";
import { ACCEPTED_SCHEMA_VERSIONS, type ConfigStatus } from "../config/schema.ts";
import type { SnapshotLoader } from "../config/load.ts";
import { inBackground } from "../lib/in-background.ts";
import { wordsOf } from "../lib/words-of.ts";
import type { Degraded } from "../store/ready.ts";
import { metrics, registry } from "../telemetry/metrics.ts";
import { OPEN_METRICS_TYPE, openMetricsOf, takesOpenMetrics } from "../telemetry/open-metrics.ts";
import { pathOf } from "./error-style.ts";
import { openApiDocument } from "./openapi/document.ts";
import { apiPage } from "./openapi/page.ts";

/** One thing that must be well before this process may get requests. */
export interface ReadinessCheck {
  readonly name: string;
  /**
   * Returns null when well, what is wrong in a few words, or a fault that does not prevent serving. Gives up when `signal`
   * aborts.
   */
  run(signal: AbortSignal): Promise<string | Degraded | null>;
}

/** A process that does not serve yet. */
export interface Starting {
  readonly waitsFor: string;
}

/** A process that serves. */
export interface OpsNeeds {
  readonly podUid: string;
  readonly loader: Pick<SnapshotLoader, "current" | "rejected">;
  readonly checks: readonly ReadinessCheck[];
  readonly draining: () => boolean;
  /** Objects of the snapshot that this process has taken over: Organizations only once they are copied into Postgres. */
  readonly acknowledged: () => ConfigStatus["objects"];
  /** Objects whose present generation is not taken. */
  readonly refused?: () => NonNullable<ConfigStatus["refused"]>;
  /** Organization ids that the namespace owning them does not declare; undefined: not known for the served snapshot. */
  readonly owned?: () => ConfigStatus["owners"];
}

export type ProcessPhase = Starting | OpsNeeds;

const CHECK_TIMEOUT_MS = 1500;
/** Probes within this time share one run of the checks. */
const CHECK_AGE_MS = 500;

export function createOpsServer(log: Logger, phase: () => ProcessPhase): Server {
  const findings = rememberFor(CHECK_AGE_MS, async () => {
    const now = phase();
    return "waitsFor" in now ? [stillStarting(now)] : await readFindings(now);
  });
  const serving = (tell: (needs: OpsNeeds) => Answer) => () => {
    const now = phase();
    return "waitsFor" in now ? notYet(now) : tell(now);
  };
  const answers: Record<string, (request: IncomingMessage) => Promise<Answer> | Answer> = {
    "/healthz": () => ({ status: 200, text: "ok\n" }),
    "/readyz": async ({ url = "" }) =>
      readinessOf(await findings(), new URLSearchParams(url.slice(pathOf(url).length)).getAll("exclude")),
    "/metrics": async ({ headers }) => {
      countFindings(await findings());
      return takesOpenMetrics(headers.accept)
        ? { status: 200, text: await openMetricsOf(registry), type: OPEN_METRICS_TYPE }
        : { status: 200, text: await registry.metrics(), type: registry.contentType };
    },
    "/openapi.json": () => json(openApiDocument()),
    "/api": () => ({ status: 200, text: apiPage(), type: "text/html; charset=utf-8" }),
    "/config/status": serving((needs) => json(statusOf(needs))),
    "/config/dump": serving(({ loader: { current } }) =>
      current === null
        ? { status: 503, text: "no configuration is loaded\n" }
        : json({ index: current.index, routing: shownRouting(current.routing) }),
    ),
  };
  const server = createServer({ headersTimeout: 5000, requestTimeout: 10_000 }, (request, response) => {
    inBackground(respond(request, response, answers, log), log, "answering a probe");
  });
  server.maxConnections = 200;
  return server;
}

interface Answer {
  readonly status: number;
  /** With 405: the methods that are allowed. */
  readonly allow?: string;
  readonly text: string;
  readonly type?: string;
}

const json = (value: unknown): Answer => ({
  status: 200,
  text: `${JSON.stringify(value)}\n`,
  type: "application/json",
});

const stillStarting = ({ waitsFor }: Starting): Finding => ({
  name: "serving",
  found: `starting, waits for ${waitsFor.slice(0, 200)}`,
});

const notYet = (starting: Starting): Answer => readinessOf([stillStarting(starting)], []);

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  answers: Readonly<Record<string, (request: IncomingMessage) => Promise<Answer> | Answer>>,
  log: Logger,
): Promise<void> {
  const path = pathOf(request.url ?? "/");
  const answer = Object.hasOwn(answers, path) ? answers[path] : undefined;
  let result: Answer;
  if (request.method !== "GET" && request.method !== "HEAD")
    result = { status: 405, allow: "GET, HEAD", text: "only GET\n" };
  else if (answer === undefined) result = { status: 404, text: `${Object.keys(answers).join(" ")}\n` };
  else {
    try {
      result = await answer(request);
    } catch (error) {
      log.error({ err: error, path }, "the ops port failed");
      result = { status: 500, text: "failed\n" };
    }
  }
  response.writeHead(result.status, {
    "content-type": result.type ?? "text/plain; charset=utf-8",
    "content-length": Buffer.byteLength(result.text),
    "cache-control": "no-store",
    ...(result.allow === undefined ? {} : { allow: result.allow }),
  });
  response.end(request.method === "HEAD" ? undefined : result.text);
}

function statusOf({ loader, podUid, acknowledged, refused, owned }: OpsNeeds): ConfigStatus {
  const owners = owned?.();
  const refusals = refused?.() ?? [];
  const index = loader.current?.index;
  return {
    hash: index?.hash ?? null,
    serial: index?.serial ?? null,
    podUid,
    accepts: [...ACCEPTED_SCHEMA_VERSIONS],
    rejected: loader.rejected,
    objects: acknowledged(),
    ...(refusals.length === 0 ? {} : { refused: refusals }),
    ...(owners === undefined ? {} : { owners }),
  };
}

/** What a check of readiness found: null when well, what is wrong, or a fault that does not prevent serving. */
interface Finding {
  readonly name: string;
  readonly found: string | Degraded | null;
}

/** 200 when no check fails but those that are `excluded`; the body names what fails or is degraded, these too. */
function readinessOf(findings: readonly Finding[], excluded: readonly string[]): Answer {
  let ready = true;
  const lines = findings.map(({ name, found }) => {
    if (found === null) return `ok ${name}`;
    if (typeof found !== "string") return `ok ${name}: ${found.degraded}`;
    if (excluded.includes(name)) return `ok ${name}: excluded: ${found}`;
    ready = false;
    return `FAIL ${name}: ${found}`;
  });
  return { status: ready ? 200 : 503, text: `${lines.join("\n")}\n` };
}

/** Also what prevents nothing counts, and what a probe excludes: somebody has to look at it. */
function countFindings(findings: readonly Finding[]): void {
  for (const { name, found } of findings) metrics.ready.set({ check: name }, found === null ? 1 : 0);
}

async function readFindings(needs: OpsNeeds): Promise<readonly Finding[]> {
  const signal = AbortSignal.timeout(CHECK_TIMEOUT_MS);
  const checked = needs.checks.map(async (check) => ({
    name: check.name,
    found: await runCheck(check, signal),
  }));
  return [
    { name: "serving", found: needs.draining() ? "draining" : null },
    { name: "configuration", found: needs.loader.current === null ? "no snapshot is loaded" : null },
    ...(await Promise.all(checked)),
  ];
}

async function runCheck(check: ReadinessCheck, signal: AbortSignal): Promise<string | Degraded | null> {
  const { promise, resolve } = Promise.withResolvers<string>();
  signal.addEventListener("abort", () => resolve("no answer in time"), { once: true });
  try {
    return await Promise.race([check.run(signal), promise]);
  } catch (error) {
    return wordsOf(error).slice(0, 200);
  }
}

/** Shares one run among all callers until `ageMs` after its end. */
function rememberFor<Value>(ageMs: number, run: () => Promise<Value>): () => Promise<Value> {
  let running: Promise<Value> | null = null;
  return () => {
    if (running === null) {
      const started = run();
      running = started;
      const forget = () => {
        setTimeout(() => {
          if (running === started) running = null;
        }, ageMs).unref();
      };
      // The callers get a failure too.
      started.then(forget, forget);
    }
    return running;
  };
}
