/** Writes events of a Responses stream as bytes: each one's name is its type, and they are numbered from 0 (dialects.md §C3). */
import type { ApiError } from "../../lib/api-error.ts";
import { responsesErrorEvent } from "../errors.ts";
import type { JsonObject } from "../messages/types.ts";

export class NumberedEvents {
  #sequence = 0;

  write(type: string, fields: object): string {
    const data = JSON.stringify({ type, sequence_number: this.#sequence++, ...fields });
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
