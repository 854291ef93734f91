/** Rule 2.10: the file that an earlier answer's citation names is not looked up, and goes to no upstream. */
import { expect, test } from "vitest";
import { hello, sealerOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { routeTo, upstreamOf } from "../../test/fakes/inference.ts";
import { callOn, nameOf, paths } from "../../test/fakes/ways.ts";
import { inspectBody } from "./inspect/body.ts";
import { forCountUpstream } from "./request/count-body.ts";

const { fake, serve } = await serveOneUpstream();

const citation = {
  type: "char_location",
  cited_text: "a",
  document_index: 0,
  document_title: null,
  start_char_index: 0,
  end_char_index: 1,
};
const text = (fileId: string | null) => ({
  type: "text",
  text: "As it says.",
  citations: [{ ...citation, file_id: fileId }],
});
const turns = (fileId: string | null) => [
  { role: "user", content: "What does it say?" },
  { role: "assistant", content: [text(fileId)] },
  { role: "user", content: "Really?" },
];

for (const { client, ...way } of paths.filter((one) => one.client === "messages"))
  test(nameOf({ ...way, client, stream: false }), async () => {
    fake.next(hello);
    const call = callOn(fake.url, { ...way, client, stream: false }, { body: { messages: turns("file_1") } });
    await serve(call);
    expect(call.sink.status).toBe(200);
    const sent = fake.requests[0]?.text ?? "";
    expect(sent).not.toContain("file_1");
    if (way.upstream === "messages")
      expect(JSON.parse(sent)).toMatchObject({ messages: [{}, turns(null)[1], {}] });
  });

test("an upstream that counts tokens", () => {
  const upstream = upstreamOf(fake.url, "messages");
  const body = inspectBody(
    "messages",
    Buffer.from(JSON.stringify({ model: "m", messages: turns("file_1") })),
  );
  const sent = forCountUpstream(body, routeTo([upstream]), upstream, sealerOf("org_a")).toString();
  expect(JSON.parse(sent)).toMatchObject({ messages: turns(null) });
});
