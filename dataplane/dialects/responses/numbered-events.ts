/** Writes events of a Responses stream as bytes: each one's name is its type, and they are numbered from 0 (dialects.md §C3). */
import type { ApiError } from "../../lib/api-error.ts";
import { responsesErrorEvent } from "../errors.ts";
import type { JsonObject } from "../messages/types.ts";

/** A longer text, which several events tell, becomes JSON only once: eight megabytes take some forty milliseconds (rule 7.3). */
const LONG_TEXT = 64 * 1024;
const MARK_END = ";";

export class NumberedEvents {
  #sequence = 0;
  /** Long texts as JSON, by the index in what stands for each of them. */
  readonly #long: string[] = [];
  /** Begins what stands for a long text. */
  #mark = "";
  /** By how many characters the JSON of the long texts is longer than they are. */
  escapedCharacters = 0;

  /**
   * Returns what stands for a text that several events tell: a mark for a long one, which `json` replaces; else itself.
   * @param newMark makes what begins a mark: nobody can foresee it, so that no text holds it.
   */
  textFor(text: string, newMark: () => string): string {
    if (text.length <= LONG_TEXT) return text;
    if (this.#mark === "") this.#mark = `${newMark()}:`;
    const json = JSON.stringify(text);
    this.#long.push(json);
    this.escapedCharacters += json.length - text.length;
    return `${this.#mark}${this.#long.length - 1}${MARK_END}`;
  }

  /** Writes JSON with the long texts in place of what stands for them. */
  json(value: object): string {
    const json = JSON.stringify(value);
    if (this.#long.length === 0) return json;
    const [first = "", ...marked] = json.split(`"${this.#mark}`);
    return marked.reduce((written, piece) => {
      const end = piece.indexOf(MARK_END);
      return `${written}${this.#long[Number(piece.slice(0, end))]}${piece.slice(end + 2)}`;
    }, first);
  }

  write(type: string, fields: object): string {
    const data = this.json({ type, sequence_number: this.#sequence++, ...fields });
    return `event: ${type}\ndata: ${data}\n\n`;
  }

  /** @param head the response in its first state. */
  begin(head: JsonObject): string {
    return (
      this.write("response.created", { response: head }) +
      this.write("response.in_progress", { response: head })
    );
  }

  end(response: { readonly status: "completed" | "incomplete" }): string {
    return this.write(`response.${response.status}`, { response });
  }

  /** Writes a delta, the frequent event, from its constant part (`wirePlace`) and its one string. */
  delta(type: string, place: string, delta: string, tail = "}"): string {
    return `event: ${type}\ndata: {"type":"${type}","sequence_number":${this.#sequence++},${place},"delta":${JSON.stringify(delta)}${tail}\n\n`;
  }

  fail(error: ApiError): string {
    return responsesErrorEvent(error, this.#sequence++);
  }
}

/** Returns a place's fields as JSON without the braces around them. */
export const wirePlace = (place: object): string => JSON.stringify(place).slice(1, -1);
