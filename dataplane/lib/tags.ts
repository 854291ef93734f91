/**
 * A tenant's own marks on its requests, by which its reports are grouped and filtered (rule 14.4). Pure. They are kept as
 * text, `feature=search,team=ml`: in the order of their names, so that two ways to write the same tags are one group.
 */
import { ApiError } from "./api-error.ts";

export interface Tag {
  readonly name: string;
  readonly value: string;
}

export const MAX_TAGS = 8;
/** Characters of one tag, its `=` with them. */
export const MAX_TAG_LENGTH = 64;

const namePattern = /^[\w.:/-]+$/;
/** Printable ASCII: a header carries nothing else unharmed. */
const valuePattern = /^[\x20-\x7e]+$/;

/** @param param where the text stands, for the error. @throws ApiError 400 naming it. */
export function readTags(text: string, param: string): string {
  const tags = text.split(",").map((part) => part.trim());
  if (tags.length === 1 && tags[0] === "") return "";
  const refuse = (problem: string) => new ApiError("invalid_value", `${param}: ${problem}`, { param });
  if (tags.length > MAX_TAGS) throw refuse(`at most ${MAX_TAGS} tags are allowed.`);
  const values = new Map<string, string>();
  for (const tag of tags) {
    if (tag.length > MAX_TAG_LENGTH) throw refuse(`a tag has at most ${MAX_TAG_LENGTH} characters.`);
    const [, name, value] = /^([^=]*)=(.*)$/.exec(tag) ?? [];
    if (name === undefined || value === undefined || !isTag({ name, value }))
      throw refuse(
        "tags are written as name=value,name=value; a name is of letters, digits and _ . : / -, a value of printable ASCII.",
      );
    if (values.has(name)) throw refuse(`${name} is there twice.`);
    values.set(name, value);
  }
  return Array.from(values, ([name, value]) => `${name}=${value}`)
    .sort()
    .join(",");
}

export const isTagName = (name: string): boolean => namePattern.test(name) && name.length < MAX_TAG_LENGTH;

const isTag = ({ name, value }: Tag): boolean => isTagName(name) && valuePattern.test(value);

/** The values of tags by their names. @param text as `readTags` made it. */
export function tagsOf(text: string): Record<string, string> {
  if (text === "") return {};
  return Object.fromEntries(
    text.split(",").map((tag): [string, string] => {
      const split = tag.indexOf("=");
      return [tag.slice(0, split), tag.slice(split + 1)];
    }),
  );
}
