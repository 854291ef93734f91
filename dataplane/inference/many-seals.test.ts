/** Sealing takes some fifty microseconds a blob, so no more than `MOST_SEALED` of one answer are sealed (rule 7.3). */
import { afterAll, expect, test } from "vitest";
import { upstreamOf } from "../../test/fakes/inference.ts";
import { bodyOf, sealerOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn } from "../../test/fakes/ways.ts";
import { AnswerSeal } from "./answer/seal-answer.ts";
import { newLargePool } from "./large/large-body.ts";
import { MOST_SEALED } from "./request/sealed-reasoning.ts";
import { dialects } from "../dialects/dialect.ts";
import { newUpstreamDispatcher } from "../upstream/dispatcher.ts";
import { Upstreams } from "../upstream/upstreams.ts";
import { createServe } from "./serve.ts";

const { callTo, fake, serve: here } = await serveOneUpstream();
const pool = newLargePool([{ id: "test", key: Buffer.alloc(32) }], { jobMs: 60_000 });
const dispatcher = newUpstreamDispatcher();
const elsewhere = createServe(
  new Upstreams(dispatcher),
  sealerOf,
  () => Promise.reject(new Error("no tools")),
  pool,
);
afterAll(async () => {
  await dispatcher.destroy();
  await pool.close();
});

const listOf = (length: number, item: (index: number) => object) =>
  Array.from({ length }, (_, index) => item(index));
const wholes = {
  messages: (length: number) => ({
    id: "msg_1",
    type: "message",
    role: "assistant",
    model: "m",
    content: listOf(length, (index) => ({ type: "thinking", thinking: "", signature: `blob ${index}` })),
    stop_reason: "end_turn",
    stop_sequence: null,
    usage: { input_tokens: 3, output_tokens: 4 },
  }),
  responses: (length: number) => ({
    id: "resp_1",
    object: "response",
    created_at: 1,
    status: "completed",
    model: "m",
    output: listOf(length, (index) => ({
      type: "reasoning",
      id: `rs_${index}`,
      summary: [],
      encrypted_content: `blob ${index}`,
    })),
    usage: { input_tokens: 3, output_tokens: 4, total_tokens: 7 },
  }),
};

/** How many blobs of a text are sealed, and how many stand in it as they came. */
const blobsIn = (text: string) => [
  text.match(/gapura_r1_/g)?.length ?? 0,
  text.match(/blob \d/g)?.length ?? 0,
];

test.each(["messages", "responses"] as const)(
  "%s relayed whole: what is beyond is left out",
  async (dialect) => {
    for (const [serve, length] of [
      [here, MOST_SEALED + 100],
      [elsewhere, 20_000],
    ] as const) {
      fake.next({ raw: { body: JSON.stringify(wholes[dialect](length)) } });
      const call = callTo(dialect, bodyOf(dialect));
      await serve(call);
      expect(call.sink.status).toBe(200);
      expect(blobsIn(call.sink.text)).toEqual([MOST_SEALED, 0]);
      expect(call.meter.settled).toMatchObject([{ status: "ok", tokens: { input: 3, output: 4 } }]);
    }
    fake.next({ raw: { body: JSON.stringify(wholes[dialect](MOST_SEALED)) } });
    const call = callTo(dialect, bodyOf(dialect));
    await here(call);
    expect(blobsIn(call.sink.text)).toEqual([MOST_SEALED, 0]);
  },
);

test.each(["messages", "responses"] as const)(
  "a stream of %s: what was sealed before is sealed the same way again",
  async (dialect) => {
    const length = MOST_SEALED + 100;
    const items = wholes.responses(length).output;
    const events =
      dialect === "responses"
        ? [
            ...items.map((item, index) => ({ type: "response.output_item.done", output_index: index, item })),
            { type: "response.completed", response: wholes.responses(length) },
          ]
        : [
            {
              type: "message_start",
              message: { ...wholes.messages(0), usage: { input_tokens: 3, output_tokens: 1 } },
            },
            ...wholes.messages(length).content.flatMap((content_block, index) => [
              { type: "content_block_start", index, content_block },
              { type: "content_block_stop", index },
            ]),
            { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 4 } },
            { type: "message_stop" },
          ];
    const body = events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");
    fake.next({ raw: { body, contentType: "text/event-stream" } });
    const call = callTo(dialect, bodyOf(dialect, { stream: true }));
    await here(call);
    expect(blobsIn(call.sink.text)).toEqual([dialect === "responses" ? 2 * MOST_SEALED : MOST_SEALED, 0]);
    expect(call.meter.settled).toMatchObject([{ status: "ok", tokens: { input: 3, output: 4 } }]);
  },
);

test.each(
  dialects.flatMap((client) =>
    (["messages", "responses"] as const)
      .filter((upstream) => upstream !== client && client !== "chat")
      .map((upstream) => [client, upstream] as const),
  ),
)("%s from %s: one with more is corrupt, and costs what it reports", async (client, upstream) => {
  for (const [serve, length] of [
    [here, MOST_SEALED + 1],
    [elsewhere, 20_000],
  ] as const) {
    fake.next({ raw: { body: JSON.stringify(wholes[upstream](length)) } });
    const around = { upstream: { dialect: upstream, url: upstreamOf(fake.url, upstream).url } };
    const call = callTo(
      client,
      bodyOf(client, client === "responses" ? { include: ["reasoning.encrypted_content"] } : {}),
      around,
    );
    await expect(serve(call)).rejects.toMatchObject({ code: "upstream_error" });
    expect(call.meter.settled).toMatchObject([{ status: "error", tokens: { input: 3, output: 4 } }]);
  }
});

test.each(["messages", "responses"] as const)(
  "%s with server tools: one with more is an error for its client and in its record",
  async (dialect) => {
    for (const serve of [here, elsewhere]) {
      fake.next({ raw: { body: JSON.stringify(wholes[dialect](MOST_SEALED + 1)) } });
      const way = { path: "tools", client: dialect, upstream: dialect, stream: false } as const;
      const include = dialect === "responses" ? { include: ["reasoning.encrypted_content"] } : {};
      const call = callOn(fake.url, way, { body: include });
      await expect(serve(call)).rejects.toMatchObject({ code: "upstream_error" });
      expect(call.meter.settled).toMatchObject([{ status: "error", tokens: { input: 3, output: 4 } }]);
    }
  },
);

test("only so much is remembered of what was sealed", () => {
  let seals = 0;
  const seal = new AnswerSeal({ seal: () => `sealed ${(seals += 1)}`, open: () => null }, "messages");
  const small = seal.seal("signature", "", "small");
  expect(seal.seal("signature", "", "small")).toBe(small);
  const large = "a".repeat(5 * 1024 * 1024);
  expect(seal.seal("signature", "", large)).not.toBe(seal.seal("signature", "", large));
  expect(seal.seal("signature", "", "small")).toBe(small);
});
