/**
 * Joins the texts of all iterations of a tool loop for a Chat client, who sees no tools: one blank line between
 * them, whatever blank lines stand at their edges, and nothing for an iteration of white space alone (service.md
 * "Citations in Responses and Chat"; rule 3.12). Works piece by piece, so that a stream and a whole answer read the same.
 *
 *   waiting ──words──> writing ──tool──> waiting
 *
 * While waiting, white space is held back; while writing, white space at the end from its first line break on: it may
 * turn out to be an edge. The very first and last white space of an answer is no edge, and stays.
 */
export class TextJoiner {
  /** Held-back text, of white space alone. */
  #held = "";
  #writing = false;
  #afterTool = false;
  #said = false;

  /** Takes a text and returns what can be passed on. */
  push(text: string): string {
    if (text.trim() === "" && (this.#held !== "" || !this.#writing)) {
      this.#held += text;
      return "";
    }
    const rest = this.#writing ? this.#held + text : this.#begin(this.#held + text);
    const edge = trailingEdge(rest);
    this.#held = rest.slice(edge);
    return rest.slice(0, edge);
  }

  /** Ends the text of an iteration, whose server tool was called. */
  toolRan(): void {
    this.#held = "";
    this.#writing = false;
    this.#afterTool = true;
  }

  /** Returns the text that is left at the end of the answer. */
  end(): string {
    const rest = this.#afterTool && !this.#writing ? "" : this.#held;
    this.#held = "";
    return rest;
  }

  /** Begins the text of an iteration, at its first words. */
  #begin(text: string): string {
    const separator = this.#afterTool && this.#said ? "\n\n" : "";
    this.#writing = true;
    this.#said = true;
    return separator + (this.#afterTool ? text.slice(leadingEdge(text)) : text);
  }
}

/** Index at which the first line with words begins. */
function leadingEdge(text: string): number {
  const blank = text.slice(0, text.length - text.trimStart().length);
  return Math.max(blank.lastIndexOf("\n"), blank.lastIndexOf("\r")) + 1;
}

/** Index at which the last line with words ends. */
function trailingEdge(text: string): number {
  const end = text.trimEnd().length;
  const lineBreak = text.slice(end).search(/[\r\n]/);
  return lineBreak === -1 ? text.length : end + lineBreak;
}
