/**
 * The beginning of a JSON text, as a JSON text: the string that was cut is closed, and so is all that stands around it; a
 * key without its value and a number or word that may go on are left out. Of what is no JSON comes none either.
 */
export function closedJson(begun: string): string {
  /** What closes the objects and arrays that are open, the outermost first. */
  const open: string[] = [];
  /** So much of the text is whole values and what stands around them. */
  let safe = 0;
  /** The last character outside of strings that was no white space. */
  let before = "";
  for (let at = 0; at < begun.length; at += 1) {
    const character = begun.charAt(at);
    switch (character) {
      case '"': {
        const isKey = open.at(-1) === "}" && before !== ":";
        const { end, whole } = afterString(begun, at + 1);
        if (!isKey && whole !== null) return `${begun.slice(0, whole)}"${closing(open)}`;
        if (whole === null && !isKey) safe = end;
        at = end - 1;
        break;
      }
      case "{":
      case "[":
        open.push(character === "{" ? "}" : "]");
        safe = at + 1;
        break;
      case "}":
      case "]":
        open.pop();
        safe = at + 1;
        break;
      case ",":
        safe = at;
    }
    if (character.trim() !== "") before = character;
  }
  return begun.slice(0, safe) + closing(open);
}

const closing = (open: readonly string[]): string => open.toReversed().join("");

/** @returns where the string from there ends, and for one that was cut how much of the text are whole characters of it. */
function afterString(text: string, from: number): { readonly end: number; readonly whole: number | null } {
  let at = from;
  while (at < text.length) {
    const character = text.charAt(at);
    if (character === '"') return { end: at + 1, whole: null };
    const length = character !== "\\" ? 1 : text.charAt(at + 1) === "u" ? 6 : 2;
    if (at + length > text.length) return { end: text.length, whole: at };
    at += length;
  }
  return { end: text.length, whole: at };
}
