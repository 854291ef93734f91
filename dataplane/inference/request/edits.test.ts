import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { computedMs } from "../../../test/fakes/computed.ts";
import { routeTo, upstreamOf } from "../../../test/fakes/inference.ts";
import type { Route } from "../../config/schema.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { relayBody } from "./edits.ts";
import { sealBlob } from "../../dialects/reasoning.ts";
import { sealing } from "../../lib/seal.ts";
import { noTiers } from "../../dialects/tiers.ts";
import { inspectBody } from "../inspect/body.ts";

const limits = { contextTokens: 1000, maxOutputTokens: 100 };
const upstream = (dialect: Dialect) => upstreamOf("http://x", dialect, { model: "m" });
const sealer = sealing([{ id: "test", key: Buffer.alloc(32, 7) }])("org_edits");
const able = routeTo([]).capabilities;

function edit(dialect: Dialect, body: string, more: Partial<Route> = {}, strict = false) {
  const route = routeTo([upstream(dialect)], { limits, ...more });
  const {
    body: bytes,
    dropped,
    usageInjected,
  } = relayBody(
    inspectBody(dialect, Buffer.from(body)),
    route,
    upstream(dialect),
    { strict, encryptedReasoning: false, tiers: noTiers },
    sealer,
  );
  return { text: bytes.toString(), dropped, usageInjected };
}
const M = '"model":"m","messages":[{"role":"user","content":"x"}]';
const messages = (more: string) => `{${M},"max_tokens":50${more}}`;
const chat = (more: string) => `{${M}${more}}`;
const responses = (more: string) => `{"model":"m","input":"x","store":false${more}}`;

test.each<[string, Dialect, string, string]>([
  [
    "an escaped model name",
    "chat",
    `{"model":"\\u006d","messages":[{}]}`,
    `{"model":"\\u006d","messages":[{}]}`,
  ],
  [
    "a limit above the route's is clamped",
    "messages",
    `{${M}, "max_tokens" : 500}`,
    `{${M}, "max_tokens" : 100}`,
  ],
  ["a missing limit becomes the route's", "messages", `{${M}}`, `{"max_tokens":100,${M}}`],
  ["a null limit becomes the route's", "messages", `{${M},"max_tokens":null}`, `{${M},"max_tokens":100}`],
  [
    "an empty list of MCP servers counts as absent",
    "messages",
    `{${M},"mcp_servers":[ ],"max_tokens":5}`,
    `{${M},"max_tokens":5}`,
  ],
  [
    "an empty list of MCP servers counts as absent in Chat",
    "chat",
    chat(',"mcp_servers":[],"max_tokens":5'),
    chat(',"max_tokens":5'),
  ],
  [
    "both Chat limits are clamped",
    "chat",
    chat(',"max_tokens":1e9,"max_completion_tokens":101'),
    chat(',"max_tokens":100,"max_completion_tokens":100'),
  ],
  ["a Chat limit is not invented", "chat", chat(""), chat("")],
  [
    "rule 2.6: a limit of Responses is clamped",
    "responses",
    responses(',"max_output_tokens":101'),
    responses(',"max_output_tokens":100'),
  ],
  [
    "rule 2.10: Responses are never stored",
    "responses",
    '{"model":"m","input":"x"}',
    '{"store":false,"model":"m","input":"x"}',
  ],
  [
    "store: true",
    "responses",
    '{"model":"m","store" : true,"input":"x"}',
    '{"model":"m","store" : false,"input":"x"}',
  ],
  [
    "store: null",
    "responses",
    '{"model":"m","store":null,"input":"x"}',
    '{"model":"m","store":false,"input":"x"}',
  ],
  ["rule 1.17: Chat's store: true goes up as false", "chat", chat(',"store":true'), chat(',"store":false')],
  ["Chat without store stays as it is", "chat", chat(',"store":null'), chat(',"store":null')],
  [
    "thinking enabled becomes adaptive, effort medium",
    "messages",
    messages(',"thinking":{"type":"enabled","budget_tokens":2048}'),
    `{"output_config":{"effort":"medium"},${M},"max_tokens":50,"thinking":{"type":"adaptive"}}`,
  ],
  [
    "what else thinking says stays",
    "messages",
    messages(',"thinking":{"budget_tokens":1, "type" : "enabled", "display":"omitted"}'),
    `{"output_config":{"effort":"medium"},${M},"max_tokens":50,"thinking":{"type" : "adaptive", "display":"omitted"}}`,
  ],
  [
    "rule 2.5: an explicit effort wins",
    "messages",
    messages(',"thinking":{"type":"enabled"},"output_config":{"effort":"high"}'),
    messages(',"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}'),
  ],
  [
    "an output_config without effort gets it",
    "messages",
    messages(',"thinking":{"type":"enabled"},"output_config":{"format":1}'),
    messages(',"thinking":{"type":"adaptive"},"output_config":{"effort":"medium","format":1}'),
  ],
  [
    "an empty output_config gets it",
    "messages",
    messages(',"thinking":{"type":"enabled"},"output_config":{}'),
    messages(',"thinking":{"type":"adaptive"},"output_config":{"effort":"medium"}'),
  ],
  [
    "a null effort is none",
    "messages",
    messages(',"thinking":{"type":"enabled"},"output_config":{"effort":null}'),
    messages(',"thinking":{"type":"adaptive"},"output_config":{"effort":"medium"}'),
  ],
  [
    "a null output_config is none",
    "messages",
    messages(',"thinking":{"type":"enabled"},"output_config":null'),
    messages(',"thinking":{"type":"adaptive"},"output_config":{"effort":"medium"}'),
  ],
  [
    "adaptive stays as it is",
    "messages",
    messages(',"thinking":{"type":"adaptive"}'),
    messages(',"thinking":{"type":"adaptive"}'),
  ],
  [
    "a budget never goes upstream",
    "messages",
    messages(',"thinking":{"type":"adaptive","budget_tokens":9}'),
    messages(',"thinking":{"type":"adaptive"}'),
  ],
  [
    "neither thinking nor effort: neither",
    "messages",
    messages(',"thinking":null'),
    messages(',"thinking":null'),
  ],
  [
    "usage is asked for",
    "chat",
    chat(',"stream":true'),
    `{"stream_options":{"include_usage":true},${M},"stream":true}`,
  ],
  [
    "usage is asked for beside other options",
    "chat",
    chat(',"stream":true,"stream_options":{"x":1}'),
    chat(',"stream":true,"stream_options":{"include_usage":true,"x":1}'),
  ],
  [
    "usage is asked for against the client's word",
    "chat",
    chat(',"stream":true,"stream_options":{"include_usage" :false }'),
    chat(',"stream":true,"stream_options":{"include_usage" :true }'),
  ],
  [
    "usage that the client asked for is left",
    "chat",
    chat(',"stream":true,"stream_options":{"include_usage":true}'),
    chat(',"stream":true,"stream_options":{"include_usage":true}'),
  ],
  ["no usage chunk without a stream", "chat", chat(',"stream":false'), chat(',"stream":false')],
  [
    "rule 2.11: an offline search is cut out",
    "responses",
    responses(
      ',"tools":[ {"type":"function","name":"f"}, {"type":"web_search","external_web_access":false} ]',
    ),
    responses(',"tools":[ {"type":"function","name":"f"} ]'),
  ],
  [
    "also among the items",
    "responses",
    '{"model":"m","store":false,"input":[{"type":"additional_tools","tools":[{"type":"web_search","external_web_access":false},{"type":"custom"}]}]}',
    '{"model":"m","store":false,"input":[{"type":"additional_tools","tools":[{"type":"custom"}]}]}',
  ],
])("%s (%s)", (_name, dialect, body, expected) => {
  expect(edit(dialect, body).text).toBe(expected);
});

describe("what a route has no place for", () => {
  const noSampling = { capabilities: { ...able, samplingParameters: false } };
  const noThinking = { capabilities: { ...able, thinking: false } };

  test.each<[string, Dialect, string, Partial<Route>, string, string[]]>([
    [
      "sampling (rule 2.11)",
      "messages",
      messages(',"temperature":0.5,"top_p":null,"top_k":3'),
      noSampling,
      messages(""),
      ["temperature", "top_k"],
    ],
    ["sampling", "chat", `{"temperature":1,${M},"top_p":1}`, noSampling, chat(""), ["temperature", "top_p"]],
    ["sampling", "responses", responses(',"top_p":1'), noSampling, responses(""), ["top_p"]],
    [
      "thinking and effort",
      "messages",
      messages(',"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}'),
      noThinking,
      messages(""),
      ["thinking", "output_config.effort"],
    ],
    [
      "effort beside a format",
      "messages",
      messages(',"output_config":{"effort":"low","format":{}}'),
      noThinking,
      messages(',"output_config":{"format":{}}'),
      ["output_config.effort"],
    ],
    [
      "disabled thinking is no loss",
      "messages",
      messages(',"thinking":{"type":"disabled"}'),
      noThinking,
      messages(""),
      [],
    ],
    [
      "no effort is no loss",
      "messages",
      messages(',"output_config":{"effort":null}'),
      noThinking,
      messages(""),
      [],
    ],
    ["effort", "chat", chat(',"reasoning_effort":"low"'), noThinking, chat(""), ["reasoning_effort"]],
    [
      "the effort of no thoughts is no loss",
      "chat",
      chat(',"reasoning_effort":"none"'),
      noThinking,
      chat(""),
      [],
    ],
    [
      "reasoning",
      "responses",
      responses(',"reasoning":{"effort":"low"}'),
      noThinking,
      responses(""),
      ["reasoning"],
    ],
    ...["{}", '{"effort":null}', '{"effort":"none","summary":"auto"}', '{"generate_summary":"concise"}'].map(
      (reasoning): [string, Dialect, string, Partial<Route>, string, string[]] => [
        `no loss in the reasoning ${reasoning}`,
        "responses",
        responses(`,"reasoning":${reasoning}`),
        noThinking,
        responses(""),
        [],
      ],
    ),
    [
      "what the reasoning is about",
      "responses",
      responses(',"reasoning":{"context":"all"}'),
      noThinking,
      responses(""),
      ["reasoning"],
    ],
    [
      "fields of the upstream account",
      "messages",
      messages(',"diagnostics":{"id":1},"fallbacks":[{"model":"x"}]'),
      {},
      messages(""),
      ["diagnostics", "fallbacks"],
    ],
    [
      "another answer of the upstream account",
      "responses",
      responses(',"prompt_cache_options":{"comparison_response_id":"resp_1","mode":"explicit"}'),
      {},
      responses(',"prompt_cache_options":{"mode":"explicit"}'),
      ["prompt_cache_options.comparison_response_id"],
    ],
    [
      "known members in other letters, beside what is removed and inserted",
      "chat",
      chat(',"stream":true,"stream_options":{"Include_Usage":false,"includeUsage":null},"store":false'),
      {},
      chat(',"stream":true,"stream_options":{"include_usage":true},"store":false'),
      ["stream_options.Include_Usage"],
    ],
    [
      "all members of one object",
      "responses",
      responses(
        ',"prompt_cache_options":{"comparison_response_id":"resp_1","ComparisonResponseId":"resp_2","comparisonResponseId":"resp_3"}',
      ),
      {},
      responses(',"prompt_cache_options":{}'),
      [
        "prompt_cache_options.comparison_response_id",
        "prompt_cache_options.ComparisonResponseId",
        "prompt_cache_options.comparisonResponseId",
      ],
    ],
    [
      "no answer of the upstream account",
      "chat",
      chat(',"prompt_cache_options":{"ttl":"30m","comparison_response_id":null}'),
      {},
      chat(',"prompt_cache_options":{"ttl":"30m"}'),
      [],
    ],
  ])("%s: %s", (_name, dialect, body, route, expected, dropped) => {
    const edited = edit(dialect, body, route);
    expect(edited.text).toBe(expected);
    expect(edited.dropped).toEqual(dropped);
    const strictly = () => edit(dialect, body, route, true);
    if (dropped.length === 0) strictly();
    else
      expect(strictly).toThrow(expect.objectContaining({ code: "unsupported_parameter", param: dropped[0] }));
  });
});

test("without anything to edit the very same buffer goes upstream", () => {
  const body = Buffer.from(messages(',"stream":true'));
  const route = routeTo([upstream("messages")], { limits });
  const wishes = { strict: false, encryptedReasoning: true, tiers: noTiers };
  expect(relayBody(inspectBody("messages", body), route, upstream("messages"), wishes, sealer).body).toBe(
    body,
  );
});

test("rule 7.3: of many members in other letters each is looked at once", () => {
  const names = Array.from({ length: 32_768 }, (_, index) => {
    const [first, second, third] = [index % 32, (index >> 5) % 32, index >> 10];
    return `m${"_".repeat(first)}o${"_".repeat(second)}d${"_".repeat(third)}E`;
  });
  const reasoning = Object.fromEntries(names.map((name) => [name, "pro"]));
  const body = inspectBody("responses", Buffer.from(responses(`,"reasoning":${JSON.stringify(reasoning)}`)));
  const wishes = { strict: false, encryptedReasoning: false, tiers: noTiers };
  const before = computedMs();
  const sent = relayBody(body, routeTo([], { limits }), upstream("responses"), wishes, sealer);
  expect(computedMs() - before).toBeLessThan(500);
  expect(sent.body.toString()).toBe(responses(',"reasoning":{}'));
  expect(sent.dropped).toHaveLength(names.length);
});

test("whatever stands between is not touched, wherever the edited fields are", () => {
  const unknown = fc.uniqueArray(
    fc.tuple(
      fc.string({ maxLength: 5 }).map((key) => `x${key}`),
      fc.json({ maxDepth: 2 }),
    ),
    { selector: ([key]) => key, maxLength: 4 },
  );
  const known = fc.subarray([
    ["temperature", "0.5"],
    ["top_p", "1"],
    ["top_k", "5"],
    ["diagnostics", "{}"],
    ["thinking", '{"type":"enabled","budget_tokens":1024}'],
  ] as [string, string][]);
  fc.assert(
    fc.property(unknown, known, fc.infiniteStream(fc.nat()), (others, edited, order) => {
      const base: [string, string][] = [
        ["model", '"public"'],
        ["messages", "[{}]"],
        ["max_tokens", "999"],
      ];
      const fields = [...base, ...edited, ...others].map((field) => ({ field, at: order.next().value ?? 0 }));
      fields.sort((one, other) => one.at - other.at);
      const body = `{${fields.map(({ field: [key, value] }) => `${JSON.stringify(key)}:${value}`).join(",")}}`;
      const sent = edit("messages", body, { capabilities: { ...able, samplingParameters: false } }).text;
      for (const [key, value] of others) expect(sent).toContain(`${JSON.stringify(key)}:${value}`);
      const parsed = JSON.parse(sent) as Record<string, unknown>;
      expect(parsed).toMatchObject({ model: "m", max_tokens: 100 });
      expect(Object.keys(parsed)).not.toEqual(expect.arrayContaining(["temperature"]));
      expect(sent).not.toMatch(/"(temperature|top_p|top_k|diagnostics|budget_tokens)":/);
    }),
  );
});

describe("the content of reasoning, for items that are kept", () => {
  const sent = (body: string, more: Partial<Route> = {}, encryptedReasoning = true) => {
    const route = routeTo([upstream("responses")], { limits, ...more });
    const wishes = { strict: false, encryptedReasoning, tiers: noTiers };
    const written = relayBody(
      inspectBody("responses", Buffer.from(body)),
      route,
      upstream("responses"),
      wishes,
      sealer,
    );
    return { text: written.body.toString(), asked: written.reasoningAsked };
  };
  const include = '"include":["reasoning.encrypted_content"]';

  test.each([
    ["is asked for", "", `{${include},"model":"m","input":"x","store":false}`, true],
    [
      "is asked for beside what else is",
      ',"include":["a"]',
      responses(`,${include.replace("[", '["a",')}`),
      true,
    ],
    ["is not asked for twice", `,${include}`, responses(`,${include}`), false],
    [
      "leaves an include that is no list to the upstream",
      ',"include":"x"',
      responses(',"include":"x"'),
      false,
    ],
  ])("%s", (_, more, text, asked) => {
    expect(sent(responses(more))).toEqual({ text, asked });
  });

  test("is not asked for where nothing is kept, nor of a model that does not think", () => {
    expect(sent(responses(""), {}, false)).toEqual({ text: responses(""), asked: false });
    const plain = { capabilities: { ...able, thinking: false } };
    expect(sent(responses(""), plain)).toEqual({ text: responses(""), asked: false });
  });
});

test("rule 2.17: reasoning without content is cut, which no upstream could find again", () => {
  const bare = '{"type":"reasoning","id":"rs","summary":[]}';
  const user = '{"role":"user","content":"x"}';
  const item = (encrypted: string) => `{"type":"reasoning","id":"rs","encrypted_content":"${encrypted}"}`;
  const place = { dialect: "responses", field: "encrypted", id: "rs" } as const;
  const sealed = item(sealBlob(place, "abc", sealer));
  const body = (...items: string[]) => `{"model":"m","store":false,"input":[${items.join(", ")}]}`;
  expect(edit("responses", body(bare, user, bare, sealed, bare, bare)).text).toBe(body(user, item("abc")));
});

describe("rule 2.10: a file that an earlier answer cites is no file of the client's", () => {
  const web = '{"type":"url_citation","url":"https://a.example/","title":"","start_index":0,"end_index":1}';
  const file = '{"type":"file_citation","file_id":"file_theirs","filename":"a","index":1}';
  const container =
    '{"container_id":"cntr_1","type":"container_file_citation","file_id":"cfile_1","filename":"a"}';
  const answer = (annotations: string) =>
    `{"model":"m","store":false,"input":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[${annotations}]}]}]}`;

  test.each([
    [file, ""],
    [`${file} , ${web}`, web],
    [`${web},${container}`, web],
    [`${web},${file},${web},${container}`, `${web},${web}`],
    [web, web],
    ["", ""],
  ])("its citation is cut from a relayed body: %s", (sent, left) => {
    expect(edit("responses", answer(sent)).text).toBe(answer(left));
    expect(edit("responses", answer(sent)).dropped).toEqual([]);
  });

  test.each([
    '{"type":"x","source":{"file_id":"file_1"}}',
    '{"file_id":"file_1"}',
    `${file},{"type":"url_citation","file_id":"file_1"}`,
  ])("ids in any other annotation are found as everywhere: %s", (annotations) => {
    const { references } = inspectBody("responses", Buffer.from(answer(annotations))).content;
    expect(references).toMatchObject([{ kind: "file", id: "file_1" }]);
  });

  test.each(["file_id", "container_id"])("a list of more than any answer has is refused: %s", (key) => {
    const many = answer(Array.from({ length: 10_001 }, () => `{"${key}":"f"}`).join(","));
    expect(() => inspectBody("responses", Buffer.from(many))).toThrow(/10,?000/);
  });
});

describe("rule 2.10: nor is a file that an earlier Messages answer cites, or that a Chat answer is annotated with", () => {
  const cited = (fileId: string, more = '"type":"char_location"') =>
    `{"file_id":${fileId},"cited_text":"a","document_index":0,${more},"start_char_index":0,"end_char_index":1}`;
  const answer = (citation: string) =>
    `{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"text","text":"x","citations":[${citation}]}]}]}`;

  test.each(["char_location", "page_location", "content_block_location"])(
    "its id is null in a relayed %s",
    (type) => {
      const sent = answer(cited('"file_theirs"', `"type":"${type}"`));
      expect(inspectBody("messages", Buffer.from(sent)).content.references).toEqual([]);
      expect(edit("messages", sent).text).toBe(answer(cited("null", `"type":"${type}"`)));
      expect(edit("messages", sent).dropped).toEqual([]);
    },
  );

  test.each(['"type":"x"', '"type":"web_search_result_location"', '"kind":1'])(
    "an id in any other citation is found as everywhere: %s",
    (more) => {
      const { references } = inspectBody("messages", Buffer.from(answer(cited('"f"', more)))).content;
      expect(references).toMatchObject([{ kind: "file", id: "f" }]);
    },
  );

  test("an id that is no text is refused as everywhere", () => {
    expect(() => inspectBody("messages", Buffer.from(answer(cited("1"))))).toThrow(/must be a string/);
  });

  test("more than any answer has are refused", () => {
    const many = answer(Array.from({ length: 10_001 }, () => cited('"f"')).join(","));
    expect(() => inspectBody("messages", Buffer.from(many))).toThrow(/10,?000/);
  });

  test("a Chat message's annotation of a file is cut", () => {
    const web = '{"type":"url_citation","url_citation":{"url":"https://a.example/"}}';
    const file = '{"type":"file_citation","file_citation":{"file_id":"file-theirs"}}';
    const chat = (annotations: string) =>
      `{"model":"m","messages":[{"role":"assistant","content":"x","annotations":[${annotations}]}]}`;
    expect(inspectBody("chat", Buffer.from(chat(file))).content.references).toEqual([]);
    expect(edit("chat", chat(`${file},${web}`)).text).toBe(chat(web));
  });
});
