/** Requests that are wrong, unwelcome, or simply too many, and uploads. */
import { dialectPath } from "../../../dataplane/dialects/dialect.ts";
import type { Attack } from "../attack.ts";
import { asked, form, listed, MiB, quoted } from "../bodies.ts";
import { keys } from "../world.ts";
import { BUSY, repeated, infer, various } from "./make.ts";

const shapes = [
  '{"type":"document","source":{"type":"file","file_id":"file_x"}}',
  '[{"type":"tool_result","tool_use_id":"t","content":{"type":"document","source":{"type":"file","file_id":"file_x"}}}]',
  '[{"type":"image","source":{"type":"file","file_id":["file_x"]}}]',
  "{}",
  "7",
];

export const requests: readonly Attack[] = [
  ...shapes.map((content) =>
    infer("messages", `content ${content.slice(0, 40)}`, () => asked("m-messages", content), {
      // On relay a number is the upstream's to judge.
      expected: [content === "7" ? 200 : 400, 404, ...BUSY],
    }),
  ),
  infer(
    "messages",
    "tools as an object",
    () => asked("m-messages", '"a"', ',"tools":{"type":"web_search_20250305"}'),
    {
      expected: [400, ...BUSY],
    },
  ),
  various(
    "keys that nobody has, each another",
    { parallel: 64, expected: [401, 429, 503], short: true },
    (n) => ({
      path: dialectPath.messages,
      headers: { authorization: `Bearer sk-svc-${String(n).padStart(40, "0")}` },
      body: asked("m-messages", '"a"'),
    }),
  ),
  various("keys that are none", { parallel: 64, expected: [401, 429, 503] }, (n) => ({
    path: dialectPath.chat,
    headers: { authorization: `Bearer ${"x".repeat(n % 8_000)}` },
    body: asked("m-chat", '"a"'),
  })),
  various(
    "the list of models, again and again",
    { key: keys.poor, parallel: 32, expected: [200, ...BUSY], short: true },
    () => ({
      method: "GET",
      path: "/v1/models",
    }),
  ),
  various(
    "lists of files with cursors that nobody gave",
    { key: keys.poor, parallel: 32, expected: [400, ...BUSY] },
    (n) => ({
      method: "GET",
      path: `/v1/files?after_id=file_${n}`,
    }),
  ),
  various("ids of 8 kB", { parallel: 16, expected: [404, ...BUSY] }, (n) => ({
    method: "GET",
    path: `/v1/files/${"f".repeat(8_000 + (n % 7))}`,
  })),
  various("30 kB of headers", { parallel: 16, expected: [200, 431, ...BUSY] }, () => ({
    path: dialectPath.messages,
    headers: Object.fromEntries(Array.from({ length: 150 }, (_, n) => [`x-h${n}`, "v".repeat(180)])),
    body: asked("m-messages", '"a"'),
  })),
  repeated(
    "files: 30 MiB without credit, 20 at once",
    "/v1/files",
    () => form(Buffer.alloc(30 * MiB, 1)).body,
    {
      key: keys.poor,
      parallel: 20,
      headers: { "content-type": form(Buffer.alloc(0)).type },
      expected: [402, "closed", ...BUSY],
      short: false,
    },
  ),
  repeated("files: a form of 10,000 fields", "/v1/files", () => form(Buffer.alloc(1), 10_000).body, {
    headers: { "content-type": form(Buffer.alloc(0)).type },
    expected: [400, ...BUSY],
  }),
  repeated(
    "batches: 60 MiB of items without credit",
    "/v1/messages/batches",
    () =>
      `{"requests":${listed("[", (n) => `{"custom_id":"i${n}","params":${asked("m-messages", quoted("a", 6_000))}}`, 10_000, "]")}}`,
    {
      key: keys.poor,
      parallel: 8,
      // Of more than may linger at once the oldest are closed.
      expected: [402, "closed", ...BUSY],
      short: false,
    },
  ),
  repeated(
    "batches: a million items",
    "/v1/messages/batches",
    () => `{"requests":${listed("[", '{"custom_id":"a","params":{}}', 1_000_000, "]")}}`,
    {
      expected: [400, ...BUSY],
    },
  ),
  repeated(
    "batches: metadata of 900 kB",
    "/v1/batches",
    () =>
      `{"input_file_id":"file_x","endpoint":"/v1/responses","completion_window":"24h","metadata":${listed("{", (n) => `"k${n}":"v"`, 60_000, "}")}}`,
    {
      expected: [413, ...BUSY],
    },
  ),
];
