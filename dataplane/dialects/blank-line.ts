/**
 * Returns `text` as it follows a separate text `before`: with a blank line between them, as between the iterations of
 * an answer (rule 3.12).
 * @param before undefined: no text stands before it.
 */
export function behindBlankLine(before: string | undefined, text: string): string {
  if (before === undefined) return text;
  const ending = before.endsWith("\n\n") ? 2 : before.endsWith("\n") ? 1 : 0;
  const beginning = text.startsWith("\n\n") ? 2 : text.startsWith("\n") ? 1 : 0;
  return "\n".repeat(Math.max(0, 2 - ending - beginning)) + text;
}
