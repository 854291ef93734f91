/** The corpus: what a stranger with one key, with or without credit, may think of sending. */
import { setTimeout as sleep } from "node:timers/promises";
import { dialectPath, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { send, sendRaw, type Attack, type Outcome, type Sent, type Target } from "./attack.ts";
import {
  asked,
  conversation,
  form,
  gzipped,
  lazily,
  listed,
  MiB,
  nested,
  quoted,
  randomWords,
  runs,
  toolHistory,
  zstandard,
} from "./bodies.ts";
import { keys } from "./world.ts";

const MAX_BODY = 32 * MiB;
/** Whoever sends much at once may be told to come back. */
const BUSY = [429, 503] as const;

type Headers = Readonly<Record<string, string>>;

const by = (key: string): Headers => ({ authorization: `Bearer ${key}` });
const gzip: Headers = { "content-encoding": "gzip" };

interface Options {
  readonly key?: string;
  readonly parallel?: number;
  readonly expected: readonly Outcome[];
  readonly short?: boolean;
  readonly headers?: Headers;
}

/** An attack that sends one and the same request again and again. */
function repeated(name: string, path: string, makeBody: () => Buffer | string, options: Options): Attack {
  const { key = keys.rich, parallel = 4, expected, short = false, headers = {} } = options;
  const body = lazily(() => Buffer.from(makeBody()));
  return {
    name,
    parallel,
    expected,
    short,
    prepare: () => void body(),
    send: (target) => send(target, { path, headers: { ...by(key), ...headers }, body: body() }),
  };
}

const infer = (dialect: Dialect, name: string, makeBody: () => Buffer | string, options: Options) =>
  repeated(`${dialect}: ${name}`, dialectPath[dialect], makeBody, options);

const count = (name: string, makeBody: () => Buffer | string, options: Options) =>
  repeated(`count_tokens: ${name}`, "/v1/messages/count_tokens", makeBody, options);

/** Requests of any kind, each made anew. */
function various(name: string, options: Options, make: (n: number) => Sent): Attack {
  const { key = keys.rich, parallel = 8, expected, short = false } = options;
  return {
    name,
    parallel,
    expected,
    short,
    send: (target, n) => {
      const sent = make(n);
      return send(target, { ...sent, headers: { ...by(key), ...sent.headers } });
    },
  };
}

/** An attack on the connection itself. */
function raw(
  name: string,
  options: Omit<Options, "key" | "headers">,
  write: (write: (bytes: string) => boolean, n: number) => Promise<void>,
): Attack {
  const { parallel = 50, expected, short = false } = options;
  return {
    name,
    parallel,
    expected,
    short,
    send: (target: Target, n) => sendRaw(target, (bytes) => write(bytes, n)),
  };
}

const letters = lazily(() => gzipped(asked("m-chat", quoted("a", MAX_BODY - 1024))));
const head = (path: string, key: string, more: readonly string[]) =>
  [`POST ${path} HTTP/1.1`, "host: abuse", `authorization: Bearer ${key}`, ...more, "", ""].join("\r\n");

const compressed: readonly Attack[] = [
  infer("chat", "32 MiB of one letter, gzipped, without credit, 120 at once", letters, {
    key: keys.poor,
    parallel: 120,
    headers: gzip,
    expected: [402, ...BUSY],
    short: true,
  }),
  infer("chat", "32 MiB of one letter, gzipped, 60 at once", letters, {
    parallel: 60,
    headers: gzip,
    expected: [200, ...BUSY],
    short: true,
  }),
  infer(
    "chat",
    "32 MiB of one letter, zstandard, 40 at once",
    () => zstandard(asked("m-chat", quoted("a", MAX_BODY - 1024))),
    {
      parallel: 40,
      headers: { "content-encoding": "zstd" },
      expected: [200, ...BUSY],
    },
  ),
  infer("messages", "a gigabyte of spaces, gzipped", () => gzipped(Buffer.alloc(1024 * MiB, 0x20)), {
    headers: gzip,
    parallel: 16,
    expected: [413, ...BUSY],
  }),
  infer(
    "messages",
    "gzip that is cut",
    () => gzipped(asked("m-messages", quoted("b", MiB))).subarray(0, 500),
    {
      headers: gzip,
      expected: [400, ...BUSY],
    },
  ),
];

const wide: readonly Attack[] = [
  infer(
    "chat",
    "a million messages to a Messages upstream, gzipped",
    () => gzipped(conversation("m-messages", 1_000_000)),
    {
      headers: gzip,
      expected: [400, ...BUSY],
      short: true,
    },
  ),
  infer("chat", "99,999 messages to a Messages upstream", () => conversation("m-messages", 99_999), {
    parallel: 2,
    expected: [200, ...BUSY],
    short: true,
  }),
  infer("messages", "99,999 messages to a Chat upstream", () => conversation("m-chat", 99_999), {
    parallel: 2,
    expected: [200, ...BUSY],
  }),
  infer("messages", "99,999 messages, relayed", () => conversation("m-messages", 99_999), {
    parallel: 2,
    expected: [200, ...BUSY],
  }),
  infer(
    "messages",
    "1.5 million top-level keys, gzipped",
    () => gzipped(asked("m-messages", '"a"', `,${listed("", (n) => `"k${n}":0`, 1_500_000, "")}`)),
    {
      headers: gzip,
      expected: [400, ...BUSY],
      short: true,
    },
  ),
  infer(
    "messages",
    "99,000 keys in metadata",
    () => asked("m-messages", '"a"', `,"metadata":${listed("{", (n) => `"k${n}":0`, 99_000, "}")}`),
    {
      expected: [200, 400, ...BUSY],
    },
  ),
  infer(
    "chat",
    "16 million numbers in a field that nobody knows",
    () => asked("m-chat", '"a"', `,"extra":${listed("[", "1", 16_000_000, "]")}`),
    {
      expected: [200, 400, ...BUSY],
    },
  ),
  infer(
    "responses",
    "ten million empty objects in a field that nobody knows",
    () => `{"model":"m-responses","input":"a","extra":${listed("[", "{}", 10_000_000, "]")}}`,
    {
      expected: [200, 400, ...BUSY],
    },
  ),
  infer(
    "messages",
    "200,000 blocks in a message",
    () => asked("m-messages", listed("[", '{"type":"text","text":"a"}', 200_000, "]")),
    {
      expected: [400, ...BUSY],
    },
  ),
  infer(
    "messages",
    "9,999 blocks in a message to a Responses upstream",
    () => asked("m-responses", listed("[", '{"type":"text","text":"a"}', 9_999, "]")),
    {
      expected: [200, ...BUSY],
    },
  ),
  infer(
    "messages",
    "100,000 tools",
    () =>
      asked(
        "m-messages",
        '"a"',
        `,"tools":${listed("[", (n) => `{"name":"t${n}","input_schema":{"type":"object"}}`, 100_000, "]")}`,
      ),
    {
      expected: [400, ...BUSY],
    },
  ),
  infer(
    "messages",
    "4,000 tools with large schemas to a Chat upstream",
    () => {
      const properties = listed("{", (n) => `"p${n}":{"type":"string","description":"d"}`, 100, "}");
      const tool = (n: number) =>
        `{"name":"t${n}","input_schema":{"type":"object","properties":${properties}}}`;
      return asked("m-chat", '"a"', `,"tools":${listed("[", tool, 4_000, "]")}`);
    },
    { parallel: 2, expected: [200, 400, ...BUSY], short: true },
  ),
  infer(
    "messages",
    "40,000 calls of tools and their results to a Chat upstream",
    () => toolHistory("m-chat", 40_000),
    {
      parallel: 2,
      expected: [200, ...BUSY],
    },
  ),
  infer(
    "responses",
    "100,000 references to items",
    () =>
      `{"model":"m-responses","input":${listed("[", (n) => `{"type":"item_reference","id":"msg_${n}"}`, 100_000, "]")}}`,
    {
      expected: [400, 404, ...BUSY],
    },
  ),
  infer(
    "messages",
    "9,999 images",
    () =>
      asked(
        "m-messages",
        listed(
          "[",
          '{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}',
          9_999,
          "]",
        ),
      ),
    {
      expected: [200, 400, ...BUSY],
    },
  ),
  infer(
    "chat",
    "a million stop sequences to a Messages upstream",
    () => asked("m-messages", '"a"', `,"stop":${listed("[", (n) => `"s${n}"`, 1_000_000, "]")}`),
    {
      expected: [200, 400, ...BUSY],
    },
  ),
  infer(
    "messages",
    "20,000 results of searches that nobody sealed",
    () => {
      const result = (n: number) =>
        `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_${n}","content":[{"type":"web_search_result","url":"https://e.example/","title":"t","encrypted_content":"QUJDREVG","page_age":null}]}`;
      const turn = (n: number) =>
        `{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_${n}","name":"web_search","input":{"query":"q"}},${result(n)}]},{"role":"user","content":"more"}`;
      return `{"model":"m-messages","max_tokens":16,"messages":[{"role":"user","content":"go"},${listed("", turn, 20_000, "")}]}`;
    },
    { parallel: 2, expected: [400, ...BUSY] },
  ),
  infer(
    "messages",
    "a tool loop over 30,000 earlier messages",
    () =>
      conversation("m-tools", 30_000).replace(
        /}$/,
        ',"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}]}',
      ),
    {
      parallel: 2,
      expected: [200, 400, ...BUSY],
    },
  ),
];

const long: readonly Attack[] = [
  infer("messages", "one string of 30 MiB", () => asked("m-messages", quoted("a", 30 * MiB)), {
    expected: [200, ...BUSY],
    short: true,
  }),
  infer(
    "chat",
    "one string of 30 MiB with escaped quotes to a Messages upstream",
    () => asked("m-messages", quoted('\\"', 30 * MiB)),
    {
      parallel: 2,
      expected: [200, ...BUSY],
      short: true,
    },
  ),
  infer(
    "chat",
    "one string of 30 MiB of \\u escapes to a Responses upstream",
    () => asked("m-responses", quoted("\\u00e9", 30 * MiB)),
    {
      parallel: 2,
      expected: [200, ...BUSY],
    },
  ),
  infer("messages", "30 MiB of CJK to a Chat upstream", () => asked("m-chat", quoted("漢字", 10 * MiB)), {
    parallel: 2,
    expected: [200, ...BUSY],
  }),
  infer(
    "messages",
    "30 keys of a megabyte",
    () => asked("m-messages", '"a"', `,${listed("", (n) => `${quoted(`k${n}`, MiB)}:1`, 30, "")}`),
    {
      expected: [200, 400, ...BUSY],
    },
  ),
  infer(
    "messages",
    "30 MiB of white space",
    () => `{${" ".repeat(30 * MiB)}${asked("m-messages", '"a"').slice(1)}`,
    {
      expected: [200, ...BUSY],
    },
  ),
  infer(
    "messages",
    "a byte that is no UTF-8 at the end of 30 MiB",
    () =>
      Buffer.concat([
        Buffer.from(asked("m-messages", quoted("a", 30 * MiB)).slice(0, -6)),
        Buffer.from([0xff]),
      ]),
    {
      expected: [400, ...BUSY],
    },
  ),
  infer(
    "messages",
    "30 MiB that end in the middle",
    () => asked("m-messages", quoted("a", 30 * MiB)).slice(0, -20),
    {
      expected: [400, ...BUSY],
    },
  ),
  infer(
    "messages",
    "30 MiB of short lines of JSON that is none",
    () => listed("{", '"a" 1\n', 5_000_000, "}"),
    {
      expected: [400, ...BUSY],
    },
  ),
  infer("messages", "a model's name of 30 MiB", () => asked("a".repeat(30 * MiB), '"a"'), {
    expected: [404, 400, ...BUSY],
  }),
  infer("messages", "100,000 arrays in each other", () => asked("m-messages", nested(100_000)), {
    expected: [400, ...BUSY],
    short: true,
  }),
  infer(
    "messages",
    "120 arrays in each other, 100,000 times",
    () => asked("m-messages", '"a"', `,"extra":${listed("[", nested(120), 100_000, "]")}`),
    {
      expected: [200, 400, ...BUSY],
    },
  ),
];

const counted: readonly Attack[] = [
  ...Object.entries(runs).map(([name, piece]) =>
    count(`a mebibyte of ${name}, without credit`, () => asked("m-messages", quoted(piece, MiB)), {
      key: keys.poor,
      expected: [200, ...BUSY],
      short: name.startsWith("zero width"),
    }),
  ),
  {
    // Each has words of its own, so that whatever remembers words is filled first.
    ...various(
      "count_tokens: words that nobody has seen, without credit",
      { key: keys.poor, parallel: 4, expected: [200, ...BUSY] },
      (n) => ({
        path: "/v1/messages/count_tokens",
        body: asked("m-messages", JSON.stringify(randomWords(256 * 1024, n))),
      }),
    ),
  },
  count(
    "30 MiB of natural text",
    () => asked("m-messages", quoted("The quick brown fox jumps. ", 30 * MiB)),
    {
      key: keys.poor,
      expected: [200, ...BUSY],
      short: true,
    },
  ),
  count("99,999 messages", () => conversation("m-messages", 99_999), {
    key: keys.poor,
    expected: [200, ...BUSY],
  }),
];

const shapes = [
  '{"type":"document","source":{"type":"file","file_id":"file_x"}}',
  '[{"type":"tool_result","tool_use_id":"t","content":{"type":"document","source":{"type":"file","file_id":"file_x"}}}]',
  '[{"type":"image","source":{"type":"file","file_id":["file_x"]}}]',
  "{}",
  "7",
];

const others: readonly Attack[] = [
  ...shapes.map((content) =>
    infer("messages", `content ${content.slice(0, 40)}`, () => asked("m-messages", content), {
      expected: [400, 404, ...BUSY],
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
      expected: [402, ...BUSY],
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
      expected: [402, ...BUSY],
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
      expected: [400, ...BUSY],
    },
  ),
];

const trickled = head(dialectPath.messages, keys.rich, [
  "content-type: application/json",
  "content-length: 1000000",
]);
const connections: readonly Attack[] = [
  raw(
    "a body that is announced and never sent, without credit, 200 at once",
    { parallel: 200, expected: [402, ...BUSY], short: true },
    async (write) => {
      const length = `content-length: ${30 * MiB}`;
      write(head(dialectPath.messages, keys.poor, ["content-type: application/json", length]));
    },
  ),
  raw(
    "a body that comes by a byte each 100 ms",
    { parallel: 200, expected: [408, "closed", ...BUSY] },
    async (write) => {
      write(trickled);
      for (let sent = 0; sent < 600 && write(" "); sent += 1) await sleep(100);
    },
  ),
  raw("chunks of one byte", { parallel: 20, expected: [400, 413, "closed", ...BUSY] }, async (write) => {
    write(
      head(dialectPath.messages, keys.rich, ["content-type: application/json", "transfer-encoding: chunked"]),
    );
    for (let sent = 0; sent < 200 && write("1\r\na\r\n".repeat(1_000)); sent += 1) await sleep(1);
    write("0\r\n\r\n");
  }),
  raw(
    "a thousand requests in one packet",
    { parallel: 8, expected: [200, 401, 429, "closed", 503] },
    async (write) => {
      write("GET /v1/models HTTP/1.1\r\nhost: abuse\r\n\r\n".repeat(1_000));
    },
  ),
  raw("connections that say nothing", { parallel: 500, expected: [408, "closed"] }, async () => {}),
];

/** Every attack, those of the short form among them. */
export const attacks: readonly Attack[] = [
  ...compressed,
  ...wide,
  ...long,
  ...counted,
  ...others,
  ...connections,
];
