/**
 * Joins the texts of all iterations of a tool loop for a Chat client, who sees no tools: one blank line between
 * them, whatever newlines stand at their edges, and nothing for an iteration without text (service.md
 * "Citations in Responses and Chat"; rule 3.12). Works piece by piece, so that a stream and a whole answer read the same.
 *
 *   writing ──tool──> between ──text──> writing
 *
 * While writing, newlines at the end are held back: they may turn out to be an edge.
 */
const LEADING = /^[\r\n]+/;
const TRAILING = /[\r\n]+$/;

export class TextJoiner {
  #held = "";
  #between = false;
  #said = false;

  /** What may be said now that this text came. */
  push(text: string): string {
    let rest = this.#held + text;
    if (this.#between) {
      rest = text.replace(LEADING, "");
      if (rest === "") return "";
      this.#between = false;
      if (this.#said) rest = `\n\n${rest}`;
    }
    const edge = TRAILING.exec(rest);
    this.#held = edge === null ? "" : edge[0];
    const said = edge === null ? rest : rest.slice(0, edge.index);
    this.#said ||= said !== "";
    return said;
  }

  /** A server tool was called: the iteration's text is over. */
  toolRan(): void {
    this.#held = "";
    this.#between = true;
  }

  /** What is left to say at the end of the answer. */
  end(): string {
    const rest = this.#held;
    this.#held = "";
    return rest;
  }
}
