/** What a check is, and what it may do: ask within the budget, and say what it found. */
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import type { FakeUpstream } from "../fakes/upstream/server.ts";
import type { Answer, Client, Question } from "./client.ts";
import type { Form } from "./forms/form.ts";

/** `official`: the vendor's own API does so. `ours`: what Gapura promises beyond it. */
export type Rule = "official" | "ours";

export const subjects = [
  "shapes",
  "streams",
  "errors",
  "headers",
  "models",
  "tools",
  "usage",
  "limits",
  "cancellation",
  "slow readers",
  "odd bytes",
  "upstream faults",
  "admin",
] as const;

export interface Check {
  /** Within its dialect: `whole-shape`. */
  readonly name: string;
  readonly subject: (typeof subjects)[number];
  readonly rule: Rule;
  /** What has to hold, as a sentence of the documentation. */
  readonly says: string;
  /** Absent: all three. */
  readonly dialects?: readonly Dialect[];
  /** What must be there: our scripted upstream behind the gateway, its own address, an admin key. */
  readonly needs?: "scripted" | "upstream" | "admin";
  /** Takes seconds by its nature. */
  readonly slow?: true;
  run(probe: Probe): Promise<void>;
}

export interface Fault {
  readonly text: string;
  /** What was asked when it was seen. */
  readonly question: Question;
}

/** Ends a check that cannot be made here. */
export class Skipped extends Error {}

/** The log of a scripted upstream, in this process or over its control paths. */
export type UpstreamLog = () => Promise<
  readonly Pick<FakeUpstream["requests"][number], "text" | "outcome">[]
>;

export interface Ground {
  readonly client: Client;
  readonly form: Form;
  readonly model: string;
  readonly judge: (type: string, value: unknown) => string[];
  readonly scripted: boolean;
  readonly upstream: UpstreamLog | null;
  readonly adminKey: string | null;
  /** Answers that several checks look at: asked once for each body. */
  readonly samples: Map<string, Promise<Answer>>;
}

/** Status 0: the client left before an answer. */
function succeeded(answer: Answer): Answer {
  if (answer.status !== 200 && answer.status !== 0) throw new Skipped(`answered with ${answer.status}`);
  return answer;
}

/** One check at work. */
export class Probe {
  readonly ground: Ground;
  readonly faults: Fault[] = [];
  /** The newest question. */
  last: Question | null = null;
  readonly #signal: AbortSignal;

  constructor(ground: Ground, signal: AbortSignal) {
    this.ground = ground;
    this.#signal = signal;
  }

  get form(): Form {
    return this.ground.form;
  }

  get model(): string {
    return this.ground.model;
  }

  /** @throws Skipped when the budget does not reach. */
  ask(question: Question): Promise<Answer> {
    this.last = question;
    return this.ground.client.ask(question, this.#signal);
  }

  /** A POST of the dialect. */
  post(body: object, more: Partial<Question> = {}): Promise<Answer> {
    return this.ask(this.form.question({ model: this.model, ...body }, more));
  }

  /** The same, asked once for all checks; what did not come with status 200 is for `answered` to tell, and skipped here. */
  async sample(body: object): Promise<Answer> {
    const key = JSON.stringify([this.form.dialect, this.model, body]);
    let answer = this.ground.samples.get(key);
    if (answer === undefined) {
      answer = this.post(body);
      this.ground.samples.set(key, answer);
      // What broke off is asked again by the next check.
      answer.catch(() => this.ground.samples.delete(key));
    }
    return answer;
  }

  /** A sample that has to be there for a check to look at. */
  async good(body: object): Promise<Answer> {
    return succeeded(await this.sample(body));
  }

  /** The same for a request that is asked anew. */
  async goodPost(body: object, more: Partial<Question> = {}): Promise<Answer> {
    return succeeded(await this.post(body, more));
  }

  fault(text: string, { question }: Pick<Answer, "question">): void {
    if (!this.faults.some((known) => known.text === text)) this.faults.push({ text, question });
  }

  expect(holds: boolean, text: string, answer: Pick<Answer, "question">): void {
    if (!holds) this.fault(text, answer);
  }
}
