/** Rules 10.5 and 10.6: audio and images with a price: where they go, and what they cost, reported or not. */
import { describe, expect, test } from "vitest";
import { declaredSearch, routeTo, snapshotOf, toolPolicy, upstreamOf } from "../../test/fakes/inference.ts";
import { bodyOf, chargeOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { usageRow } from "../billing/ledger/usage-row.ts";

const { callTo, fake, serve, refusal } = await serveOneUpstream();

const { prices } = routeTo([]);
const usage = { input: 100, output: 50 };
const sent = () => fake.requests.map(({ text }) => JSON.parse(text) as Record<string, unknown>);

describe("rule 10.5: audio with a price", () => {
  const speaking = { prices: { ...prices, audioInput: "40", audioOutput: "80" } };
  const audio = { type: "input_audio", input_audio: { data: "A".repeat(4000), format: "wav" } };
  const body = {
    messages: [{ role: "user", content: [audio] }],
    modalities: ["text", "audio"],
    audio: { voice: "alloy", format: "wav" },
  };

  test.each([false, true])(
    "goes to a Chat upstream, and is charged as audio; streamed: %s",
    async (stream) => {
      const answer = { parts: [{ type: "text" as const, text: "hello" }] };
      fake.next({ answer: { ...answer, usage: { ...usage, audio: [60, 40] } } });
      const call = callTo("chat", bodyOf("chat", { ...body, stream }), { route: speaking });
      await serve(call);
      const { stream: _stream, ...asIs } = sent()[0] ?? {};
      expect(asIs).toMatchObject(body);
      const total = 40n + 60n * 40n + 2n * 10n + 40n * 80n;
      expect(chargeOf(call)).toEqual({ total, serviceTier: "standard", implausible: false });
    },
  );

  test.each(["messages", "responses"] as const)(
    "is refused where the only upstream speaks %s",
    async (dialect) => {
      const served = routeTo([upstreamOf(fake.url, dialect)], speaking);
      for (const [more, param] of [
        [{ messages: body.messages }, "messages[0].content[0].type"],
        [{ modalities: body.modalities }, "modalities"],
      ] as const) {
        const call = { ...callTo("chat", bodyOf("chat", more)), snapshot: snapshotOf([served]) };
        expect(await refusal(call)).toMatchObject({ code: "unsupported_content", param });
        expect(call.meter.opened).toEqual([]);
      }
    },
  );

  test.each([{ modalities: ["video"] }, { modalities: ["image"] }, { modalities: ["text", "audio"] }])(
    "%o is refused without a price of its own, and beside server tools",
    async (more) => {
      const media = { video: {}, image: { imageOutput: "30" }, audio: { audioOutput: "80" } };
      const own = media[more.modalities.at(-1) as keyof typeof media];
      for (const [given, withTools] of [
        [{ audioInput: "40" }, {}],
        [own, declaredSearch.chat],
      ] as const) {
        const served = routeTo([upstreamOf(fake.url, "chat")], {
          prices: { ...prices, ...given },
          toolPolicy: "p",
        });
        const snapshot = snapshotOf([served], ["*"], {}, { p: toolPolicy });
        const call = { ...callTo("chat", bodyOf("chat", { ...more, ...withTools })), snapshot };
        expect(await refusal(call)).toMatchObject({ code: "unsupported_content", param: "modalities" });
        expect(call.meter.opened).toEqual([]);
      }
    },
  );
});

describe("rules 10.5 and 10.6: what is heard, said and drawn", () => {
  const route = { prices: { ...prices, audioInput: "40", audioOutput: "80", imageOutput: "30" } };
  // A token of speech is 3,200 characters of base64, one of recordings 1,000; an image made is 1,300 tokens.
  const speech = { data: "QUJD".repeat(2000), transcript: "two words" };
  const media = { speech, images: ["data:image/png;base64,AAAA"] };
  const parts = [{ type: "text" as const, text: "hello" }];
  const recording = { type: "input_audio", input_audio: { data: "A".repeat(3900), format: "wav" } };
  const asking = {
    messages: [{ role: "user", content: [recording] }],
    modalities: ["text", "audio", "image"],
    audio: { voice: "alloy", format: "pcm16" },
  };
  const ask = (stream: boolean, more: object = asking) =>
    callTo("chat", bodyOf("chat", { ...more, ...(stream && { stream }) }), { route });
  /** "hello" and "two words" have 14 characters. */
  const said = 4n * 2n;
  const spoken = 3n * 80n;
  const drawn = 1300n * 30n;

  describe.each([false, true])("streamed: %s", (stream) => {
    test("images are charged as they are reported", async () => {
      fake.next({ answer: { parts, media, usage: { ...usage, output: 50, audio: [60, 10], images: 30 } } });
      const call = ask(stream);
      await serve(call);
      expect(sent()[0]).toMatchObject(asking);
      const total = 40n + 60n * 40n + 10n * 2n + 10n * 80n + 30n * 30n;
      expect(chargeOf(call)).toEqual({ total, serviceTier: "standard", implausible: false });
    });

    test("without a report they are counted, and cost what they do", async () => {
      fake.next({ answer: { parts, media, usage: { input: 0, output: 0 } } });
      const call = ask(stream);
      await serve(call);
      const prompt = BigInt(Math.ceil((call.body.length - 3902) / 4));
      const total = prompt + 4n * 40n + said + spoken + drawn;
      expect(chargeOf(call).total).toBe(total);
      expect(call.meter.settled[0]?.estimated).toBe(true);
    });

    test("a request for text alone is charged as text", async () => {
      fake.next({ answer: { parts, usage: { input: 0, output: 0 } } });
      const call = ask(stream, {});
      await serve(call);
      expect(chargeOf(call).total).toBe(BigInt(Math.ceil(call.body.length / 4)) + 2n * 2n);
    });
  });

  test("a tool loop whose upstream counts audio all the same is charged for it", async () => {
    const heard = { ...usage, audio: [60, 10] as const };
    fake.next(
      {
        answer: {
          parts: [{ type: "tool", name: "web_search", input: { query: "gates" } }],
          usage: heard,
        },
      },
      { answer: { parts, usage: heard } },
    );
    const served = routeTo([upstreamOf(fake.url, "chat")], { ...route, toolPolicy: "p" });
    const snapshot = snapshotOf([served], ["*"], {}, { p: toolPolicy });
    const call = { ...callTo("chat", bodyOf("chat", declaredSearch.chat)), snapshot };
    await serve(call);
    const tokens = 2n * (40n + 60n * 40n + 40n * 2n + 10n * 80n);
    const [opened] = call.meter.opened;
    const [settled] = call.meter.settled;
    expect(opened && settled && usageRow(opened.request, settled).cost.total).toBe(tokens);
  });

  test("a report of totals alone is taken apart as it was counted", async () => {
    const totals = { prompt_tokens: 100, completion_tokens: 2000, total_tokens: 2100 };
    fake.next({ answer: { parts, media, extra: { usage: totals } } });
    const call = ask(false);
    await serve(call);
    const total = 96n + 4n * 40n + (2000n - 3n - 1300n) * 2n + spoken + drawn;
    expect(chargeOf(call).total).toBe(total);
  });

  test("a stream that breaks off costs what was heard, said and drawn until then", async () => {
    fake.next({ answer: { parts, media: { speech, images: [] } }, faults: { cutAtEvent: 14 } });
    const call = ask(true);
    await serve(call);
    const { tokens } = call.meter.settled[0] ?? {};
    expect(tokens).toMatchObject({ audioInput: 4 });
    expect(tokens?.audioOutput).toBeGreaterThan(0);
    expect(tokens?.audioOutput).toBeLessThan(3);
  });
});
