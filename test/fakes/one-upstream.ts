/** `serve` before one scripted upstream, which a file of tests shares and each test finds empty. */
import { afterAll, beforeEach, expect } from "vitest";
import { usageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import type { Route, Upstream } from "../../dataplane/config/schema.ts";
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import { sealBlob } from "../../dataplane/dialects/reasoning.ts";
import { createServe } from "../../dataplane/inference/serve.ts";
import type { Serve } from "../../dataplane/inference/call.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { sealing } from "../../dataplane/lib/seal.ts";
import type { RunTool } from "../../dataplane/tools/toolbox.ts";
import { Upstreams } from "../../dataplane/upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../../dataplane/upstream/dispatcher.ts";
import { callOf, routeTo, snapshotOf, upstreamOf, type TestCall } from "./inference.ts";
import { noTools } from "./no-tools.ts";
import { text, type Step } from "./upstream/script.ts";
import { startUpstream, type FakeUpstream } from "./upstream/server.ts";

export const usage = { input: 11, cacheRead: 5, cacheWrite5m: 0, cacheWrite1h: 0, output: 7, reasoning: 2 };
export const hello: Step = text("Hello there, dear reader.", usage);
export const sealerOf = sealing([{ id: "test", key: Buffer.alloc(32) }]);
/** A provider's blobs as this organization's clients hold them. */
export const sealedSignature = (signature: string, organizationId = "org_a") =>
  sealBlob({ dialect: "messages", field: "signature", id: "" }, signature, sealerOf(organizationId));
export const sealedData = (data: string, organizationId = "org_a") =>
  sealBlob({ dialect: "messages", field: "data", id: "" }, data, sealerOf(organizationId));
export const sealedEncrypted = (id: string, encrypted: string, organizationId = "org_a") =>
  sealBlob({ dialect: "responses", field: "encrypted", id }, encrypted, sealerOf(organizationId));

/** A request for the model of `routeTo`. */
export function bodyOf(dialect: Dialect, more: object = {}): Record<string, unknown> {
  const content = "Say hello";
  if (dialect === "responses") return { model: "public-model", input: content, ...more };
  const limit = dialect === "messages" ? { max_tokens: 100 } : {};
  return { model: "public-model", ...limit, messages: [{ role: "user", content }], ...more };
}

/** What a call's only request was charged, within what was held for it, and by which tier. */
export function chargeOf({ meter }: Pick<TestCall, "meter">) {
  const [opened] = meter.opened;
  const [settled] = meter.settled;
  if (opened === undefined || settled === undefined) throw new Error("nothing was charged");
  const { cost, serviceTier, implausible } = usageRow(opened.request, settled);
  expect(opened.estimate).toBeGreaterThanOrEqual(cost.total);
  return { total: cost.total, serviceTier, implausible };
}

/** What a test changes around the request. */
export interface Around {
  readonly upstream?: Partial<Upstream>;
  readonly route?: Partial<Route>;
  readonly headers?: object;
}

export interface OneUpstream {
  readonly fake: FakeUpstream;
  readonly serve: Serve;
  /** A call whose upstream speaks the client's dialect. */
  readonly callTo: (dialect: Dialect, body: string | object, around?: Around) => TestCall;
  /** Serves a call that is expected to fail before anything is sent. */
  readonly refusal: (call: TestCall) => Promise<ApiError>;
}

/** For the top of a test file: it sets the file's hooks. */
export async function serveOneUpstream(runTool: RunTool = noTools): Promise<OneUpstream> {
  const fake = await startUpstream();
  const dispatcher = newUpstreamDispatcher();
  const serve = createServe(new Upstreams(dispatcher), sealerOf, runTool);
  beforeEach(() => fake.reset());
  afterAll(async () => {
    await dispatcher.destroy();
    await fake.close();
  });
  return {
    fake,
    serve,
    callTo: (dialect, body, { upstream, route, headers } = {}) => {
      const routes = [routeTo([upstreamOf(fake.url, dialect, upstream)], route)];
      const snapshot = snapshotOf(routes, ["*"], { "test/key": "upstream-secret" });
      return callOf(dialect, snapshot, body, headers ?? {});
    },
    refusal: async (call) => {
      const error = await serve(call).then(
        () => null,
        (thrown: unknown) => thrown,
      );
      expect(error).toBeInstanceOf(ApiError);
      expect(call.sink.status).toBe(0);
      return error as ApiError;
    },
  };
}
