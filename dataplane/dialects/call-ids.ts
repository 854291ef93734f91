/** The ids of an answer's tool calls (rule 2.8). */
import { aliasOfId } from "./alias.ts";
import type { CodecContext } from "./codecs.ts";
import { textOf } from "./fields.ts";

/** Gives the calls of one answer their ids. */
export class CallIds {
  readonly #context: CodecContext;
  readonly #prefix: "call" | "toolu";
  readonly #given = new Set<string>();

  /** @param prefix of the ids that are made */
  constructor(context: CodecContext, prefix: "call" | "toolu" = "call") {
    this.#context = context;
    this.#prefix = prefix;
  }

  /**
   * Returns the upstream's id where every dialect takes it, else its alias; a new id where there is none or where an
   * earlier call has it: some engines give all calls one id, and their results could not be told apart.
   */
  of(upstreams: unknown): string {
    const given = textOf(upstreams);
    const known = given === null ? null : aliasOfId(given);
    const id = known === null || this.#given.has(known) ? this.#context.newId(this.#prefix) : known;
    this.#given.add(id);
    return id;
  }

  /** Whether a call has this id of the upstream's. */
  has(upstreams: string): boolean {
    return this.#given.has(aliasOfId(upstreams));
  }
}
