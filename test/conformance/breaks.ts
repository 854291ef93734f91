/** For each check the smallest fault of a gateway that it, and no other, has to find. */
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import { fieldsOf, type Fields } from "../grammar/sse.ts";
import { changeBody, changeEvents, type Draft, type Reference } from "./reference.ts";

type Fault = (draft: Draft, dialect: Dialect) => void | Promise<void>;

const prompts = (draft: Draft) =>
  JSON.stringify(draft.asked.body["messages"] ?? draft.asked.body["input"] ?? "");
const isStream = ({ asked, status }: Draft) => status === 200 && asked.body["stream"] === true;
const isWhole = (draft: Draft) => draft.status === 200 && draft.dialect !== null && !isStream(draft);
const asks = (draft: Draft, words: string) => prompts(draft).includes(words);
const hello = (draft: Draft) => prompts(draft).includes('"Say hello"');
const hasTools = ({ asked }: Draft) => "tools" in asked.body;
const hasKey = ({ asked }: Draft) => "x-api-key" in asked.headers || "authorization" in asked.headers;
const list = (value: unknown): Fields[] => (Array.isArray(value) ? value.map(fieldsOf) : []);

/** Where the text of a whole answer stands. */
function setText(body: Fields, dialect: Dialect, text: string | null): Fields {
  if (dialect === "messages")
    return { ...body, content: text === null ? [] : [{ type: "text", text, citations: null }] };
  if (dialect === "responses")
    return {
      ...body,
      output: list(body["output"]).map((item) =>
        text === null
          ? { ...item, content: [] }
          : { ...item, content: list(item["content"]).map((part) => ({ ...part, text })) },
      ),
    };
  const [choice = {}] = list(body["choices"]);
  return {
    ...body,
    choices: [{ ...choice, message: { ...fieldsOf(choice["message"]), content: text ?? "" } }],
  };
}

/** A stream whose events are all there, and say nothing. */
function withoutText(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutText);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [
      name,
      typeof inner === "string" && ["text", "delta", "content"].includes(name) ? "" : withoutText(inner),
    ]),
  );
}

/** One more call of the tool. */
function withCall(body: Fields, dialect: Dialect): Fields {
  const args = '{"city":"Bandung"}';
  if (dialect === "messages") {
    const call = { type: "tool_use", id: "toolu_more", name: "weather", input: JSON.parse(args) as object };
    return { ...body, content: [...list(body["content"]), call] };
  }
  if (dialect === "responses") {
    const call = {
      type: "function_call",
      id: "fc_more",
      call_id: "call_more",
      name: "weather",
      arguments: args,
    };
    return { ...body, output: [...list(body["output"]), call] };
  }
  const [choice = {}] = list(body["choices"]);
  const message = fieldsOf(choice["message"]);
  const call = { id: "call_more", type: "function", function: { name: "weather", arguments: args } };
  const calls = [...list(message["tool_calls"]), call];
  return { ...body, choices: [{ ...choice, message: { ...message, tool_calls: calls } }] };
}

/** Dialects whose client has gone away. */
const left = new Set<Dialect | null>();

const usageFields = {
  messages: { output: "output_tokens" },
  chat: { output: "completion_tokens" },
  responses: { output: "output_tokens" },
} as const;

/** Changes each report of usage, wherever it stands in an event or answer. */
function changeUsage(value: Fields, change: (usage: Fields) => unknown): Fields {
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => {
      if (name === "usage" && inner !== null) return [name, change(fieldsOf(inner))];
      return name === "message" || name === "response"
        ? [name, changeUsage(fieldsOf(inner), change)]
        : [name, inner];
    }),
  );
}

const noOutput = (dialect: Dialect) => (usage: Fields) => ({ ...usage, [usageFields[dialect].output]: 0 });

/** An answer as if it had ended by itself. */
const endedByItself = {
  messages: (text: string) =>
    text
      .replaceAll('"max_tokens"', '"end_turn"')
      .replaceAll('"stop_sequence":"7"', '"stop_sequence":null')
      .replaceAll('"stop_reason":"stop_sequence"', '"stop_reason":"end_turn"'),
  chat: (text: string) => text.replaceAll('"finish_reason":"length"', '"finish_reason":"stop"'),
  responses: (text: string) =>
    text
      .replaceAll('"status":"incomplete"', '"status":"completed"')
      .replaceAll("response.incomplete", "response.completed")
      .replaceAll('{"reason":"max_output_tokens"}', "null"),
} as const;

const refuseWith = (draft: Draft, status: number) => {
  draft.status = status;
  draft.headers["content-type"] = "application/json";
  draft.body = "{}";
};

const errorWith = (draft: Draft, fields: Fields) =>
  changeBody(draft, (body) => ({ ...body, error: { ...fieldsOf(body["error"]), ...fields } }));

/** Was refused, and is now taken. */
const takenFor =
  (applies: (draft: Draft) => boolean): Fault =>
  (draft) => {
    if (!applies(draft)) return;
    draft.status = 200;
  };

const lacksInput = ({ asked, dialect }: Draft) =>
  dialect !== null &&
  "model" in asked.body &&
  asked.method === "POST" &&
  !("messages" in asked.body) &&
  !("input" in asked.body);
const wrongInput = ({ asked }: Draft) => asked.body["messages"] === 7 || asked.body["input"] === 7;

export const breaks: Readonly<Record<string, Fault | Partial<Reference>>> = {
  answered: (draft) => {
    if (hello(draft) && isStream(draft)) refuseWith(draft, 503);
  },
  "whole-shape": (draft) => {
    if (hello(draft) && isWhole(draft)) changeBody(draft, ({ model: _, ...body }) => body);
  },
  "whole-type": (draft) => {
    if (isWhole(draft)) draft.headers["content-type"] = "text/plain";
  },
  "whole-text": (draft, dialect) => {
    if (hello(draft) && isWhole(draft)) changeBody(draft, (body) => setText(body, dialect, null));
  },
  "stream-type": (draft) => {
    if (isStream(draft) && asks(draft, 'Count to 20"')) draft.headers["content-type"] = "application/json";
  },
  "stream-framing": (draft) => {
    if (isStream(draft) && asks(draft, 'Count to 20"')) draft.body = `${draft.body.toString()}data: cut o`;
  },
  "stream-events": (draft, dialect) => {
    if (!isStream(draft) || !asks(draft, 'Count to 20"')) return;
    changeEvents(draft, (data) => {
      if (dialect === "chat" && list(data["choices"]).length > 0) return { ...data, service_tier: 7 };
      if (data["type"] === "response.output_text.delta") return { ...data, logprobs: [7] };
      if (data["type"] === "message_start")
        return { ...data, message: { ...fieldsOf(data["message"]), content: [], stop_details: 7 } };
      return data;
    });
  },
  "stream-order": (draft, dialect) => {
    if (!isStream(draft) || !asks(draft, 'Count to 20"')) return;
    // The head, the sequence or the name of an event: what SDKs put together is the same.
    if (dialect === "chat")
      changeEvents(draft, (data, index) => (index === 3 ? { ...data, id: "other" } : data));
    if (dialect === "responses") changeEvents(draft, (data) => ({ ...data, sequence_number: 5 }));
    if (dialect === "messages") draft.body = `${draft.body.toString()}event: ping\ndata: {"type":"ping"}\n\n`;
  },
  "stream-tidy": (draft, dialect) => {
    if (!isStream(draft) || !asks(draft, 'Count to 20"')) return;
    if (dialect === "chat")
      changeEvents(draft, (data, index) => {
        const [choice = {}] = list(data["choices"]);
        const again = { ...fieldsOf(choice["delta"]), role: "assistant" };
        return index === 2 ? { ...data, choices: [{ ...choice, delta: again }] } : data;
      });
    if (dialect === "messages") draft.body = `event: ping\ndata: {"type":"ping"}\n\n${draft.body.toString()}`;
  },
  "stream-sdk": (draft) => {
    if (isStream(draft) && asks(draft, 'Count to 20"'))
      changeEvents(draft, (data) => fieldsOf(withoutText(data)));
  },
  "usage-unasked": (draft) => {
    if (!isStream(draft) || "stream_options" in draft.asked.body) return;
    const chunk = { id: "x", object: "chat.completion.chunk", created: 1, model: "m", choices: [] };
    draft.body = draft.body
      .toString()
      .replace("data: [DONE]", `data: ${JSON.stringify(chunk)}\n\ndata: [DONE]`);
  },
  "stream-flows": { gather: true },
  "error-body": (draft) => {
    if (lacksInput(draft) && draft.status === 400)
      changeBody(draft, (body) => ({
        ...body,
        error: { ...fieldsOf(body["error"]), message: ["messages", "input"] },
      }));
  },
  "error-missing-field": takenFor(lacksInput),
  "error-wrong-type": takenFor((draft) => wrongInput(draft) && draft.asked.body["stream"] !== true),
  "error-not-json": (draft) => {
    if (draft.asked.text === '{"model":') draft.status = 500;
  },
  "error-model": (draft) => {
    if (draft.status === 404 && draft.dialect !== null) draft.status = 400;
  },
  "error-model-code": (draft) => {
    if (draft.status === 404 && draft.dialect !== null) errorWith(draft, { code: "no_such_model" });
  },
  "error-no-key": (draft) => {
    if (draft.status === 401 && !hasKey(draft)) draft.status = 403;
  },
  "error-wrong-key": (draft) => {
    if (
      draft.status === 401 &&
      hasKey(draft) &&
      draft.asked.headers.authorization !== "Bearer sk-reference-admin"
    )
      draft.status = 403;
  },
  "error-key-code": (draft) => {
    if (draft.status === 401) errorWith(draft, { code: null });
  },
  "error-before-stream": (draft) => {
    if (!wrongInput(draft) || draft.asked.body["stream"] !== true) return;
    draft.status = 200;
    draft.headers["content-type"] = "text/event-stream";
  },
  "error-no-retry": (draft) => {
    delete draft.headers["x-should-retry"];
  },
  "error-names-field": (draft) => {
    if (lacksInput(draft) && draft.status === 400) errorWith(draft, { message: "no" });
  },
  "error-method": (draft) => {
    if (draft.status === 405) draft.status = 404;
  },
  "request-id": (draft) => {
    if (draft.dialect === null || draft.status !== 200) return;
    delete draft.headers["request-id"];
    delete draft.headers["x-request-id"];
  },
  "request-id-in-error": (draft) => {
    if (draft.status === 404) changeBody(draft, (body) => ({ ...body, request_id: "req_other" }));
  },
  bearer: (draft) => {
    if ("authorization" in draft.asked.headers && draft.status === 200 && draft.dialect !== null)
      refuseWith(draft, 401);
  },
  versions: (draft) => {
    if (draft.asked.headers["anthropic-version"] === "2026-10-21") refuseWith(draft, 400);
  },
  "unknown-beta": (draft) => {
    if ("anthropic-beta" in draft.asked.headers) refuseWith(draft, 400);
  },
  "client-headers": (draft) => {
    if (draft.asked.url.includes("?beta=true")) refuseWith(draft, 400);
  },
  "stream-headers": (draft) => {
    delete draft.headers["x-accel-buffering"];
  },
  "account-hidden": (draft) => {
    draft.headers["openai-organization"] = "provider-org-secret";
  },
  "models-openai": (draft) => {
    if (draft.asked.path === "/v1/models")
      changeBody(draft, (body) => ({
        ...body,
        data: list(body["data"]).map(({ owned_by: _, ...model }) => model),
      }));
  },
  "models-messages": (draft) => {
    if (draft.asked.path === "/v1/models") changeBody(draft, ({ has_more: _, ...body }) => body);
  },
  model: (draft) => {
    if (draft.asked.path.startsWith("/v1/models/") && draft.status === 404) draft.status = 400;
  },
  "model-listed": (draft) => {
    if (draft.asked.path !== "/v1/models") return;
    draft.body = draft.body.toString().replaceAll("reference-1", "reference-2");
  },
  "usage-whole": (draft, dialect) => {
    if (hello(draft) && isWhole(draft)) changeBody(draft, (body) => changeUsage(body, noOutput(dialect)));
  },
  "usage-stream": (draft, dialect) => {
    if (isStream(draft) && asks(draft, 'Count to 20"'))
      changeEvents(draft, (data) => changeUsage(data, noOutput(dialect)));
  },
  "usage-exact": (draft, dialect) => {
    if (!asks(draft, "cacheRead") || !isWhole(draft)) return;
    changeBody(draft, (body) =>
      changeUsage(body, (usage) => ({ ...usage, [usageFields[dialect].output]: 29 })),
    );
  },
  "tool-call": (draft) => {
    if (
      isWhole(draft) &&
      hasTools(draft) &&
      draft.asked.body["stream"] !== true &&
      !asks(draft, "31 degrees") &&
      asks(draft, "What is the weather")
    )
      draft.body = draft.body.toString().replace(/("name":")weather"/, '$1other"');
  },
  "tool-call-stream": (draft) => {
    if (isStream(draft) && hasTools(draft))
      draft.body = draft.body.toString().replaceAll('"name":"weather"', '"name":"other"');
  },
  "tool-loop": (draft) => {
    if (asks(draft, "31 degrees")) refuseWith(draft, 400);
  },
  "tool-parallel": (draft) => {
    if (asks(draft, "sunny, 12:00")) refuseWith(draft, 400);
  },
  "tool-one-at-a-time": (draft, dialect) => {
    const { parallel_tool_calls: parallel, tool_choice: choice } = draft.asked.body;
    if (parallel === false || fieldsOf(choice)["disable_parallel_tool_use"] === true)
      changeBody(draft, (body) => withCall(body, dialect));
  },
  "tool-none": (draft, dialect) => {
    const { tool_choice: choice } = draft.asked.body;
    if (choice === "none" || fieldsOf(choice)["type"] === "none")
      changeBody(draft, (body) => withCall(body, dialect));
  },
  "max-tokens": (draft, dialect) => {
    if (isWhole(draft) && asks(draft, 'Count to 200"'))
      draft.body = endedByItself[dialect](draft.body.toString());
  },
  "max-tokens-stream": (draft, dialect) => {
    if (isStream(draft) && asks(draft, 'Count to 200"'))
      draft.body = endedByItself[dialect](draft.body.toString());
  },
  "max-tokens-negative": (draft) => {
    const { max_tokens: a, max_completion_tokens: b, max_output_tokens: c } = draft.asked.body;
    if ([a, b, c].includes(-1)) draft.status = 422;
  },
  "stop-sequence": (draft, dialect) => {
    if ("stop" in draft.asked.body || "stop_sequences" in draft.asked.body)
      changeBody(draft, (body) => setText(body, dialect, "5 6 7 8"));
  },
  "odd-prompt": (draft) => {
    if (asks(draft, "Say hello. ")) refuseWith(draft, 400);
  },
  "escaped-json": (draft) => {
    if (draft.asked.text.includes("\\u006d")) refuseWith(draft, 400);
  },
  "not-utf8": (draft) => {
    if (draft.asked.text.includes("\u{FFFD}")) draft.status = 500;
  },
  "deep-json": (draft) => {
    if (draft.asked.text.includes("[[[[[")) draft.status = 500;
  },
  "exact-text": (draft) => {
    if (isWhole(draft) && !asks(draft, "Say hello. "))
      draft.body = draft.body.toString().replaceAll("\u{FEFF}", "");
  },
  cancel: (draft) => {
    // Its request is told from that of `max-tokens-stream` by its many tokens.
    const { max_tokens: a, max_completion_tokens: b, max_output_tokens: c } = draft.asked.body;
    if (isStream(draft) && asks(draft, 'Count to 200"') && [a, b, c].includes(200)) left.add(draft.dialect);
    else if (left.delete(draft.dialect)) refuseWith(draft, 429);
  },
  "cancel-upstream": { cancels: false },
  "cancel-waiting": { cancels: false },
  "slow-stream": (draft) => {
    if (!isStream(draft) || !asks(draft, "Count to 40")) return;
    const text = draft.body.toString();
    draft.body = text.slice(0, text.indexOf("\n\n", text.length / 2) + 2);
  },
  "slow-large-stream": (draft) => {
    if (isStream(draft) && asks(draft, "hugeBytes")) draft.body = draft.body.toString().slice(0, 1024 * 1024);
  },
  "upstream-cut": (draft) => {
    if (asks(draft, "cutAtEvent"))
      draft.body = draft.body.toString().replace(/(?:event: error\n)?data: [^\n]*broke off[^\n]*\n\n$/, "");
  },
  "upstream-error": (draft) => {
    if (draft.status === 502 && !asks(draft, "acct_secret")) changeBody(draft, () => ({ oh: "no" }));
  },
  "upstream-hidden": (draft) => {
    if (draft.status === 502 && asks(draft, "acct_secret"))
      draft.body = draft.body.toString().replace("the upstream", "acct_secret");
  },
  "admin-organization": (draft) => {
    if (draft.asked.path === "/v1/organizations/me") changeBody(draft, ({ name: _, ...body }) => body);
  },
  "admin-projects": (draft) => {
    if (draft.asked.path === "/v1/organization/projects") changeBody(draft, ({ data: _, ...body }) => body);
  },
  "admin-key-asks-nothing": (draft) => {
    if (draft.asked.headers.authorization === "Bearer sk-reference-admin" && draft.dialect !== null)
      draft.status = 403;
  },
};
