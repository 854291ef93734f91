/**
 * Completes a JSON text that was cut off: closes the open string, objects and arrays, and drops a key without a value and a
 * number or literal that may be incomplete. A text that is not JSON does not become JSON.
 */
export function closedJson(begun: string): string {
  /** Closing brackets of the open objects and arrays, the outermost first. */
  const open: string[] = [];
  /** Length of the text up to its last whole value. */
  let safe = 0;
  /** The last character outside strings that is not white space. */
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

/** @returns `end` of the string that begins at `from`; `whole`, if it was cut: end of its last whole character, else null. */
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
