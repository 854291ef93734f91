/** JSON of other services that has no reason to be large. Pure. */
import { JsonFault, JsonReader } from "./json-reader.ts";

/** Most values of a text; a search engine's ten results have a thousand or two. Parsing many more, keys above all, would hold up other requests. */
const MAX_VALUES = 10_000;

/** Why a text is not read. */
export class SmallJsonFault extends Error {
  constructor(why: string, cause?: unknown) {
    super(why, { cause });
    this.name = "SmallJsonFault";
  }
}

/** Parses a text of at most a few megabytes. @throws SmallJsonFault for what is no JSON, nested too deep or of too many values */
export function parseSmallJson(bytes: Buffer): unknown {
  const reader = new JsonReader(bytes);
  try {
    reader.skip();
    reader.end();
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
    throw new SmallJsonFault(`not readable as JSON: ${fault.message}`, fault);
  }
  if (reader.containers + reader.commas > MAX_VALUES)
    throw new SmallJsonFault(`JSON of more than ${MAX_VALUES} values`);
  return JSON.parse(bytes.toString("utf8"));
}
