/** What stands beyond the gateway in a soak: two upstreams that tell each request by its marker, an engine, and pages. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { searxng, slow } from "../fakes/engines/engines.ts";
import { answer, FakeSite } from "../fakes/pages/site.ts";
import type { ReadRequest } from "../fakes/upstream/read-request.ts";
import type { Part, Step } from "../fakes/upstream/script.ts";
import type { LoggedRequest } from "../fakes/upstream/request-log.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { LAST_ITERATION_OUTPUT, outputOf } from "./judge.ts";
import type { Call } from "./log.ts";
import { upstreamFaults, type UpstreamFaultName } from "./plan.ts";

const PAGE = `<html><head><title>Gates</title></head><body><article><h1>Gates</h1><p>${"A gate is open. ".repeat(30)}</p></article></body></html>`;
/** In a storm, of each upstream's calls. */
const FAULTED_SHARE = 0.5;
const ENGINE_HANGS_MS = 60_000;

/** What a client asks for, and how an upstream tells whom it answers. */
export const question = (marker: number, more = ""): string => `marker ${marker} ${more}`.trim();
/** One word, so that a stream has it in one event. */
export const answerText = (marker: number): string => `answer-${marker}:`;

export class Provider {
  upstreams: readonly FakeUpstream[] = [];
  readonly calls = new Map<number, Call[]>();
  /** What happens to half of all calls. */
  storm: UpstreamFaultName | null = null;
  engineMode: "works" | "fails" | "hangs" = "works";
  #engine!: FakeSite;
  readonly #random: () => number;

  private constructor(random: () => number) {
    this.#random = random;
  }

  static async open(random: () => number): Promise<Provider> {
    const provider = new Provider(random);
    const fallback = (request: ReadRequest, logged: LoggedRequest) => provider.#answer(request, logged);
    provider.upstreams = [await startUpstream({ fallback }), await startUpstream({ fallback })];
    const search = searxng([{ url: "https://gates.example/", title: "Gates", text: "about gates" }])[
      "/search"
    ];
    const fail = answer('{"error":"oops"}', { "content-type": "application/json" }, 500);
    provider.#engine = await FakeSite.start({
      "/search": (request: IncomingMessage, response: ServerResponse) => {
        const page = { works: search, fails: fail, hangs: slow(fail, ENGINE_HANGS_MS) }[provider.engineMode];
        page?.(request, response);
      },
      "/page": answer(PAGE),
    });
    return provider;
  }

  get engine(): string {
    return `http://127.0.0.1:${this.enginePort}`;
  }

  get enginePort(): number {
    return this.#engine.port;
  }

  get pageUrl(): string {
    return `${this.engine}/page`;
  }

  /** Forgets what nobody asks for: the bodies of requests, and what the engine was asked. */
  trim(): void {
    for (const { requests } of this.upstreams) requests.length = 0;
    this.#engine.asked.length = 0;
  }

  async close(): Promise<void> {
    await Promise.all([...this.upstreams.map((upstream) => upstream.close()), this.#engine.stop()]);
  }

  #answer(request: ReadRequest, logged: LoggedRequest): Step {
    const marker = Number(/marker (\d+)/.exec(request.question)?.[1] ?? 0);
    const fault = this.storm !== null && this.#random() < FAULTED_SHARE ? this.storm : null;
    const { step, output } = this.#step(request, marker);
    const call: Call = { marker, fault, output, ended: () => logged.outcome };
    this.calls.set(marker, [...(this.calls.get(marker) ?? []), call]);
    if (fault === null) return step;
    const how = upstreamFaults[fault];
    if (!("status" in how)) return { ...step, faults: { ...step.faults, ...how } };
    return { error: { status: how.status, message: "the account of provider-org-secret at 10.0.0.7" } };
  }

  #step({ tools, rounds }: ReadRequest, marker: number): { readonly step: Step; readonly output: number } {
    const tool = tools.find(({ name }) => name === "web_search" || name === "web_fetch");
    const all = outputOf(marker);
    if (tool !== undefined && rounds === 0) {
      const input = tool.name === "web_search" ? { query: "gates" } : { url: this.pageUrl };
      const parts: Part[] = [{ type: "tool", name: tool.name, input }];
      const output = all - LAST_ITERATION_OUTPUT;
      return { step: { answer: { parts, usage: { input: 1, output } } }, output };
    }
    const output = tool === undefined ? all : LAST_ITERATION_OUTPUT;
    // One in five streams for seconds, so that faults meet it.
    const long = marker % 5 === 0;
    const text = `${answerText(marker)} ${"one two three four five six ".repeat(long ? 10 : 1)}`;
    const faults = { delayBetweenEventsMs: long ? 70 : 3 };
    return {
      step: { answer: { parts: [{ type: "text", text }], usage: { input: 1, output } }, faults },
      output,
    };
  }
}
