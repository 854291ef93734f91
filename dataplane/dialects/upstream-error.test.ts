import { describe, expect, test } from "vitest";
import { computedMs } from "../../test/fakes/computed.ts";
import type { ApiError } from "../lib/api-error.ts";
import { chatErrorChunk, errorBody, messagesErrorBody, openaiErrorBody } from "./errors.ts";
import {
  inBandError,
  inBandWords,
  refusalOf,
  retryAfterSeconds,
  upstreamError,
  withoutOwn,
} from "./upstream-error.ts";
import { ownSecrets } from "./own-secrets.ts";
import { withoutForeignPaths } from "./told-places.ts";

const names = { upstreamModel: "vendor/secret-model", model: "public-model" };
const failure = (status: number, body: unknown, retryAfter: string | null = null) =>
  upstreamError({
    dialect: "chat",
    status,
    body: typeof body === "string" ? body : JSON.stringify(body),
    retryAfter,
    now: Date.UTC(2026, 0, 1),
    ...names,
  });
const openai = (message: string, code: string | null = null, param: string | null = null) => ({
  error: { message, type: "invalid_request_error", param, code },
});
const anthropic = (message: string) => ({
  type: "error",
  error: { type: "invalid_request_error", message },
});

describe("rule 2.12: an upstream's status", () => {
  test.each([
    [400, 400],
    [401, 502],
    [403, 502],
    [404, 502],
    [408, 504],
    [409, 502],
    [413, 413],
    [422, 400],
    [429, 429],
    [302, 502],
    [500, 502],
    [502, 502],
    [503, 503],
    [504, 504],
    [529, 529],
  ])("%i reaches the client as %i", (status, expected) => {
    expect(failure(status, openai("temperature is too high")).kind.status).toBe(expected);
  });

  test.each([401, 403, 404, 409, 413, 422, 429, 500, 503, 529])(
    "%i keeps the provider's words to itself",
    (status) => {
      const error = failure(
        status,
        openai("Incorrect key sk-abcdef123456 of org-abcdef12, see https://vendor.example"),
      );
      expect(error.message).not.toMatch(/sk-|org-|vendor|Incorrect/);
    },
  );
});

describe("rule 1.5: a 400", () => {
  test("passes what it says about the client's own request, with the field", () => {
    const error = failure(
      400,
      openai("Invalid 'temperature': at most 2.", "decimal_above_max_value", "temperature"),
    );
    expect(error.message).toBe("Invalid 'temperature': at most 2.");
    expect(error.param).toBe("temperature");
    expect(failure(400, anthropic("messages.0: all messages must have content")).message).toBe(
      "messages.0: all messages must have content",
    );
  });

  test("shows neither keys, addresses and ids nor the model's name there", () => {
    const error = failure(
      400,
      openai(
        "vendor/secret-model at https://eu.vendor.example/v1 (10.2.3.4:8080) refused sk-proj-abc123def456 of org-abcdefgh12, req_0123456789, mail a.b@vendor.example",
      ),
    );
    expect(error.message).toBe(
      "public-model at [address] ([address]) refused [key] of [id], [id], mail [address]",
    );
  });

  test("shows the field user_location, which looks like an id", () => {
    expect(failure(400, anthropic("tools.0.user_location: of user_locations1")).message).toBe(
      "tools.0.user_location: of [id]",
    );
  });

  test.each([
    "Your credit balance is too low to access the Anthropic API.",
    "This organization has been disabled.",
    "API key not valid. Please pass a valid API key.",
    "You exceeded your current quota, please check your plan and billing details.",
  ])("that speaks of our account is ours to mend: %s", (message) => {
    const error = failure(400, openai(message));
    expect(error.code).toBe("upstream_error");
    expect(error.message).not.toContain(message);
  });

  test("that does not know our name of its model is ours to mend, as a 404 is", () => {
    const error = failure(400, openai("The model `vendor/secret-model` does not exist", "model_not_found"));
    expect(error).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
  });

  test("that only mentions a tool called workspace stays a 400", () => {
    expect(failure(400, openai("Invalid schema for function 'get_workspace'.")).code).toBe("invalid_request");
  });

  test("without a readable body has the gateway's own words", () => {
    expect(failure(400, "<html>nginx</html>")).toMatchObject({
      code: "invalid_request",
      message: "The model's provider refused the request as invalid.",
    });
  });
});

describe("rule 1.5: the code of a refusal", () => {
  const detailed = (code: string) => ({
    type: "error",
    error: {
      type: "invalid_request_error",
      message: "tools.0.name: taken",
      details: { error_code: code, at: "https://vendor.example" },
    },
  });
  const told = (body: unknown, status = 400) => failure(status, body);
  const inMessages = (body: unknown) => messagesErrorBody(told(body), "req_1")["error"];
  const inChat = (body: unknown) => openaiErrorBody(told(body))["error"];

  test("stands in the body of its own dialect", () => {
    expect(inChat(openai("Too high.", "decimal_above_max_value", "temperature"))).toEqual({
      message: "Too high.",
      type: "invalid_request_error",
      param: "temperature",
      code: "decimal_above_max_value",
    });
    expect(inMessages(detailed("tool_name_conflict"))).toEqual({
      type: "invalid_request_error",
      message: "tools.0.name: taken",
      code: "tool_name_conflict",
      details: { error_code: "tool_name_conflict" },
    });
  });

  test("and in that of another, with the field where both have it under one name", () => {
    const converted = withoutForeignPaths(told(openai("Too high.", "integer_above_max_value", "top_p")));
    expect(openaiErrorBody(converted)["error"]).toMatchObject({
      param: "top_p",
      code: "integer_above_max_value",
    });
    expect(messagesErrorBody(converted, "req_1")["error"]).toMatchObject({
      details: { error_code: "integer_above_max_value" },
    });
    const foreign = withoutForeignPaths(told(openai("Bad.", "invalid_value", "input[0].content")));
    expect(openaiErrorBody(foreign)["error"]).toMatchObject({ param: null, code: "invalid_value" });
    expect(openaiErrorBody(withoutForeignPaths(told(detailed("tool_name_conflict"))))["error"]).toEqual({
      message: "taken",
      type: "invalid_request_error",
      param: null,
      code: "tool_name_conflict",
    });
  });

  test("inside a stream as well", () => {
    const error = inBandError({
      error: { type: "invalid_request_error", message: "Bad image.", code: "invalid_image", param: "input" },
    });
    expect(chatErrorChunk(error)).toContain('"param":"input","code":"invalid_image"');
  });

  test("of a 422 too, whose words are not shown: with the field that it names", () => {
    const error = told({ detail: [{ type: "less_than", loc: ["body", "top_p"], msg: "secret words" }] }, 422);
    expect(openaiErrorBody(error)["error"]).toEqual({
      message: "The model's provider refused the request as invalid.",
      type: "invalid_request_error",
      param: "top_p",
      code: null,
    });
    expect(
      openaiErrorBody(told(openai("no", "unsupported_value", "some words"), 422))["error"],
    ).toMatchObject({
      param: null,
      code: "unsupported_value",
    });
  });

  describe("in a list, as Google's", () => {
    const google = (message: string, status = "INVALID_ARGUMENT") => [
      { error: { code: 400, message, status } },
    ];

    test("has its words and its code told as of the other forms", () => {
      expect(told(google("top_p must be at most 1.")).message).toBe("top_p must be at most 1.");
      const long = "The input token count (1048600) exceeds the maximum number of tokens allowed (1048576).";
      expect(told(google(long))).toMatchObject({
        code: "context_length_exceeded",
        message: "prompt is too long: 1048600 tokens > 1048576 maximum",
      });
    });

    test("about our key there is ours to mend", () => {
      const error = told(google("API key not valid. Please pass a valid API key."));
      expect(error).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
    });
  });

  describe("that an aggregator wraps (OpenRouter)", () => {
    const wrapped = (raw: unknown, code = 400) => ({
      error: {
        message: "Provider returned error",
        code,
        metadata: { raw: typeof raw === "string" ? raw : JSON.stringify(raw), provider_name: "Vendor" },
      },
    });

    test("says what is inside", () => {
      expect(inChat(wrapped(openai("Too high.", "decimal_above_max_value", "temperature")))).toEqual({
        message: "Too high.",
        type: "invalid_request_error",
        param: "temperature",
        code: "decimal_above_max_value",
      });
      expect(told(wrapped(anthropic("tools.0.name: taken"))).message).toBe("tools.0.name: taken");
      expect(told(wrapped(anthropic("prompt is too long: 210000 tokens > 200000 maximum")))).toMatchObject({
        code: "context_length_exceeded",
        message: "prompt is too long: 210000 tokens > 200000 maximum",
      });
    });

    test("says what Google says inside, in a list too", () => {
      const google = {
        error: { code: 400, message: "top_p must be at most 1.", status: "INVALID_ARGUMENT" },
      };
      for (const raw of [google, [google]])
        expect(told(wrapped(raw)).message).toBe("top_p must be at most 1.");
      expect(told(wrapped({ detail: "Bad field." })).message).toBe("Bad field.");
    });

    test("inside a stream as well", () => {
      expect(inBandError(wrapped(anthropic("Bad image.")))).toMatchObject({
        code: "invalid_request",
        message: "Bad image.",
      });
      expect(inBandError(wrapped(anthropic("secret words"), 429))).toMatchObject({ code: "rate_limited" });
    });

    test("but of a 422 nothing, to the client or the operator", () => {
      const error = inBandError(wrapped(anthropic("secret words"), 422));
      expect(error.code).toBe("invalid_request");
      expect([error.message, inBandWords(error, [])]).toEqual([
        "The model's provider refused the request as invalid.",
        null,
      ]);
    });

    test("and nothing where the account is meant, or what is inside is no error", () => {
      expect(told(wrapped(anthropic("Your credit balance is too low."))).code).toBe("upstream_error");
      for (const raw of ["", "no JSON", "[]", "{}", "null", '"text"', wrapped(wrapped(anthropic("deep")))])
        expect(told(wrapped(raw)).message).toBe("Provider returned error");
    });
  });

  test.each([
    ["no code", "some words of https://vendor.example"],
    ["a status", "400"],
    ["the model's name there", "secret.model"],
    ["a key", "sk_abcdef0123456789"],
  ])("is not shown where it is %s, nor the field", (_what, word) => {
    for (const status of [400, 422]) {
      const error = upstreamError({
        dialect: "chat",
        status,
        body: JSON.stringify(openai("Bad.", word, word)),
        retryAfter: null,
        now: 0,
        upstreamModel: "secret.model",
        model: "public-model",
      });
      const message = status === 400 ? "Bad." : "The model's provider refused the request as invalid.";
      expect(openaiErrorBody(error)["error"]).toMatchObject({ message, param: null, code: null });
    }
  });

  test("nor where it is what is known to be ours", () => {
    const secrets = ownSecrets("http://x", "s3cr3tkeyofours");
    const error = withoutOwn(told(openai("Bad.", "s3cr3tkeyofours")), () => ({ secrets, names }));
    expect(openaiErrorBody(error)["error"]).toMatchObject({ message: "Bad.", code: null });
  });

  test.each([
    "organization_on_hold",
    "billing_hard_limit_reached",
    "cmek_key_disabled",
    "user_profile_required",
    "AccountOverdueError",
    "InvalidSubscription.NotFound",
    "insufficient_balance",
    "Arrearage",
  ])("that speaks of our account is ours to mend: %s", (code) => {
    for (const body of [openai("It is so.", code), detailed(code)])
      expect(told(body)).toMatchObject({ code: "upstream_error", reportedCode: undefined });
  });
});

describe("a prompt that is too long, in the sentences that Claude Code reads", () => {
  test.each([
    [
      anthropic("prompt is too long: 210000 tokens > 200000 maximum"),
      "prompt is too long: 210000 tokens > 200000 maximum",
    ],
    [
      anthropic(
        "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length",
      ),
      "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000",
    ],
    [
      openai(
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
        "context_length_exceeded",
      ),
      "prompt is too long: 130001 tokens > 128000 maximum",
    ],
    [
      openai(
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion).",
      ),
      "input length and `max_tokens` exceed context limit: 4000 + 1000 > 4096",
    ],
    [
      openai("Your input exceeds the context window of this model.", "context_length_exceeded"),
      "prompt is too long: it does not fit into the model's context window",
    ],
    [
      openai(
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650 tokens. Please reduce the length of the messages.",
        "context_length_exceeded",
      ),
      "prompt is too long: 289650 tokens > 272000 maximum",
    ],
    [
      openai(
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens (7884 of text input, 131072 in the output).",
      ),
      "input length and `max_tokens` exceed context limit: 7884 + 131072 > 131072",
    ],
    [
      openai(
        "This endpoint's maximum context length is 16384 tokens. However, you requested about 94307 tokens (94307 of text input).",
      ),
      "prompt is too long: 94307 tokens > 16384 maximum",
    ],
    [
      openai("The input token count (1066750) exceeds the maximum number of tokens allowed (1048575)."),
      "prompt is too long: 1066750 tokens > 1048575 maximum",
    ],
  ])("%#", (body, message) => {
    expect(failure(400, body)).toMatchObject({ code: "context_length_exceeded", message });
  });
});

describe("a prompt that is too long, in OpenAI style", () => {
  const words =
    "The maximum context length is 10 tokens. However, your messages resulted in 20 tokens at https://vendor.example.";
  const shown = (error: ApiError) => openaiErrorBody(error)["error"];

  test("is told in the upstream's own words, with the field that it names", () => {
    const error = failure(400, openai(words, "context_length_exceeded", "messages"));
    expect(shown(error)).toEqual({
      message: words.replace("https://vendor.example.", "[address]"),
      type: "invalid_request_error",
      param: "messages",
      code: "context_length_exceeded",
    });
    expect(shown(withoutForeignPaths(error))).toMatchObject({
      message: expect.stringMatching(/\[address\]$/) as unknown,
      param: null,
    });
    expect(errorBody({ family: "openai", union: true }, error, "req_1")["error"]).toMatchObject({
      message: expect.stringMatching(/\[address\]$/) as unknown,
    });
  });

  test("without what is known to be ours", () => {
    const own = { secrets: ownSecrets("http://x", "s3cr3tkeyofours"), names };
    const error = withoutOwn(failure(400, openai(`${words} s3cr3tkeyofours`)), () => own);
    expect(shown(error)).toMatchObject({ message: expect.stringMatching(/\[key\]$/) as unknown });
  });

  test("keeps the sentence of Messages", () => {
    const sentence = "prompt is too long: 210000 tokens > 200000 maximum";
    expect(shown(failure(400, anthropic(sentence)))).toMatchObject({ message: sentence });
  });

  test("repeats nothing that speaks of our account", () => {
    const ours = openai("Your organization has a maximum context length of 10.", "context_length_exceeded");
    expect(shown(failure(400, ours))).toMatchObject({
      message: "prompt is too long: it does not fit into the model's context window",
      code: "context_length_exceeded",
    });
  });
});

describe("retry-after is an integer from 1 to 60 (rule 1.5)", () => {
  const now = Date.UTC(2026, 0, 1);
  test.each([
    [null, 5],
    ["", 5],
    ["soon", 5],
    ["0", 1],
    ["0.2", 1],
    ["12", 12],
    ["3600", 60],
    [new Date(now + 30_000).toUTCString(), 30],
    [new Date(now - 30_000).toUTCString(), 1],
  ])("%j becomes %i", (header, seconds) => {
    expect(retryAfterSeconds(header, now)).toBe(seconds);
  });

  test("a 429 has one, whether the upstream named it or not", () => {
    expect(failure(429, "", "7").retryAfterSeconds).toBe(7);
    expect(failure(429, "").retryAfterSeconds).toBe(5);
  });

  test("a quota of ours is never told as insufficient_quota", () => {
    expect(failure(429, openai("You exceeded your quota", "insufficient_quota")).code).toBe("rate_limited");
  });
});

describe("errors inside a stream", () => {
  test.each([
    [{ type: "error", error: { type: "overloaded_error", message: "x" } }, "overloaded"],
    [{ type: "error", error: { type: "rate_limit_error", message: "x" } }, "rate_limited"],
    [{ type: "error", error: { type: "api_error", message: "x" } }, "upstream_error"],
    [{ type: "error", error: { type: "authentication_error", message: "x" } }, "upstream_error"],
    [{ error: { message: "x", code: 503 } }, "unavailable"],
    [{ error: { message: "x", type: "server_error", code: null } }, "upstream_error"],
    [{ error: "boom" }, "upstream_error"],
    [{ error: { code: "constructor", type: "__proto__", message: "x" } }, "upstream_error"],
    [{ type: "error", code: "rate_limit_exceeded", message: "x", param: null }, "rate_limited"],
    [{ error: { code: "insufficient_quota", message: "x" } }, "upstream_error"],
    [{ error: { code: "context_length_exceeded", message: "x" } }, "context_length_exceeded"],
    [{ error: { type: "invalid_request_error", message: "bad image" } }, "invalid_request"],
  ])("%j is %s", (body, code) => {
    const error = inBandError(body);
    expect(error.code).toBe(code);
    expect(error.message === "x" || error.message === "boom").toBe(false);
  });
});

test.each([
  [{ type: "server_error", code: null }, true],
  [{ code: "vector_store_timeout" }, true],
  [{ code: 502 }, true],
  [{ code: 401 }, true],
  [{ type: "InternalServerError" }, true],
  [{}, true],
  [{ code: "invalid_image_url" }, false],
  [{ code: "image_content_policy_violation" }, false],
  [{ code: 422 }, false],
  [{ type: "BadRequestError" }, false],
  [{ type: "request_too_large" }, false],
])(
  "the words of an error inside an answer are kept only where they are not about the request: %j",
  (more, kept) => {
    const message = "what it says";
    expect(inBandWords(inBandError({ error: { message, ...more } }), [])).toBe(kept ? message : null);
  },
);

describe("rule 2.12: what is known to be ours is taken out of what an upstream says", () => {
  const told = (message: string, url: string, credential?: string) =>
    withoutOwn(inBandError(openai(message)), () => ({ secrets: ownSecrets(url, credential), names })).message;

  test.each([
    [
      "a key in pieces no pattern knows",
      "no s3cr3t+key/of=ours!",
      "http://x",
      "s3cr3t+key/of=ours",
      "no [key]!",
    ],
    ["a key that a pattern would cut", "sk-abcdefgh+rest", "http://x", "sk-abcdefgh+rest", "[key]"],
    ["an empty key", "a b", "http://x", "", "a b"],
    ["a short key", "none", "http://x", "no", "none"],
    [
      "a host and port",
      "at vllm:8000, vllm:80001",
      "http://vllm:8000/v1",
      undefined,
      "at [address], vllm:80001",
    ],
    ["a name of one word", "vllm says vllm:80", "http://vllm/v1", undefined, "vllm says [address]"],
    ["a name with dots", "LLM.ns.svc says no", "http://llm.ns.svc/v1", undefined, "[address] says no"],
    ["a URL", "see http://llm.ns.svc:81/v1/x, or", "http://llm.ns.svc:81/v1", undefined, "see [address] or"],
    [
      "a URL with IPv6",
      "at http://[fd00::1]:81/v1 (no)",
      "http://[fd00::1]:81/",
      undefined,
      "at [address] (no)",
    ],
    ["another's URL with IPv6", "at http://[fd00::2]:81/v1 (no)", "http://x", undefined, "at [address] (no)"],
    ["the end of another name", "my-llm.ns.svcs", "http://llm.ns.svc/v1", undefined, "my-llm.ns.svcs"],
    ["IPv6", "fd00::1 or [fd00::1]:81", "http://[fd00::1]:81/", undefined, "[address] or [address]"],
  ])("%s", (_what, message, url, credential, shown) => {
    expect(told(message, url, credential)).toBe(shown);
  });

  test("one that stands where the sentence is cut off", () => {
    const message = `${"x".repeat(1_990)} our-own-key-of-old`;
    expect(told(message, "http://x", "our-own-key-of-old")).not.toContain("our-own");
  });
});

describe("of what an error says in a whole answer, which may be as long as that, a beginning is read", () => {
  const said = (message: string) => refusalOf(inBandError(openai(message)))?.message ?? "";

  test("up to a word's end, as half of one may be the beginning of what nobody may see", () => {
    expect(said("word ".repeat(1_600))).toHaveLength(8_000);
    expect(said(`${"word ".repeat(1_630)}${"secret".repeat(1_000_000)}`)).toBe(
      "word ".repeat(1_630).trimEnd(),
    );
    expect(said("secret".repeat(2_000))).toBe("");
  });

  test("so that words which a search would begin at again and again take no time", () => {
    const before = computedMs();
    const overflow = "maximum context length is 1 tokens ".repeat(50_000);
    expect(inBandError(openai(overflow, "context_length_exceeded")).code).toBe("context_length_exceeded");
    expect(computedMs() - before).toBeLessThan(1_000);
  });
});
