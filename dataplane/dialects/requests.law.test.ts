/** Laws of the request half, over generated conversations and over bodies that nobody would send. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { openContext, openTarget } from "../../test/fakes/request-edges.ts";
import { mappedSubset, plain } from "../../test/fakes/conversations.ts";
import { ApiError } from "../lib/api-error.ts";
import { type Dialect, dialects } from "./dialect.ts";
import { DropNotes } from "./losses.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";
import { requestCodecs } from "./request-codecs.ts";
import { runs } from "../../test/fakes/runs.ts";
import { computedMs } from "../../test/fakes/computed.ts";

function thereAndBack(body: JsonObject, through: Dialect): JsonValue {
  const there = requestCodecs.messages.readRequest(body, openContext);
  const notes = new DropNotes(true);
  const written = requestCodecs[through].writeRequest(there.request, there.carry, openTarget, notes);
  notes.judge();
  // As it would arrive over the wire.
  return plain(requestCodecs[through].readRequest(plain(written) as JsonObject, openContext).request);
}

describe("what both dialects know comes back as it was, and nothing is said to be dropped", () => {
  test("Messages → Chat → Messages", () => {
    fc.assert(
      fc.property(mappedSubset({}, true), (body) => {
        expect(thereAndBack(body, "chat")).toEqual(body);
      }),
    );
  });

  test("Messages → Responses → Messages", () => {
    fc.assert(
      fc.property(mappedSubset({ display: "summarized" }, false), (body) => {
        expect(thereAndBack(body, "responses")).toEqual(body);
      }),
    );
  });
});

const golden = join(import.meta.dirname, "../../test/golden/dialects/requests");
const examples = Object.fromEntries(
  dialects.map((dialect) => [
    dialect,
    readdirSync(join(golden, dialect))
      .filter((file) => !file.endsWith(".expected.json"))
      .map(
        (file) =>
          (JSON.parse(readFileSync(join(golden, dialect, file), "utf8")) as { request: JsonObject }).request,
      ),
  ]),
) as Record<Dialect, JsonObject[]>;

/** Replaces the node that `steps` lead to by `value`. */
function mutate(node: JsonValue, steps: readonly number[], value: JsonValue): JsonValue {
  const [first, ...rest] = steps;
  if (first === undefined || typeof node !== "object" || node === null) return value;
  if (Array.isArray(node)) {
    if (node.length === 0) return value;
    const at = first % node.length;
    return node.map((element, index) => (index === at ? mutate(element, rest, value) : element));
  }
  const keys = Object.keys(node);
  if (keys.length === 0) return value;
  const key = keys[first % keys.length] ?? "";
  return { ...node, [key]: mutate(node[key] ?? null, rest, value) };
}

const oddValue = fc.oneof(
  fc.jsonValue({ maxDepth: 2 }).map(plain),
  fc.constantFrom<JsonValue>(
    "",
    null,
    {},
    [],
    [null],
    [{}],
    { type: "text" },
    { __proto__: null, type: "x" },
    "\u0000",
    "\ud800",
  ),
);

describe.each(dialects)("a %s body with something odd in it", (client) => {
  test("is converted, or refused with the path of a field; it never crashes", () => {
    const body = fc
      .tuple(
        fc.constantFrom(...examples[client]),
        fc.array(fc.nat(20), { minLength: 1, maxLength: 7 }),
        oddValue,
      )
      .map(([example, steps, value]) => mutate(example, steps, value) as JsonObject);
    fc.assert(
      fc.property(body, fc.constantFrom(...dialects), (request, upstream) => {
        try {
          const read = requestCodecs[client].readRequest(request, openContext);
          requestCodecs[upstream].writeRequest(read.request, read.carry, openTarget, new DropNotes(false));
        } catch (error) {
          expect(error).toBeInstanceOf(ApiError);
          expect((error as ApiError).param).toBeTypeOf("string");
          expect((error as ApiError).kind.status).toBe(400);
        }
      }),
      { numRuns: runs(1500) },
    );
  });
});

describe.each(dialects)("toward a %s upstream", (upstream) => {
  /** More than a function call may have arguments. */
  const many = Array.from({ length: 150_000 }, (_, index) => `call_${index}`);
  const convert = (request: JsonObject) => {
    const read = requestCodecs.responses.readRequest(request, openContext);
    return requestCodecs[upstream].writeRequest(read.request, read.carry, openTarget, new DropNotes(false));
  };

  test("calls whose results come only at the very end are told apart in linear time", () => {
    const items = many.slice(0, 30_000).flatMap((call_id) => [
      { type: "function_call", call_id, name: "f", arguments: "{}" },
      { role: "user", content: "And?" },
    ]);
    const results = many
      .slice(0, 30_000)
      .map((call_id) => ({ type: "function_call_output", call_id, output: "" }));
    const started = computedMs();
    convert({ model: "m", input: [...items, ...results] });
    // A fraction of a second; quadratic it would be half a minute.
    expect(computedMs() - started).toBeLessThan(8_000);
  });

  test("a message of more parts than a call may have arguments is no stack overflow", () => {
    const parts = (type: string) => many.map(() => ({ type, text: "x" }));
    const input = [
      { role: "user", content: parts("input_text") },
      { role: "assistant", content: parts("output_text") },
      { role: "user", content: "And?" },
    ];
    expect(convert({ model: "m", input })).toHaveProperty("model");
  });
});
