/**
 * Answers, one concept a file. `answers/NAME.json` is what an upstream says, whole and streamed; what a client of
 * each dialect then gets stands beside it: `NAME.DIALECT.json` and `NAME.DIALECT.sse`. Add a file, get a case;
 * `npm test -- golden -u` writes the expectations.
 */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Annotate, Carry, SseEvent } from "../../../dataplane/dialects/codecs.ts";
import { dialects } from "../../../dataplane/dialects/dialect.ts";
import type { Dialect } from "../../../dataplane/dialects/dialect.ts";
import type { JsonObject, JsonValue } from "../../../dataplane/dialects/messages/types.ts";
import { ApiError } from "../../../dataplane/lib/api-error.ts";
import { CitedSources, linkCitations } from "../../../dataplane/tools/links.ts";
import { accumulated } from "../../grammar/sdk-judges.ts";
import { convertStream, convertWhole, faultsOf, testCarry } from "../../grammar/convert.ts";

/** A case, as its file has it. */
interface Case {
  /** What it shows. */
  readonly about: string;
  /** The upstream's dialect. */
  readonly from: Dialect;
  /** The client's request, as far as its answer echoes or obeys it. */
  readonly request?: JsonObject;
  readonly serverTools?: boolean;
  readonly aliases?: Record<string, string>;
  readonly namespaces?: Record<string, { namespace: string; name: string }>;
  /** What the tools found: links to these are cited. */
  readonly sources?: { url: string; title: string | null }[];
  /** The upstream's whole answer. */
  readonly whole?: JsonObject;
  /** The data of the upstream's events. */
  readonly stream?: (JsonObject | string)[];
  /** The stream ends in the in-band error. */
  readonly fails?: boolean;
}

const folder = join(import.meta.dirname, "answers");
const names = readdirSync(folder)
  .filter((file) => /^[^.]+\.json$/.test(file))
  .map((file) => file.replace(".json", ""));
const expected = (file: string) => join(folder, file);
const pretty = (value: JsonValue) => `${JSON.stringify(value, null, 2)}\n`;

function carryOf(golden: Case, to: Dialect): Carry {
  return testCarry(to, golden.request ?? {}, {
    serverTools: golden.serverTools ?? false,
    aliases: new Map(Object.entries(golden.aliases ?? {})),
    namespaces: new Map(to === "responses" ? Object.entries(golden.namespaces ?? {}) : []),
  });
}

function annotateFrom(golden: Case): Annotate | undefined {
  if (golden.sources === undefined) return undefined;
  const sources = new CitedSources();
  for (const source of golden.sources) sources.add({ ...source, text: "" });
  return (text) =>
    linkCitations(text, sources).map(({ startIndex, endIndex, url, title }) => ({
      start_index: startIndex,
      end_index: endIndex,
      url,
      title,
    }));
}

function events(golden: Case): SseEvent[] {
  return (golden.stream ?? []).map((data) =>
    typeof data === "string"
      ? { event: "", data }
      : { event: typeof data["type"] === "string" ? data["type"] : "", data: JSON.stringify(data) },
  );
}

function wholeOrError(golden: Case, carry: Carry): JsonObject {
  try {
    return convertWhole(golden.from, golden.whole ?? {}, carry, annotateFrom(golden));
  } catch (error) {
    if (error instanceof ApiError) return { error: error.code, message: error.message };
    throw error;
  }
}

describe.each(names)("%s", (name) => {
  const golden = JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8")) as Case;

  const given = (part: "whole" | "stream") => (golden[part] === undefined ? [] : dialects);

  test.each(given("whole"))("whole, for a %s client", async (to) => {
    const body = pretty(wholeOrError(golden, carryOf(golden, to)));
    await expect(body).toMatchFileSnapshot(expected(`${name}.${to}.json`));
  });

  test.each(given("stream"))("streamed, to a %s client", async (to) => {
    const carry = carryOf(golden, to);
    const { bytes, terminal } = convertStream(golden.from, events(golden), carry, annotateFrom(golden));
    expect(faultsOf(bytes + terminal, carry, golden.fails === true ? "error" : "end")).toEqual([]);
    await expect(bytes + terminal).toMatchFileSnapshot(expected(`${name}.${to}.sse`));
    const judged = accumulated[to](bytes + terminal);
    // What the official SDK makes of it: a whole answer, or an error that it throws.
    expect(await judged.then(() => "answer", () => "error")).toBe(golden.fails === true ? "error" : "answer");
  });
});
