/** The whole product, started as a user starts it, driven by the official SDKs against a scripted upstream. */
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { describe, expect, test } from "vitest";
import { processesOn } from "../fakes/processes-on.ts";
import { text, type Step } from "../fakes/upstream/script.ts";
import { printedAndLogged, writeRoute } from "./product.ts";
import { SharedProduct } from "./shared-product.ts";

const shared = new SharedProduct();
const { manifests, data } = shared;

const messages = [{ role: "user" as const, content: "Hello" }];
const answer = "Hello from the other side, said slowly.";
/** About two seconds of stream. */
const slow: Step = {
  ...text("one two three four five six seven eight"),
  faults: { delayBetweenEventsMs: 120 },
};

const textOf = (message: Anthropic.Message) =>
  message.content.map((block) => (block.type === "text" ? block.text : "")).join("");

/** One question in each dialect, by default to the model whose upstream speaks it too. */
const ask = {
  messages: async (model = "m-messages") => {
    const message = await shared.anthropic.messages.create({ model, max_tokens: 100, messages });
    return { model: message.model, text: textOf(message) };
  },
  chat: async (model = "m-chat") => {
    const completion = await shared.openai.chat.completions.create({ model, messages });
    return { model: completion.model, text: completion.choices[0]?.message.content };
  },
  responses: async (model = "m-responses") => {
    const response = await shared.openai.responses.create({ model, input: "Hello" });
    return { model: response.model, text: response.output_text };
  },
};

const stream = {
  messages: async (model = "m-messages") => {
    const message = await shared.anthropic.messages
      .stream({ model, max_tokens: 100, messages })
      .finalMessage();
    return { model: message.model, text: textOf(message) };
  },
  chat: async (model = "m-chat") => {
    const completion = await shared.openai.chat.completions.stream({ model, messages }).finalChatCompletion();
    return { model: completion.model, text: completion.choices[0]?.message.content };
  },
  responses: async (model = "m-responses") => {
    const response = await shared.openai.responses.stream({ model, input: "Hello" }).finalResponse();
    return { model: response.model, text: response.output_text };
  },
};

const dialects = ["messages", "chat", "responses"] as const;

describe.each(dialects)("the %s dialect", (dialect) => {
  test.each(dialects)("a model whose upstream speaks %s answers, whole and streamed", async (other) => {
    for (const how of [ask, stream]) {
      shared.upstream.reset();
      shared.upstream.next(text(answer));
      expect(await how[dialect](`m-${other}`)).toEqual({ model: `m-${other}`, text: answer });
      expect(shared.upstream.requests).toHaveLength(1);
      expect(shared.upstream.requests[0]?.json()).toMatchObject({ model: `upstream-${other}` });
    }
  });

  test("the upstream sees its own key and never the client's", async () => {
    shared.upstream.next(text(answer));
    await ask[dialect]();
    const sent = JSON.stringify(shared.upstream.requests[0]?.headers);
    expect(sent).toContain("provider-key-of-acme");
    expect(sent).not.toContain(shared.keys.inference);
  });

  test("an upstream that fails is an error of the SDK, without a word of the provider's", async () => {
    shared.upstream.model(`upstream-${dialect}`, { error: { status: 500 } });
    const error = await ask[dialect]().catch((caught: unknown) => caught);
    expect(error).toMatchObject({ status: 502 });
    expect(String(error)).not.toMatch(/acct_secret|provider account/);
  });

  test("a stream that is cut is an error of the SDK, never a short answer", async () => {
    shared.upstream.next({ ...text(answer), faults: { cutAtEvent: 6 } });
    await expect(stream[dialect]()).rejects.toThrow(/./);
  });
});

describe("around the answers", () => {
  test("models are listed and found in both styles", async () => {
    const names = ["m-chat", "m-messages", "m-responses"];
    const first = await shared.anthropic.models.list();
    const second = await shared.openai.models.list();
    expect(first.data.map(({ id }) => id).toSorted()).toEqual(names);
    expect(second.data.map(({ id }) => id).toSorted()).toEqual(names);
    expect(await shared.anthropic.models.retrieve("m-chat")).toMatchObject({ type: "model", id: "m-chat" });
    expect(await shared.openai.models.retrieve("m-chat")).toMatchObject({ object: "model", id: "m-chat" });
  });

  test("tokens are counted", async () => {
    for (const model of ["m-messages", "m-chat"]) {
      const { input_tokens } = await shared.anthropic.messages.countTokens({ model, messages });
      expect(input_tokens).toBeGreaterThan(0);
    }
  });

  test("401: an unknown key", async () => {
    const stranger = { apiKey: `sk-svc-${"x".repeat(40)}`, maxRetries: 0 };
    await expect(
      new Anthropic({ baseURL: shared.product.url, ...stranger }).messages.create({
        model: "m-messages",
        max_tokens: 1,
        messages,
      }),
    ).rejects.toThrow(Anthropic.AuthenticationError);
    await expect(
      new OpenAI({ baseURL: `${shared.product.url}/v1`, ...stranger }).responses.create({
        model: "m-chat",
        input: "x",
      }),
    ).rejects.toThrow(OpenAI.AuthenticationError);
  });

  test("404: an unknown model", async () => {
    await expect(
      shared.anthropic.messages.create({ model: "nobody", max_tokens: 1, messages }),
    ).rejects.toThrow(Anthropic.NotFoundError);
    await expect(shared.openai.chat.completions.create({ model: "nobody", messages })).rejects.toThrow(
      OpenAI.NotFoundError,
    );
  });

  test("400: a request without messages names the field", async () => {
    await expect(
      shared.anthropic.messages.create({ model: "m-messages", max_tokens: 1, messages: [] }),
    ).rejects.toThrow(/messages/);
    await expect(shared.openai.chat.completions.create({ model: "m-chat", messages: [] })).rejects.toThrow(
      OpenAI.BadRequestError,
    );
  });
});

describe("life", () => {
  test("editing a route while a stream runs is served within a second and breaks no stream", async () => {
    shared.upstream.next(slow);
    const running = stream.messages();
    await shared.upstream.arrived(1);
    writeRoute(manifests, {
      name: "m-messages",
      dialect: "Messages",
      upstreamUrl: shared.upstream.url,
      upstreamModel: "another-upstream-model",
    });
    const edited = Date.now();
    const lastModel = () =>
      (JSON.parse(shared.upstream.requests.at(-1)?.text ?? "{}") as { model?: string }).model;
    do {
      await ask.messages();
    } while (lastModel() !== "another-upstream-model" && Date.now() - edited < 5_000);
    expect(lastModel()).toBe("another-upstream-model");
    expect(Date.now() - edited).toBeLessThan(1_000);
    expect((await running).text).toBe("one two three four five six seven eight");
  });

  test("rule 1.9: `npm run audit -- --data DIR` is exact beside a product under load", async () => {
    const audited = new AbortController();
    let [answers, audits] = [0, 0];
    const client = async (dialect: keyof typeof ask) => {
      while (!audited.signal.aborted) {
        await (answers % 2 === 0 ? ask[dialect]() : stream[dialect]());
        answers += 1;
      }
    };
    const load = Promise.all(dialects.flatMap((dialect) => [client(dialect), client(dialect)]));
    try {
      for (; audits < 2; audits += 1) {
        const before = answers;
        await expect.poll(() => answers, { timeout: 30_000 }).toBeGreaterThan(before + 5);
        const { stdout } = await promisify(execFile)("npm", [
          "run",
          "--silent",
          "audit",
          "--",
          "--data",
          data,
        ]);
        expect(stdout).toMatch(/^exact: 1 account, \d+ usage rows?/m);
      }
    } finally {
      audited.abort();
      await load;
    }
  });

  test("a broken file leaves the model as it was, and the fault is printed", async () => {
    writeFileSync(join(manifests, "m-chat.yaml"), "apiVersion: gapura.dev/v1alpha1\nkind: [");
    await expect.poll(() => shared.product.output()).toContain("m-chat.yaml");
    expect((await ask.chat()).model).toBe("m-chat");
  });

  test("SIGTERM to npm drains: the running stream ends well, then everything is gone", async () => {
    shared.upstream.next(slow);
    const running = stream.responses();
    await shared.upstream.arrived(1);
    await sleep(200);
    const stopped = shared.product.stop("SIGTERM");
    expect((await running).text).toBe("one two three four five six seven eight");
    expect(await stopped).toEqual({ code: 0, signal: null });
    await expect(fetch(`${shared.product.url}/v1/models`)).rejects.toThrow(/fetch failed/);
    expect(processesOn(data)).toEqual([]);
  });

  test("no key is printed or logged, neither a client's nor a provider's", () => {
    const everything = printedAndLogged(shared.product, data);
    for (const secret of [shared.keys.inference, shared.keys.admin, "provider-key-of-acme"]) {
      expect(everything).not.toContain(secret);
    }
  });
});
