/** Counts the code points of a slice; a lone surrogate counts as one. */
export function codePoints(text: string, start = 0, end = text.length): number {
  let count = 0;
  for (let index = start; index < end; index += 1) {
    const unit = text.charCodeAt(index);
    if (isHighHalf(unit) && index + 1 < end && isLowHalf(text.charCodeAt(index + 1))) index += 1;
    count += 1;
  }
  return count;
}

/** Counts the code points of a text in pieces, which may divide a surrogate pair. */
export class CodePointCount {
  value = 0;
  #last = NaN;

  add(piece: string): void {
    if (piece === "") return;
    this.value += codePoints(piece);
    if (isHighHalf(this.#last) && isLowHalf(piece.charCodeAt(0))) this.value -= 1;
    this.#last = piece.charCodeAt(piece.length - 1);
  }
}

const isHighHalf = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff;
const isLowHalf = (unit: number): boolean => unit >= 0xdc00 && unit <= 0xdfff;
