import { expect, test } from "vitest";
import { newRequestSummary } from "../telemetry/request-summary.ts";
import { rememberRefused } from "./refused-call.ts";

const remembered = (body: string | Buffer, tags = "") => {
  const summary = newRequestSummary(null);
  rememberRefused({ body: Buffer.from(body), headers: { "x-gapura-tags": tags }, summary });
  return [summary.askedModel, summary.tags];
};
const long = `"${"x".repeat(200_000)}"`;

test.each([
  ['{"model": "m", "messages": [', "m"],
  ['\ufeff{"stream": "yes", "model": "m"}', "m"],
  ['{"model": "m", "model": "n"}', "m"],
  [`{"model": "m", "system": ${long}}`, "m"],
  [`{"system": ${long}, "model": "m"}`, null],
  ['{"model": 3}', null],
  ['{"metadata": {"model": "m"}}', null],
  ['{"model": "m', null],
  ["[]", null],
  ["null", null],
  ["", null],
])("of %.40s the model is %j", (body, model) => {
  expect(remembered(body)).toEqual([model, null]);
});

test("tags of the header are kept, unless they are none", () => {
  expect(remembered("{}", "team=ml, a=b")).toEqual([null, "a=b,team=ml"]);
  expect(remembered("{}", "team")).toEqual([null, null]);
});

test("a body that another thread has is none", () => {
  const summary = newRequestSummary(null);
  const body = Buffer.from(new Uint8Array(Buffer.from('{"model": "m"}')).buffer);
  structuredClone(body.buffer, { transfer: [body.buffer] });
  rememberRefused({ body, headers: {}, summary });
  expect(summary.askedModel).toBe(null);
});

test("what was learned while it was served stays", () => {
  const summary = newRequestSummary(null);
  Object.assign(summary, { askedModel: "m", tags: "team=ml" });
  rememberRefused({ body: Buffer.from('{"model": "n"}'), headers: {}, summary });
  expect([summary.askedModel, summary.tags]).toEqual(["m", "team=ml"]);
});
