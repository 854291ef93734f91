/** Bodies of very many parts. */
import type { Attack } from "../attack.ts";
import { asked, conversation, gzipped, listed, toolHistory } from "../bodies.ts";
import { BUSY, gzip, infer } from "./make.ts";

export const wide: readonly Attack[] = [
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
