/** Every object and event of the golden files fits the vendors' own types. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { exceptions } from "./exceptions.ts";
import { streamFaults, vendorJudge } from "./judge.ts";
import { vendorType } from "./vendor-type.ts";

const golden = join(import.meta.dirname, "..", "golden");
const used = new Set<number>();
const judge = await vendorJudge(used);
const read = (folder: string, file: string) => readFileSync(join(golden, folder, file), "utf8");
const names = (folder: string, pattern: RegExp) =>
  readdirSync(join(golden, folder)).filter((file) => pattern.test(file));

test("the judge knows a fault when it sees one", () => {
  expect(judge("ChatAnswer", { id: "x" })).toContainEqual(expect.stringContaining("'choices'"));
  expect(
    judge("MessagesEvent", {
      type: "content_block_delta",
      index: "0",
      delta: { type: "text_delta", text: 1 },
    }),
  ).toEqual([
    'MessagesEvent/delta/text must be string {"type":"string"}',
    'MessagesEvent/index must be number {"type":"number"}',
  ]);
  expect(judge("ResponsesEvent", { type: "response.unheard_of" })[0]).toContain("response.unheard_of");
});

describe.each(dialects)("converted answers for %s clients", (dialect) => {
  const folder = "dialects/answers";
  test.each(names(folder, new RegExp(`\\.${dialect}\\.json$`)))("%s", (file) => {
    const answer = JSON.parse(read(folder, file)) as { error?: unknown };
    // An error: the golden test says which.
    if (typeof answer.error === "string") return;
    expect(judge(vendorType(dialect, "Answer"), answer)).toEqual([]);
  });

  test.each(names(folder, new RegExp(`\\.${dialect}\\.sse$`)))("%s", (file) => {
    expect(streamFaults(judge, dialect, read(folder, file))).toEqual([]);
  });
});

describe("the tool loop's answers", () => {
  test.each(names("loop", /\.out\.json$/))("%s", (file) => {
    const traces = JSON.parse(read("loop", file)) as Record<
      string,
      { status: number; body?: object; events?: string[] }
    >;
    for (const [title, { status, body, events }] of Object.entries(traces)) {
      const dialect = title.split(",")[0] as Dialect;
      const faults =
        events === undefined
          ? status === 200
            ? judge(vendorType(dialect, "Answer"), body)
            : []
          : streamFaults(judge, dialect, `${events.join("\n\n")}\n\n`);
      expect(faults, title).toEqual([]);
    }
  });
});

test("models in Messages style", () => {
  const { body } = JSON.parse(read("http", "models-messages.json")) as { body: { data: object[] } };
  expect(body.data.length).toBeGreaterThan(1);
  expect(body.data.flatMap((model) => judge("MessagesModel", model))).toEqual([]);
});

test("no exception is kept that nothing needs", () => {
  expect(
    exceptions
      .filter(({ tapped }, index) => tapped !== true && !used.has(index))
      .map(({ fault }) => String(fault)),
  ).toEqual([]);
});
