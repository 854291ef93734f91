/** Each oracle notices a log in which something is broken, and nothing in one where all is well. */
import { describe, expect, test } from "vitest";
import { isDocumented, judgeBatches, judgeCharges, judgeExchanges, outputOf } from "./judge.ts";
import type { Call, Exchange, Item, Row, SeenBatch, SeenError, Window } from "./log.ts";
import { models, PRICED_MODEL } from "./manifests.ts";

const MARKER = 1_200;
const call = (more: Partial<Call> = {}): Call => ({
  marker: MARKER,
  fault: null,
  output: outputOf(MARKER),
  ended: () => "answered",
  ...more,
});
const seen = (more: Partial<Exchange> = {}): Exchange => ({
  what: "messages to m-messages",
  marker: MARKER,
  plane: 0,
  from: 1_000,
  to: 1_200,
  status: 200,
  requestId: "req_1",
  outcome: "complete",
  error: null,
  told: outputOf(MARKER),
  detail: "",
  ...more,
});
const row = (more: Partial<Row> = {}): Row => ({
  id: "req_1",
  marker: MARKER,
  model: models.messages,
  iterations: 1,
  estimated: false,
  provisional: false,
  input: 1n,
  output: 12_000n,
  searches: 0n,
  cost: 24_001n,
  ...more,
});
const calls = (...all: Call[]) => new Map([[MARKER, all.length === 0 ? [call()] : all]]);
const error = (more: Partial<SeenError> = {}): SeenError => ({
  status: 503,
  type: "api_error",
  code: null,
  message: "Credit cannot be checked right now. Try again in a moment.",
  ...more,
});
const failed = (more: Partial<Exchange> = {}, how: Partial<SeenError> = {}) =>
  seen({ outcome: "error", status: 503, told: null, error: error(how), ...more });
const window = (more: Partial<Window> = {}): Window => ({
  text: "redis: kill",
  from: 900,
  to: 1_100,
  planes: [0, 1],
  failures: ["unavailable", "limited"],
  ...more,
});

describe("exchanges", () => {
  const judge = (exchange: Exchange, windows: Window[] = [], all = calls()) =>
    judgeExchanges({ exchanges: [exchange], calls: all, windows });

  test("complete answers need no explanation, nor do clients that left or refusals that were due", () => {
    for (const outcome of ["complete", "aborted", "refused"] as const)
      expect(judge(seen({ outcome }))).toEqual([]);
  });

  test("an answer that was not asked for is a breach, whatever went on", () => {
    expect(judge(seen({ outcome: "wrong" }), [window()])).toHaveLength(1);
  });

  test("a failure is explained by a fault of its data plane and its time, of its kind", () => {
    expect(judge(failed(), [window()])).toEqual([]);
    expect(judge(failed(), [window({ to: null })])).toEqual([]);
    expect(judge(failed())).toHaveLength(1);
    expect(judge(failed(), [window({ to: 999 })])).toHaveLength(1);
    expect(judge(failed(), [window({ from: 1_201, to: null })])).toHaveLength(1);
    expect(judge(failed(), [window({ planes: [1] })])).toHaveLength(1);
    expect(judge(failed(), [window({ failures: ["broken"] })])).toHaveLength(1);
    expect(judge(seen({ outcome: "broken", status: null }), [window()])).toHaveLength(1);
    expect(judge(seen({ outcome: "late", status: null }), [window({ failures: ["late"] })])).toEqual([]);
  });

  test("a fault of ours (500), a bad request and a refused key are never explained", () => {
    const open = window({ to: null, failures: ["broken", "late", "unavailable", "limited", "upstream"] });
    expect(judge(failed({ status: 500 }, { status: 500 }), [open])).toHaveLength(1);
    expect(
      judge(failed({ status: 400 }, { status: 400, type: "invalid_request_error" }), [open]),
    ).toHaveLength(1);
    expect(
      judge(failed({ status: 401 }, { status: 401, type: "authentication_error" }), [open]),
    ).toHaveLength(1);
  });

  test("an upstream that failed a call explains its own failures alone", () => {
    const upstream = { status: 502, type: "api_error", code: "upstream_error" };
    const faulted = calls(call({ fault: "reset" }));
    expect(judge(failed({ status: 502 }, upstream), [], faulted)).toEqual([]);
    expect(judge(failed({ status: 502 }, upstream))).toHaveLength(1);
    expect(judge(seen({ outcome: "broken", status: null }), [], faulted)).toHaveLength(1);
    const bad = failed({ status: 400 }, { status: 400, type: "invalid_request_error" });
    expect(judge(bad, [], calls(call({ fault: "status 400" })))).toEqual([]);
    expect(judge(bad, [], faulted)).toHaveLength(1);
  });

  test("an error inside a stream is known by its type and code", () => {
    const inside = { status: null, type: "api_error", code: "upstream_error" };
    expect(judge(failed({ status: 200 }, inside), [], calls(call({ fault: "cut" })))).toEqual([]);
    expect(judge(failed({ status: 200 }, inside))).toHaveLength(1);
  });

  test("an error that no table has, or that tells of the inside, is a breach even while it is explained", () => {
    expect(judge(failed({}, { type: "oops" }), [window()])).toHaveLength(1);
    for (const message of [
      "connect ECONNREFUSED",
      "no answer of 127.0.0.1:5432",
      'relation "usage" does not exist',
      "Redis is loading",
      "at serve (serve.ts:12)",
      "the account of provider-org-secret",
    ])
      expect(judge(failed({}, { message }), [window()]), message).toHaveLength(1);
  });

  test("a data plane that is too busy is told of elsewhere", () => {
    expect(judge(failed({}, { message: "The service is overloaded; try again in a moment." }))).toEqual([]);
  });

  test("the table of errors is that of the service", () => {
    expect(isDocumented(error({ status: 502, code: "upstream_error" }))).toBe(true);
    expect(isDocumented(error({ status: 502 }))).toBe(false);
    expect(isDocumented({ status: 429, type: "requests", code: "rate_limit_exceeded", message: "" })).toBe(
      true,
    );
    expect(isDocumented({ status: 418, type: "requests", code: "rate_limit_exceeded", message: "" })).toBe(
      false,
    );
  });
});

describe("charges", () => {
  const judge = (exchanges: Exchange[], rows: Row[], all = calls(), windows: Window[] = []) =>
    judgeCharges({ exchanges, calls: all, windows }, rows);

  test("one row for each complete answer, of what it said, is in order", () => {
    expect(judge([seen()], [row()])).toEqual([]);
    expect(judge([seen()], [row({ model: PRICED_MODEL, cost: 48_001n })])).toEqual([]);
    const looked = row({ iterations: 2, input: 2n, searches: 1n, cost: 344_002n });
    expect(judge([seen()], [looked], calls(call({ output: 11_991 }), call({ output: 9 })))).toEqual([]);
    expect(judge([seen()], [looked], calls(call(), call()))).not.toEqual([]);
  });

  test.each([
    ["no row", []],
    ["two rows", [row(), row({ id: "req_2" })]],
    ["a row under another id", [row({ id: "req_2" })]],
    ["a provisional row", [row({ provisional: true })]],
    ["too little", [row({ output: 11_000n, cost: 22_001n })]],
    ["an iteration that nobody served", [row({ iterations: 2, input: 2n, cost: 24_002n })]],
    ["a cost that is not the sum of its parts", [row({ cost: 24_000n })]],
    ["the edited price for another model", [row({ cost: 48_002n })]],
  ])("a complete answer with %s is a breach", (_, rows) => {
    expect(judge([seen()], rows)).not.toEqual([]);
  });

  test("an answer that failed is charged at most for what its upstream reported", () => {
    const gone = seen({ outcome: "broken", status: null, requestId: null, told: null });
    expect(judge([gone], [])).toEqual([]);
    expect(judge([gone], [row()])).toEqual([]);
    expect(judge([gone], [row({ output: 12_001n, cost: 24_003n })])).toHaveLength(1);
    expect(judge([gone], [row()], new Map())).toHaveLength(1);
  });

  test("what was told is compared unless the upstream reported nothing", () => {
    const told = seen({ told: 0 });
    const estimated = row({ estimated: true, output: 11n, cost: 23n });
    expect(judge([told], [estimated], calls(call({ fault: "no usage" })))).toEqual([]);
    expect(judge([told], [estimated], calls(call({ fault: "byte by byte" })))).toHaveLength(1);
  });

  test("whoever leaves is charged, unless the data plane was hurt", () => {
    const left = seen({ outcome: "aborted", told: null });
    expect(judge([left], [row()])).toEqual([]);
    expect(judge([left], [])).toHaveLength(1);
    expect(judge([left], [], new Map())).toEqual([]);
    expect(judge([left], [], calls(), [window()])).toEqual([]);
  });
});

describe("batches", () => {
  const batch = (more: Partial<SeenBatch> = {}): SeenBatch => ({
    id: "b",
    form: "messages",
    markers: new Map([["i0", MARKER]]),
    canceled: false,
    ended: true,
    lines: [{ customId: "i0", requestId: null, outcome: "succeeded", output: outputOf(MARKER) }],
    ...more,
  });
  const item = (more: Partial<Item> = {}): Item => ({
    batchId: "b",
    customId: "i0",
    output: 12_000n,
    ...more,
  });
  const judge = (one: SeenBatch, items = [item()], all = calls()) => judgeBatches([one], items, [row()], all);
  const line = (more: object) => ({
    customId: "i0",
    requestId: null,
    outcome: "succeeded" as const,
    output: 12_000,
    ...more,
  });

  test("one line for each item, each success with its row, is in order", () => {
    expect(judge(batch())).toEqual([]);
  });

  test.each([
    ["has not ended", batch({ ended: false })],
    ["cannot be read", batch({ lines: null })],
    ["has lost a line", batch({ lines: [] })],
    ["has a line twice", batch({ lines: [line({}), line({})] })],
    ["has a line of nobody", batch({ lines: [line({}), line({ customId: "i9" })] })],
    ["says something else than was charged", batch({ lines: [line({ output: 11_999 })] })],
    ["failed without a fault", batch({ lines: [line({ outcome: "errored", output: null })] })],
    ["was canceled by nobody", batch({ lines: [line({ outcome: "canceled", output: null })] })],
  ])("a batch that %s is a breach", (_, one) => {
    expect(judge(one)).not.toEqual([]);
  });

  test("a success without a row is a breach, and so is a canceled item with one", () => {
    expect(judge(batch(), [item({ output: null })])).toHaveLength(1);
    const canceled = batch({ canceled: true, lines: [line({ outcome: "canceled", output: null })] });
    expect(judge(canceled, [item({ output: null })])).toEqual([]);
    expect(judge(canceled)).toHaveLength(1);
  });

  test("a line that names its request is compared with its row, though the item is gone", () => {
    expect(judge(batch({ lines: [line({ requestId: "req_1" })] }), [])).toEqual([]);
    expect(judge(batch({ lines: [line({ requestId: "req_2" })] }), [])).toHaveLength(1);
  });

  test("an upstream's fault explains an item that failed", () => {
    const one = batch({ lines: [line({ outcome: "errored", output: null })] });
    expect(judge(one, [item({ output: null })], calls(call({ fault: "status 400" })))).toEqual([]);
  });
});
