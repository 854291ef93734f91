import type { Dispatcher } from "undici";
import { expect, test } from "vitest";
import { sampleUpstream } from "../../test/fakes/sample-snapshot.ts";
import { countUpstream } from "./count-tokens.ts";

test("an upstream is not asked for a client that left while the request was written", async () => {
  let asked = 0;
  const dispatch = (_: unknown, handler: Dispatcher.DispatchHandler) => {
    asked += 1;
    handler.onResponseError?.({} as Dispatcher.DispatchController, new Error("nobody is there"));
    return true;
  };
  const count = countUpstream({ dispatch } as unknown as Dispatcher);
  const upstream = sampleUpstream({ countTokensUrl: "http://127.0.0.1:9/count" });
  const ask = (signal: AbortSignal) =>
    count({ upstream, credential: undefined, body: Buffer.from("{}"), headers: {}, signal });
  expect(await ask(new AbortController().signal)).toBeNull();
  expect(asked).toBe(1);
  expect(await ask(AbortSignal.abort())).toBeNull();
  expect(asked).toBe(1);
});
