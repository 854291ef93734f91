/**
 * Citations of the texts in a Responses upstream's stream come in events of their own, or in the event that closes
 * their part, also after the one with the whole text. Until then a text stays open.
 */
import type { CodecContext } from "../codecs.ts";
import { BLOCK_CHARACTERS, type BlockOrder, type Piece } from "../block-order.ts";
import { CITATIONS_MAX, lengthOfCitations } from "../url-citations.ts";
import type { JsonObject, JsonValue, UrlCitation } from "../messages/types.ts";
import { partCitations } from "./read-response.ts";

/** Events after a whole text that may hold its citations. */
const tellsCitations: ReadonlySet<string> = new Set([
  "response.output_text.annotation.added",
  "response.content_part.done",
  "response.output_item.done",
  "response.completed",
  "response.incomplete",
]);

interface PartPlace {
  readonly output: number;
  readonly content: number;
}

const keyOf = ({ output, content }: PartPlace): string => `${output} ${content}`;

export class PartCitations {
  readonly #blocks: BlockOrder;
  readonly #context: Pick<CodecContext, "annotations">;
  /** Citations of parts without a text so far, by output and content index. */
  readonly #early = new Map<string, UrlCitation[]>();
  /** A text that came whole, whose part may still hold citations. */
  #said: Piece | null = null;

  constructor(blocks: BlockOrder, context: Pick<CodecContext, "annotations">) {
    this.#blocks = blocks;
    this.#context = context;
  }

  /** Ends a whole text before an event that holds no citations. */
  before(type: string): void {
    if (this.#said !== null && !tellsCitations.has(type)) this.#end(this.#said);
  }

  /** @param piece the part's text, if it has any yet. */
  add(piece: Piece | undefined, place: PartPlace, annotation: JsonValue): void {
    const cited = partCitations({ annotations: [annotation] }, this.#context);
    if (piece !== undefined) return this.#blocks.cite(piece, cited);
    if (cited.length === 0) return;
    const known = this.#early.get(keyOf(place));
    const early = known ?? [];
    this.#blocks.hold(lengthOfCitations(cited) + (known === undefined ? BLOCK_CHARACTERS : 0));
    if (early.length < CITATIONS_MAX) early.push(...cited);
    this.#early.set(keyOf(place), early);
  }

  /** Adds the citations that came before the part's text. */
  begun(piece: Piece, place: PartPlace): void {
    this.#blocks.cite(piece, this.#early.get(keyOf(place)) ?? []);
    this.#early.delete(keyOf(place));
  }

  said(piece: Piece): void {
    if (this.#context.annotations === true) this.#said = piece;
    else this.#blocks.end(piece);
  }

  /** Ends the text of a part, and adds those citations of the part that came in no event. */
  end(piece: Piece, part: JsonObject | null): void {
    this.late(piece, part);
    this.#end(piece);
  }

  /** Adds those citations of a part that came in no event; its text may have ended. */
  late(piece: Piece, part: JsonObject | null): void {
    this.#blocks.cite(piece, partCitations(part, this.#context).slice(piece.citations));
  }

  #end(piece: Piece): void {
    if (this.#said === piece) this.#said = null;
    this.#blocks.end(piece);
  }
}
