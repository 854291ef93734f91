import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ApiError } from "../../lib/api-error.ts";
import { readBatchRequest } from "./create-from-requests.ts";
import { DistinctTexts } from "./distinct-texts.ts";
import { MAX_ITEM_BYTES } from "../batch.ts";
import { readJsonFields } from "../../lib/json-fields.ts";
import { scanRequests } from "./scan-requests.ts";
import { runs } from "../../../test/fakes/runs.ts";

async function* pieces(whole: Buffer, size: number): AsyncIterable<Buffer> {
  for (let at = 0; at < whole.length; at += size) yield whole.subarray(at, at + size);
}
async function scan(body: string | Buffer, size = 1 << 16): Promise<string[]> {
  const found: string[] = [];
  for await (const element of scanRequests(pieces(Buffer.from(body), size))) found.push(element.toString());
  return found;
}
/** Everything that creating a batch judges of a body. */
async function judge(body: string | Buffer, size?: number): Promise<number> {
  const customIds = new DistinctTexts();
  let count = 0;
  for await (const element of scanRequests(pieces(Buffer.from(body), size ?? 1 << 16))) {
    readBatchRequest(element, count, customIds);
    count += 1;
  }
  return count;
}

describe("elements", () => {
  test.each([1, 2, 3, 7, 1 << 16])("are found in pieces of %d bytes", async (size) => {
    const elements = ['{"a":"]}\\",[{"}', "[1,[2,{}]]", '"x\\\\"', "12.5e3", "null", '{"é":"\\u0000"}'];
    const body = `\ufeff{ "x" : {"requests":[1]} , "requests" :\n [ ${elements.join(" ,\r\n")} ] , "y":1 }\n`;
    expect(await scan(body, size)).toEqual(elements);
  });

  test("whatever JSON they are, they come out byte for byte", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.json()), fc.integer({ min: 1, max: 50 }), async (elements, size) => {
        expect(await scan(`{"requests":[${elements.join(",")}]}`, size)).toEqual(elements);
      }),
      { numRuns: runs(300) },
    );
  });
});

const good = '{"custom_id":"a","params":{}}';
const wrap = (...requests: string[]) => `{"requests":[${requests.join(",")}]}`;

/** Bodies that a client may get wrong, and what the answer must speak of. */
const malformed: readonly (readonly [string, RegExp])[] = [
  ["", /empty/],
  [" \n", /too early/],
  ["null", /object/],
  ["[]", /object/],
  ['"requests"', /object/],
  ["{", /too early/],
  ["{}", /requests/],
  ["{}{}", /after the end/],
  ["{},", /after the end/],
  ['{"requests"', /too early/],
  ['{"requests"}', /unexpected/],
  ['{"requests":}', /array/],
  ['{"requests":null}', /requests/],
  ['{"requests":{}}', /array/],
  ['{"requests":"x"}', /array/],
  ['{"requests":[}', /unexpected/],
  ['{"requests":[]', /too early/],
  ['{"requests":[],}', /unexpected/],
  ['{"requests":[],"requests":[]}', /Duplicate key "requests" at position 15\./],
  ['{"a":1, "a":2,"requests":[]}', /Duplicate key "a" at position 8\./],
  ['{"a":1,"requests":[],"\\u0061":2}', /Duplicate key "a"/],
  ['{"__proto__":1,"__proto__":2}', /Duplicate key "__proto__"/],
  ["{requests:[]}", /unexpected/],
  ["{'requests':[]}", /unexpected/],
  ['{"a":1 "requests":[]}', /unexpected/],
  ['{"a":tru,"requests":[]}', /a/],
  ['{"a":[1,}],"requests":[]}', /a/],
  ['{,"requests":[]}', /unexpected/],
  [`{"requests":[,${good}]}`, /unexpected/],
  [`{"requests":[${good},]}`, /unexpected/],
  [`{"requests":[${good},,${good}]}`, /unexpected/],
  [`{"requests":[${good} ${good}]}`, /unexpected/],
  [`{"requests":[${good}`, /too early/],
  [`{"requests":[${good}}`, /unexpected/],
  [wrap("1"), /requests\.0/],
  [wrap('"x"'), /requests\.0/],
  [wrap("null"), /requests\.0/],
  [wrap("[]"), /requests\.0/],
  [wrap("{}"), /requests\.0\.custom_id/],
  [wrap('{"params":{}}'), /requests\.0\.custom_id/],
  [wrap('{"custom_id":null,"params":{}}'), /requests\.0\.custom_id/],
  [wrap('{"custom_id":1,"params":{}}'), /requests\.0\.custom_id/],
  [wrap('{"custom_id":"","params":{}}'), /requests\.0\.custom_id/],
  [wrap('{"custom_id":"a b","params":{}}'), /requests\.0\.custom_id/],
  [wrap('{"custom_id":"a\\n","params":{}}'), /requests\.0\.custom_id/],
  [wrap('{"custom_id":"\\na","params":{}}'), /requests\.0\.custom_id/],
  [wrap('{"custom_id":"a\\u0000","params":{}}'), /requests\.0\.custom_id/],
  [wrap('{"custom_id":"é","params":{}}'), /requests\.0\.custom_id/],
  [wrap(`{"custom_id":"${"a".repeat(65)}","params":{}}`), /requests\.0\.custom_id/],
  [wrap('{"custom_id":"a"}'), /requests\.0\.params/],
  [wrap('{"custom_id":"a","params":null}'), /requests\.0\.params/],
  [wrap('{"custom_id":"a","params":[]}'), /requests\.0\.params/],
  [wrap('{"custom_id":"a","params":"{}"}'), /requests\.0\.params/],
  [wrap('{"custom_id":"a","custom_id":"b","params":{}}'), /requests\.0/],
  [wrap('{"custom_id":"a","params":{},"params":{}}'), /requests\.0/],
  [wrap('{"custom_id":"a","params":{"x":01}}'), /requests\.0/],
  [wrap('{"custom_id":"a","params":{"x":"\t"}}'), /requests\.0/],
  [wrap('{"custom_id":"a","params":{"x":"\\x"}}'), /requests\.0/],
  [wrap('{"custom_id":"a","params":{"x":[}]}'), /requests|JSON/],
  [wrap('{"custom_id":"a","params":{]}'), /requests|JSON/],
  [wrap(good, good), /requests\.1\.custom_id/],
  [wrap(good, '{"custom_id":"\\u0061","params":{}}'), /requests\.1\.custom_id/],
  [wrap(good, '{"custom_id":"b","params":1}'), /requests\.1\.params/],
  [wrap(`{"custom_id":"a","params":${"[".repeat(300)}${"]".repeat(300)}}`), /requests\.0/],
];

describe("malformed bodies", () => {
  test.each(malformed)("%s is refused", async (body, words) => {
    for (const size of [1, 5, 1 << 16]) {
      const error = await judge(body, size).catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(ApiError);
      expect((error as ApiError).kind.status).toBe(400);
      expect((error as ApiError).message).toMatch(words);
    }
  });

  test("an id that is no string and one that is far too long are told apart", async () => {
    await expect(judge(wrap('{"custom_id":1,"params":{}}'))).rejects.toThrow(/should be a valid string/);
    const long = `"${"a".repeat(65 * 1024)}"`;
    await expect(judge(wrap(`{"custom_id":${long},"params":{}}`))).rejects.toThrow(/should match pattern/);
  });

  test("bytes that are not UTF-8 are refused", async () => {
    const body = Buffer.concat([
      Buffer.from('{"requests":[{"custom_id":"a","params":{"x":"'),
      Buffer.from([0xff]),
      Buffer.from('"}}]}'),
    ]);
    await expect(judge(body)).rejects.toThrow(/UTF-8/);
  });

  test("rule 7.4: more keys than any object may have are refused", async () => {
    const body = (keys: number) =>
      `{${Array.from({ length: keys - 1 }, (_, key) => `"k${key}":1,`).join("")}"requests":[${good}]}`;
    expect(await judge(body(100_000))).toBe(1);
    await expect(judge(body(100_001))).rejects.toThrow(
      /More than 100000 keys in one object at position \d+\./,
    );
  });

  test("an element over 32 MiB is 413", async () => {
    const body = Buffer.from(wrap(`{"custom_id":"a","params":{"x":"${"y".repeat(34 * 1024 * 1024)}"}}`));
    await expect(judge(body)).rejects.toMatchObject({ code: "too_large" });
  });
});

test("rule 4.7: `__proto__` is an id like any other", async () => {
  expect(
    await judge(
      wrap(good, '{"custom_id":"__proto__","params":{}}', '{"custom_id":"constructor","params":{}}'),
    ),
  ).toBe(3);
});

test("it tells what the keys of other fields take", async () => {
  const told: number[] = [];
  const source = (async function* () {
    yield Buffer.from('{"a":1,"requests":[],"b');
    yield Buffer.from('":2}');
  })();
  for await (const _ of scanRequests(source, (bytes) => told.push(bytes))) throw new Error("no element");
  expect(told).toEqual([128 + 2, 2 * 128]);
});

test("it tells after each chunk how much of the element that has begun stands in memory", async () => {
  const told: number[] = [];
  const chunks = ['{"requests": [{"a":"', "x".repeat(1000), '"}, {', '"b":1}', "]}"].map((text) =>
    Buffer.from(text),
  );
  const source = (async function* () {
    yield* chunks;
  })();
  const elements = [];
  for await (const element of scanRequests(source, (bytes) => told.push(bytes)))
    elements.push(element.length);
  expect(elements).toEqual([1008, 7]);
  expect(told).toEqual([6, 1006, 1, 0, 0]);
});

test("rule 1.17: a request is judged by its own size, whatever stands around it", () => {
  const element = Buffer.from('{"custom_id":"a","params":{}}');
  const read = readJsonFields(element, ["custom_id", "params"]);
  const judged = (bytes: number) => {
    const params = read.fields["params"];
    if (params === undefined) throw new Error("no params");
    const fields = { ...read.fields, params: { ...params, end: params.start + bytes } };
    return readBatchRequest(element, 3, new DistinctTexts(), { ...read, fields });
  };
  expect(judged(MAX_ITEM_BYTES).customId).toBe('"a"');
  expect(() => judged(MAX_ITEM_BYTES + 1)).toThrow("requests.3: the request is larger than 32 MiB.");
});
