/** The values are a contract: each one changes the render where it should, and a misspelt one is refused. */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { chartValues } from "../../hack/chart.ts";
import { render } from "./helm.ts";
import { stores } from "./matrix.ts";
import { metricsCases } from "./metrics-cases.ts";
import { networkCases } from "./network-cases.ts";
import { programCases } from "./program-cases.ts";
import { settingCases } from "./setting-cases.ts";
import { storeCases } from "./store-cases.ts";

const cases = [...settingCases, ...storeCases, ...networkCases, ...metricsCases, ...programCases];

const valuesFile = resolve(import.meta.dirname, "../../charts/gapura/values.yaml");
const values = chartValues(readFileSync(valuesFile, "utf8")).filter(({ group }) => !group);

describe("each value", () => {
  test("is proved to do something", () => {
    const proved = new Set(cases.map(({ value }) => value));
    expect(values.map(({ path }) => path).filter((path) => !proved.has(path))).toEqual([]);
  });

  test.each(cases)("$value changes the render in the right place", async ({ base = {}, set, read, is }) => {
    const [without, withIt] = await Promise.all([
      render({ ...stores, ...base }),
      render({ ...stores, ...set }),
    ]);
    expect(read(withIt)).toEqual(is);
    expect(read(without)).not.toEqual(is);
  });
});

describe("a wrong value is refused", () => {
  test("a misspelt name, wherever it stands", async () => {
    const wrong: Record<string, unknown> = {};
    for (const { path } of values) {
      const groups = path.split(".");
      const name = groups.pop() ?? "";
      let place = wrong;
      for (const group of groups) place = (place[group] ??= {}) as Record<string, unknown>;
      place[`${name}x`] = true;
    }
    const answer = await render(wrong).then(
      () => "rendered",
      (error: Error) => error.message,
    );
    const refusedAt = (path: string) => {
      const [, group = "", name = ""] = /^(?:(.*)\.)?([^.]+)$/.exec(path) ?? [];
      const place = group === "" ? "''" : `'/${group.replaceAll(".", "/")}'`;
      return answer.split("\n").some((line) => line.includes(place) && line.includes(`'${name}x'`));
    };
    expect({
      answer,
      accepted: values.map(({ path }) => path).filter((path) => !refusedAt(path)),
    }).toMatchObject({ accepted: [] });
  });
});
