/** Markdown as a tree of tokens. Uses no DOM and makes no markup. */
import { Lexer, type Token } from "marked";

/** Deepest level that is parsed; deeper text stays plain: nobody reads it, and each level costs a pass and a piece of the stack. */
const MOST_LEVELS = 24;

/** Bounds the depth, as a model may nest quotes, lists or emphasis a hundred thousand levels deep (rule 11.4). */
class ShallowLexer extends Lexer {
  #level = 0;

  override blockTokens<Tokens extends Token[]>(src: string, tokens?: Tokens, isClipped?: boolean): Tokens {
    return this.#nested(src, tokens, () => super.blockTokens(src, tokens, isClipped)) as Tokens;
  }

  override inlineTokens(src: string, tokens?: Token[]): Token[] {
    return this.#nested(src, tokens, () => super.inlineTokens(src, tokens));
  }

  #nested(src: string, tokens: Token[] = [], read: () => Token[]): Token[] {
    if (this.#level === MOST_LEVELS) {
      tokens.push({ type: "text", raw: src, text: src });
      return tokens;
    }
    this.#level += 1;
    try {
      return read();
    } finally {
      this.#level -= 1;
    }
  }
}

export const readMarkdown = (text: string): readonly Token[] => new ShallowLexer().lex(text);
