/**
 * Citations of the texts of a Responses upstream's stream: they come in events of their own, or with what closes their
 * part, also behind the event that tells the text wholly. So long a text stays open.
 */
import type { CodecContext } from "../codecs.ts";
import type { BlockOrder, Piece } from "../block-order.ts";
import type { JsonObject, JsonValue } from "../messages/types.ts";
import { partCitations } from "./read-response.ts";

/** Events after the end of a text that may tell its citations. */
const tellsCitations: ReadonlySet<string> = new Set([
  "response.output_text.annotation.added",
  "response.content_part.done",
  "response.output_item.done",
  "response.completed",
  "response.incomplete",
]);

export class PartCitations {
  readonly #blocks: BlockOrder;
  readonly #context: Pick<CodecContext, "annotations">;
  /** A text that is told wholly, whose citations its part may still tell. */
  #said: Piece | null = null;

  constructor(blocks: BlockOrder, context: Pick<CodecContext, "annotations">) {
    this.#blocks = blocks;
    this.#context = context;
  }

  /** An event of this type comes. */
  before(type: string): void {
    if (this.#said !== null && !tellsCitations.has(type)) this.#end(this.#said);
  }

  /** One that comes before any text of its part is left out. @param piece the part's text. */
  add(piece: Piece | undefined, annotation: JsonValue): void {
    if (piece !== undefined)
      this.#blocks.cite(piece, partCitations({ annotations: [annotation] }, this.#context));
  }

  /** The text is told wholly. */
  said(piece: Piece): void {
    if (this.#context.annotations === true) this.#said = piece;
    else this.#blocks.end(piece);
  }

  /** The part of a text is over, whose citations it tells, or none: what no event told of them is told now. */
  end(piece: Piece, part: JsonObject | null): void {
    this.#blocks.cite(piece, partCitations(part, this.#context).slice(piece.citations));
    this.#end(piece);
  }

  #end(piece: Piece): void {
    if (this.#said === piece) this.#said = null;
    this.#blocks.end(piece);
  }
}
