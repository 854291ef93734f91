/** The whole product, started as a user starts it, driven by the official SDKs against a scripted upstream. */
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { processesOn } from "../fakes/processes-on.ts";
import { sdkClients } from "../fakes/sdk-clients.ts";
import { text, type Step } from "../fakes/upstream/script.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import {
  printedAndLogged,
  readKeys,
  startProduct,
  temporaryFolder,
  writeManifests,
  writeRoute,
  type Product,
} from "./product.ts";

const folder = temporaryFolder();
const manifests = join(folder.path, "manifests");
const data = join(folder.path, "data");
let upstream: FakeUpstream;
let product: Product;
let keys: ReturnType<typeof readKeys>;
let anthropic: Anthropic;
let openai: OpenAI;

async function start(): Promise<void> {
  product = await startProduct({ manifests, data });
  keys = readKeys(data);
  ({ anthropic, openai } = sdkClients(product.url, keys.inference));
}

beforeAll(async () => {
  upstream = await startUpstream();
  writeManifests(manifests, upstream.url);
  await start();
});
afterAll(async () => {
  await product?.stop();
  await upstream.close();
  folder[Symbol.dispose]();
});
beforeEach(() => upstream.reset());

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
    const message = await anthropic.messages.create({ model, max_tokens: 100, messages });
    return { model: message.model, text: textOf(message) };
  },
  chat: async (model = "m-chat") => {
    const completion = await openai.chat.completions.create({ model, messages });
    return { model: completion.model, text: completion.choices[0]?.message.content };
  },
  responses: async (model = "m-responses") => {
    const response = await openai.responses.create({ model, input: "Hello" });
    return { model: response.model, text: response.output_text };
  },
};

const stream = {
  messages: async (model = "m-messages") => {
    const message = await anthropic.messages.stream({ model, max_tokens: 100, messages }).finalMessage();
    return { model: message.model, text: textOf(message) };
  },
  chat: async (model = "m-chat") => {
    const completion = await openai.chat.completions.stream({ model, messages }).finalChatCompletion();
    return { model: completion.model, text: completion.choices[0]?.message.content };
  },
  responses: async (model = "m-responses") => {
    const response = await openai.responses.stream({ model, input: "Hello" }).finalResponse();
    return { model: response.model, text: response.output_text };
  },
};

const dialects = ["messages", "chat", "responses"] as const;

describe.each(dialects)("the %s dialect", (dialect) => {
  test.each(dialects)("a model whose upstream speaks %s answers, whole and streamed", async (other) => {
    for (const how of [ask, stream]) {
      upstream.reset();
      upstream.next(text(answer));
      expect(await how[dialect](`m-${other}`)).toEqual({ model: `m-${other}`, text: answer });
      expect(upstream.requests).toHaveLength(1);
      expect(upstream.requests[0]?.json()).toMatchObject({ model: `upstream-${other}` });
    }
  });

  test("the upstream sees its own key and never the client's", async () => {
    upstream.next(text(answer));
    await ask[dialect]();
    const sent = JSON.stringify(upstream.requests[0]?.headers);
    expect(sent).toContain("provider-key-of-acme");
    expect(sent).not.toContain(keys.inference);
  });

  test("an upstream that fails is an error of the SDK, without a word of the provider's", async () => {
    upstream.model(`upstream-${dialect}`, { error: { status: 500 } });
    const error = await ask[dialect]().catch((caught: unknown) => caught);
    expect(error).toMatchObject({ status: 502 });
    expect(String(error)).not.toMatch(/acct_secret|provider account/);
  });

  test("a stream that is cut is an error of the SDK, never a short answer", async () => {
    upstream.next({ ...text(answer), faults: { cutAtEvent: 6 } });
    await expect(stream[dialect]()).rejects.toThrow(/./);
  });
});

describe("around the answers", () => {
  test("models are listed and found in both styles", async () => {
    const names = ["m-chat", "m-messages", "m-responses"];
    const first = await anthropic.models.list();
    const second = await openai.models.list();
    expect(first.data.map(({ id }) => id).toSorted()).toEqual(names);
    expect(second.data.map(({ id }) => id).toSorted()).toEqual(names);
    expect(await anthropic.models.retrieve("m-chat")).toMatchObject({ type: "model", id: "m-chat" });
    expect(await openai.models.retrieve("m-chat")).toMatchObject({ object: "model", id: "m-chat" });
  });

  test("tokens are counted", async () => {
    for (const model of ["m-messages", "m-chat"]) {
      const { input_tokens } = await anthropic.messages.countTokens({ model, messages });
      expect(input_tokens).toBeGreaterThan(0);
    }
  });

  test("401: an unknown key", async () => {
    const stranger = { apiKey: `sk-svc-${"x".repeat(40)}`, maxRetries: 0 };
    await expect(
      new Anthropic({ baseURL: product.url, ...stranger }).messages.create({
        model: "m-messages",
        max_tokens: 1,
        messages,
      }),
    ).rejects.toThrow(Anthropic.AuthenticationError);
    await expect(
      new OpenAI({ baseURL: `${product.url}/v1`, ...stranger }).responses.create({
        model: "m-chat",
        input: "x",
      }),
    ).rejects.toThrow(OpenAI.AuthenticationError);
  });

  test("404: an unknown model", async () => {
    await expect(anthropic.messages.create({ model: "nobody", max_tokens: 1, messages })).rejects.toThrow(
      Anthropic.NotFoundError,
    );
    await expect(openai.chat.completions.create({ model: "nobody", messages })).rejects.toThrow(
      OpenAI.NotFoundError,
    );
  });

  test("400: a request without messages names the field", async () => {
    await expect(
      anthropic.messages.create({ model: "m-messages", max_tokens: 1, messages: [] }),
    ).rejects.toThrow(/messages/);
    await expect(openai.chat.completions.create({ model: "m-chat", messages: [] })).rejects.toThrow(
      OpenAI.BadRequestError,
    );
  });
});

describe("life", () => {
  test("editing a route while a stream runs is served within a second and breaks no stream", async () => {
    upstream.next(slow);
    const running = stream.messages();
    await upstream.arrived(1);
    writeRoute(manifests, {
      name: "m-messages",
      dialect: "Messages",
      upstreamUrl: upstream.url,
      upstreamModel: "another-upstream-model",
    });
    const edited = Date.now();
    const lastModel = () => (JSON.parse(upstream.requests.at(-1)?.text ?? "{}") as { model?: string }).model;
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
    await expect.poll(() => product.output()).toContain("m-chat.yaml");
    expect((await ask.chat()).model).toBe("m-chat");
  });

  test("SIGTERM to npm drains: the running stream ends well, then everything is gone", async () => {
    upstream.next(slow);
    const running = stream.responses();
    await upstream.arrived(1);
    await sleep(200);
    const stopped = product.stop("SIGTERM");
    expect((await running).text).toBe("one two three four five six seven eight");
    expect(await stopped).toEqual({ code: 0, signal: null });
    await expect(fetch(`${product.url}/v1/models`)).rejects.toThrow(/fetch failed/);
    expect(processesOn(data)).toEqual([]);
  });

  test("no key is printed or logged, neither a client's nor a provider's", () => {
    const everything = printedAndLogged(product, data);
    for (const secret of [keys.inference, keys.admin, "provider-key-of-acme"]) {
      expect(everything).not.toContain(secret);
    }
  });
});
