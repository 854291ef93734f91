import { setImmediate } from "node:timers/promises";

/**
 * Batches the questions of one turn of the event loop: one statement instead of one for each caller.
 */
export class Gathered<Question, Answer> {
  readonly #ask: (questions: readonly Question[]) => Promise<Answer>;
  readonly #most: number;
  #open: { readonly questions: Question[]; readonly answer: Promise<Answer> } | null = null;

  /** @param most questions in one batch. */
  constructor(ask: (questions: readonly Question[]) => Promise<Answer>, most: number) {
    this.#ask = ask;
    this.#most = most;
  }

  /** @returns the answer to the whole batch that the question is in. @throws what `ask` throws. */
  ask(question: Question): Promise<Answer> {
    if (this.#open === null || this.#open.questions.length >= this.#most) {
      const questions: Question[] = [];
      this.#open = { questions, answer: this.#askLater(questions) };
    }
    const { questions, answer } = this.#open;
    questions.push(question);
    return answer;
  }

  async #askLater(questions: readonly Question[]): Promise<Answer> {
    await setImmediate();
    if (this.#open?.questions === questions) this.#open = null;
    return this.#ask(questions);
  }
}
