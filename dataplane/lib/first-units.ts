/** The first `most` UTF-16 units of a text at the most, never half a character. A slice: it keeps the whole text in memory. */
export function firstUnits(text: string, most: number): string {
  if (text.length <= most) return text;
  const last = text.charCodeAt(most - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? most - 1 : most);
}

/** At most `limit` UTF-16 units, an ellipsis in place of the last where there were more; never half a character. */
export const shortened = (text: string, limit: number): string =>
  text.length <= limit ? text : `${firstUnits(text, limit - 1)}…`;
