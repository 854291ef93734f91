/** Inference over HTTP with real stores and money, and one scripted upstream that speaks each of the dialects. */
import type { Dispatcher } from "undici";
import { dialectPath, dialects } from "../../dataplane/dialects/dialect.ts";
import { inferenceRoutes } from "../../dataplane/http/routes/inference.ts";
import { withItemReferences } from "../../dataplane/inference/request/item-references.ts";
import { createServe } from "../../dataplane/inference/serve.ts";
import { sealing } from "../../dataplane/lib/seal.ts";
import { redisToolCache } from "../../dataplane/tools/cache.ts";
import { Upstreams } from "../../dataplane/upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../../dataplane/upstream/dispatcher.ts";
import { noTools } from "../fakes/no-tools.ts";
import {
  sampleKeys,
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sampleUpstream,
  sha256,
} from "../fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../fakes/test-server.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { makeOrganization, Plane } from "./money-world.ts";
import { freshDatabase, freshRedis } from "./stores.ts";

const organization = "org_inference";
const granted = 1_000_000_000_000n;

export interface InferenceWorld extends AsyncDisposable {
  readonly server: TestServer;
  readonly upstream: FakeUpstream;
  /** What the organization has used and what is held of its credit, in micro-credits. */
  credit(): Promise<{ readonly used: bigint; readonly held: bigint }>;
}

/** Models `m-messages`, `m-chat` and `m-responses`, named for the dialect that their upstream speaks. */
export async function startInferenceWorld(): Promise<InferenceWorld> {
  const database = await freshDatabase();
  const store = await freshRedis();
  const plane = await Plane.open(
    { redisUrl: store.url, postgresUrl: database.url },
    { recheckKey: async () => ({ keyEpoch: 1, projectId: "proj_test", limits: [] }) },
  );
  await makeOrganization(plane.pool, organization, granted);
  const upstream = await startUpstream();
  const dispatcher = newUpstreamDispatcher();
  const server = await serving(plane, dispatcher, upstream.url);
  return {
    server,
    upstream,
    credit: () => plane.holds.standing.credit(organization),
    [Symbol.asyncDispose]: async () => {
      await server[Symbol.asyncDispose]();
      await dispatcher.destroy();
      await upstream.close();
      await plane.close();
      await store.stop();
      await database.drop();
    },
  };
}

function serving(plane: Plane, dispatcher: Dispatcher, upstreamUrl: string): Promise<TestServer> {
  const sealerOf = sealing([{ id: "test", key: Buffer.alloc(32, 7) }]);
  const serve = withItemReferences(
    createServe(new Upstreams(dispatcher), sealerOf, noTools),
    redisToolCache(plane.redis),
  );
  const hint = sampleKeys.inference.slice(0, 14);
  const key = { name: "ci", sha256: sha256(sampleKeys.inference), hint, project: "default" };
  const snapshot = sampleSnapshot(
    sampleRouting(1, {
      routes: dialects.map((dialect) =>
        sampleRoute(`m-${dialect}`, {
          upstreams: [sampleUpstream({ dialect, url: upstreamUrl + dialectPath[dialect] })],
        }),
      ),
      organizations: [sampleOrganization(organization, { apiKeys: [key] })],
    }),
  );
  return startTestServer([inferenceRoutes({ meter: plane.holds, serve })], { snapshot: () => snapshot });
}
