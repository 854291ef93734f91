/** Chooses what a scripted upstream answers (the order stands in server.ts). */
import { demoStep } from "./demo.ts";
import type { ReadRequest } from "./read-request.ts";
import type { Replay } from "./replay.ts";
import type { LoggedRequest } from "./request-log.ts";
import type { Step } from "./script.ts";

/** What answers the requests with one model name: one step, steps in turn of which the last repeats, or what a function says. */
export type Script =
  | Step
  | readonly Step[]
  | ((request: ReadRequest, logged: LoggedRequest) => Step | Promise<Step>);

/** What answers a request for which no script is there. */
export interface ChoiceOptions {
  /** Answers what no script answers; default: the demo model. */
  readonly fallback?: (request: ReadRequest, logged: LoggedRequest) => Step;
  readonly replay?: Replay;
}

export class StepChoice {
  readonly #options: ChoiceOptions;
  readonly #queue: Step[] = [];
  readonly #byModel = new Map<string, Script>();
  /** Requests of each model that were answered out of a list. */
  readonly #turns = new Map<string, number>();

  constructor(options: ChoiceOptions) {
    this.#options = options;
  }

  /** How many answers are queued. */
  get queued(): number {
    return this.#queue.length;
  }

  next(steps: readonly Step[]): void {
    this.#queue.push(...steps);
  }

  model(name: string, script: Script): void {
    this.#byModel.set(name, script);
    this.#turns.delete(name);
  }

  choose(read: ReadRequest, logged: LoggedRequest): Step | Promise<Step> {
    const queued = this.#queue.shift();
    if (queued !== undefined) return queued;
    const script = this.#byModel.get(read.model);
    if (typeof script === "function") return script(read, logged);
    if (Array.isArray(script)) {
      const turn = this.#turns.get(read.model) ?? 0;
      this.#turns.set(read.model, turn + 1);
      const step = (script as readonly Step[])[Math.min(turn, script.length - 1)];
      if (step !== undefined) return step;
    } else if (script !== undefined) {
      return script as Step;
    }
    const replayed = this.#options.replay?.find(logged);
    if (replayed !== undefined) return replayed;
    return (this.#options.fallback ?? demoStep)(read, logged);
  }

  reset(): void {
    this.#queue.length = 0;
    this.#byModel.clear();
    this.#turns.clear();
  }
}
