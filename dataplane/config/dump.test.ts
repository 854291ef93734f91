import { expect, test } from "vitest";
import { sampleRoute, sampleRouting, sampleUpstream } from "../../test/fakes/sample-snapshot.ts";
import { shownRouting } from "./dump.ts";
import { routingSchema } from "./schema.ts";

test("rule 7.15: static headers and query parameters are shown by name, their values never", () => {
  const upstream = sampleUpstream({
    url: "https://user:SECRET-user@example.com/v1/messages?api-version=2026&key=SECRET-key&flag&twice=SECRET=more",
    countTokensUrl: "https://SECRET-user@example.com/v1/messages/count_tokens",
    headers: { "x-account": "SECRET-account", accept: "SECRET-accept" },
  });
  const routing = sampleRouting(1, { routes: [sampleRoute("alpha", { upstreams: [upstream] })] });
  const shown = shownRouting(routing);
  expect(JSON.stringify(shown)).not.toContain("SECRET");
  expect(shown.routes[0]?.upstreams[0]).toEqual({
    ...upstream,
    url: "https://example.com/v1/messages?api-version=***&key=***&flag&twice=***",
    countTokensUrl: "https://example.com/v1/messages/count_tokens",
    headers: { "x-account": "***", accept: "***" },
  });
  // A dump has the form of the routing, and all that holds no secret is unchanged.
  expect(routingSchema.parse(shown)).toEqual(shown);
  const plain = sampleRouting(1);
  expect(shownRouting(plain).organizations).toEqual(plain.organizations);
});
