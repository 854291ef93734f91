/** A relayed request from its inspection to its answer: what the upstream gets, what the client gets, and who is let in. */
import { describe, expect, test } from "vitest";
import { callOf, routeTo, snapshotOf, upstreamOf } from "../../test/fakes/inference.ts";
import { bodyOf, hello, serveOneUpstream, usage } from "../../test/fakes/one-upstream.ts";
import { dialects } from "../dialects/dialect.ts";

const { callTo, fake, refusal, serve } = await serveOneUpstream();

describe.each(dialects)("%s", (dialect) => {
  test("a whole answer arrives with the public model id, and is charged as the upstream reports", async () => {
    fake.next(hello);
    const call = callTo(dialect, bodyOf(dialect));
    await serve(call);
    expect(call.sink.status).toBe(200);
    expect(call.sink.headers["content-type"]).toBe("application/json");
    expect(JSON.parse(call.sink.text)).toMatchObject({ model: "public-model" });
    expect(call.sink.text).toContain("Hello there, dear reader.");
    expect(call.sink.ended).toBe(true);
    expect(call.meter.settled).toMatchObject([
      { status: "ok", estimated: false, upstream: "primary", iterations: 1, tokens: usage },
    ]);
    expect(call.meter.released).toBe(0);
    expect(fake.requests[0]?.json()).toMatchObject({ model: "upstream-model" });
    expect(call.summary).toMatchObject({
      model: "public-model",
      upstream: "primary",
      servingPath: "relay",
      tries: 1,
    });
  });

  test("a stream arrives event by event with the public model id, and is charged as reported", async () => {
    fake.next(hello);
    const call = callTo(dialect, bodyOf(dialect, { stream: true }));
    await serve(call);
    expect(call.sink.status).toBe(200);
    expect(call.sink.headers).toMatchObject({
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      "x-accel-buffering": "no",
    });
    expect(call.sink.text).toContain("public-model");
    expect(call.sink.text).not.toContain("upstream-model");
    expect(call.sink.ended).toBe(true);
    expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: false, tokens: usage }]);
  });

  test("rule 1.3: of the headers only an allow-list goes up, and only our own come down", async () => {
    fake.next(hello);
    const headers = { "anthropic-version": "2026-10-21", "anthropic-beta": "a-1,b-2", "x-session-id": "s" };
    const credential = { id: "test/key", header: dialect === "messages" ? "x-api-key" : "Authorization" };
    const call = callTo(dialect, bodyOf(dialect), {
      headers,
      upstream: { credential, headers: { "x-team": "ml" } },
    });
    await serve(call);
    const sent = fake.requests[0]?.headers ?? {};
    expect(Object.keys(sent).sort()).toEqual(
      [
        "accept",
        "accept-encoding",
        ...(dialect === "messages"
          ? ["anthropic-beta", "anthropic-version", "x-api-key"]
          : ["authorization"]),
        "connection",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "x-team",
      ].sort(),
    );
    expect(sent[dialect === "messages" ? "x-api-key" : "authorization"]).toMatch(
      /^(Bearer )?upstream-secret$/,
    );
    expect(Object.keys(call.sink.headers).sort()).toEqual(["content-length", "content-type"]);
  });

  if (dialect === "messages")
    test.each([
      ["as they came", "2026-10-21", "foo-1, bar-2", "2026-10-21", "foo-1, bar-2"],
      ["empty", "", " ", "2023-06-01", undefined],
      ["with one that stays here", "2026-10-21", "fast-mode-2026-02-01, bar-2", "2026-10-21", "bar-2"],
    ])("version and betas %s", async (_what, version, betas, sentVersion, sentBetas) => {
      fake.next(hello);
      const headers = { "anthropic-version": version, "anthropic-beta": betas };
      const call = callTo(dialect, bodyOf(dialect), { headers });
      await serve(call);
      const sent = fake.requests[0]?.headers;
      expect([sent?.["anthropic-version"], sent?.["anthropic-beta"]]).toEqual([sentVersion, sentBetas]);
    });

  test("rule 1.7: a model outside of models.allow is 404 like an unknown one", async () => {
    const route = routeTo([upstreamOf(fake.url, dialect)]);
    const closed = callOf(dialect, snapshotOf([route], ["other", "publi"]), bodyOf(dialect));
    const unknown = callOf(dialect, snapshotOf([], ["*"]), bodyOf(dialect));
    const [one, other] = [await refusal(closed), await refusal(unknown)];
    expect(one).toMatchObject({ code: "model_not_found", message: other.message });
    const open = callOf(dialect, snapshotOf([route], ["pub*"]), bodyOf(dialect, { model: "alias" }));
    await serve(open);
    expect(JSON.parse(open.sink.text)).toMatchObject({ model: "public-model" });
  });
});

test("whatever a client sends beside what must be edited reaches the upstream byte for byte", async () => {
  const exotic =
    '{ "messages" :[ {"role":"user","content":"\\u00e9\\ud83d\\ude00 / \\/ é"} ],\n\t"big":123456789012345678901234567890,' +
    '"e":1.50e+10, "__proto__":{"x":1}, "model"  :  "public-model" ,"max_tokens": 100,"service_tier":"standard_only","new_field":[ ] }';
  fake.next(hello);
  await serve(callTo("messages", exotic));
  expect(fake.requests[0]?.text).toBe(exotic.replace('"public-model"', '"upstream-model"'));
});

test("rule 2.3: a blind model's image is refused before anything is held, on relay too", async () => {
  const content = [{ type: "image_url", image_url: { url: "https://x.example/a.png" } }];
  const capabilities = { ...routeTo([]).capabilities, imageInput: false };
  const snapshot = snapshotOf([routeTo([upstreamOf(fake.url, "chat")], { capabilities })]);
  const call = callOf("chat", snapshot, { model: "public-model", messages: [{ role: "user", content }] });
  expect(await refusal(call)).toMatchObject({ code: "unsupported_content", param: "messages[0].content[0]" });
  expect(call.meter.opened).toEqual([]);
  expect(fake.requests).toHaveLength(0);
});
