import { afterEach, expect, test, vi } from "vitest";
import { everyPage, longPage, send } from "./client.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

test.each([
  ["a page", 502, "<html>Bad gateway</html>"],
  ["nothing", 503, ""],
  ["JSON of a gateway with a text as its error", 502, '{"error":"Bad Gateway"}'],
  ["JSON of a gateway with a message of its own", 503, '{"message":"no upstream"}'],
  ["JSON of a gateway whose error has no message", 500, '{"error":{"code":"upstream_reset"}}'],
  ["JSON that is no object", 502, "null"],
])("an error that is %s is not the service's own", async (_, status, body) => {
  vi.spyOn(globalThis, "fetch").mockResolvedValue(new Response(body, { status }));
  await expect(send("key", "/v1/models")).rejects.toMatchObject({ status, isOwn: false, code: null });
});

test("an error of either family is told in the service's own words", async () => {
  const answers = [
    {
      error: {
        message: "No such model.",
        type: "invalid_request_error",
        param: null,
        code: "model_not_found",
      },
    },
    { type: "error", error: { type: "not_found_error", message: "No such model." }, request_id: "req_1" },
  ];
  for (const [index, code] of ["model_not_found", "not_found_error"].entries()) {
    const answer = Response.json(answers[index], { status: 404, headers: { "request-id": "req_1" } });
    vi.spyOn(globalThis, "fetch").mockResolvedValue(answer);
    const own = { status: 404, isOwn: true, message: "No such model.", code, requestId: "req_1" };
    await expect(send("key", "/v1/models")).rejects.toMatchObject(own);
  }
});

test.each([
  [2, "", ["0", "1"], true],
  [7, "", ["0", "1", "2", "3", "4", "5", "6"], true],
  [7, "4", ["5", "6", "7", "8", "9"], false],
  // What ends where the list does leads no further.
  [5, "4", ["5", "6", "7", "8", "9"], false],
  [10, "", ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"], false],
  [10, "9", [], false],
])("a page of %d behind %j, of a service whose pages end early", async (most, begin, found, hasMore) => {
  const list = Array.from({ length: 10 }, (_, index) => ({ id: String(index) }));
  const read = ({ limit, after }: { readonly limit: number; readonly after?: string }) => {
    const from = after === undefined ? 0 : Number(after) + 1;
    const to = from + Math.min(limit, 3);
    return Promise.resolve({ data: list.slice(from, to), has_more: to < list.length });
  };
  const page = await longPage(most, read, begin);
  expect([page.data.map(({ id }) => id), page.has_more]).toEqual([found, hasMore]);
  if (begin === "") expect(await everyPage(most, read)).toEqual(page.data);
});
