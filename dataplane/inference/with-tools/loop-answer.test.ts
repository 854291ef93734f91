/** The events of an upstream's stream wait for the tool loop, which may run a tool or have a slow client. */
import { expect, test, vi } from "vitest";
import type { CodecContext } from "../../dialects/codecs.ts";
import { ByteBudget } from "../../lib/byte-budget.ts";
import type { UpstreamAnswer } from "../../upstream/request.ts";
import type { BodyReader, CallFault, UpstreamCall } from "../../upstream/send.ts";
import { answerEvents } from "./loop-answer.ts";

const MIB = 1024 * 1024;

const framed = (type: string, fields: object): Buffer =>
  Buffer.from(`event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`);
const start = Buffer.concat([
  framed("message_start", { message: { id: "m", model: "m", role: "assistant", content: [], usage: {} } }),
  framed("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
]);
const delta = (length: number): Buffer =>
  framed("content_block_delta", { index: 0, delta: { type: "text_delta", text: "a".repeat(length) } });

/** A stream whose bytes the test brings, and whose events it pulls. */
function streamed() {
  let reader: BodyReader | undefined;
  const fake = {
    received: 0,
    sent: true,
    read: (from: BodyReader) => void (reader = from),
    pause: vi.fn(),
    resume: vi.fn(),
    abort: (fault: CallFault) => reader?.fail(fault),
  };
  const upstream = { dialect: "messages", name: "u" };
  const answer = { upstream, call: fake as unknown as UpstreamCall, accepted: () => {}, broke: () => {} };
  const bodies = new ByteBudget(64 * MIB);
  const { events } = answerEvents(
    answer as unknown as UpstreamAnswer,
    {
      dialect: "messages",
      place: { pool: null, organizationId: "org_a" } as never,
      lease: bodies.lease("org_a"),
    },
    { estimatedInputTokens: 1, newId: () => "id" } as unknown as CodecContext,
    { stream: true, organizationId: "org_a", later: false, places: null as never },
  );
  const bring = (bytes: Buffer) => {
    fake.received += bytes.length;
    reader?.data([bytes]);
  };
  return { bodies, bring, events, fake };
}

test("rule 7.2: long events that the loop has not pulled pause the upstream, and are counted until it has", async () => {
  const { bodies, bring, events, fake } = streamed();
  bring(start);
  bring(delta(1_000));
  expect(fake.pause).not.toHaveBeenCalled();
  bring(delta(4 * MIB));
  await expect.poll(() => fake.pause.mock.calls.length).toBeGreaterThan(0);
  expect(bodies.used).toBeGreaterThan(4 * MIB);
  const pulled = [await events.next(), await events.next(), await events.next()];
  expect(pulled.every(({ done }) => done === false)).toBe(true);
  await expect.poll(() => [bodies.used, fake.resume.mock.calls.length > 0]).toEqual([0, true]);
});

test("what the loop does not pull any more is not counted, nor what comes behind it", async () => {
  const { bodies, bring, events } = streamed();
  bring(start);
  await events.next();
  bring(delta(4 * MIB));
  await expect.poll(() => bodies.used).toBeGreaterThan(4 * MIB);
  await events.return(undefined);
  bring(delta(4 * MIB));
  await expect.poll(() => bodies.used).toBe(0);
});
