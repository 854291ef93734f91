/**
 * Tags that a tenant puts on its requests to group and filter its reports (rule 14.4). Pure. They are stored as text such as
 * `feature=search,team=ml`, sorted by name, so that the same tags in another order are the same group.
 */
import { ApiError } from "./api-error.ts";

export interface Tag {
  readonly name: string;
  readonly value: string;
}

export const MAX_TAGS = 8;
/** Characters of one tag, including the `=`. */
export const MAX_TAG_LENGTH = 64;

const namePattern = /^[\w.:/-]+$/;
/** Printable ASCII: a header cannot carry anything else safely. */
const valuePattern = /^[\x20-\x7e]+$/;

/** Reads and normalizes tags. @param param name of the header or field, for the error. @throws ApiError 400 naming it. */
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

/** The tags as an object. @param text as returned by `readTags`. */
export function tagsOf(text: string): Record<string, string> {
  if (text === "") return {};
  return Object.fromEntries(
    text.split(",").map((tag): [string, string] => {
      const split = tag.indexOf("=");
      return [tag.slice(0, split), tag.slice(split + 1)];
    }),
  );
}
