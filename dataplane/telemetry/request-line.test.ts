import { expect, test } from "vitest";
import { requestLine } from "./request-line.ts";
import { newRequestSummary } from "./request-summary.ts";

const facts = {
  id: "req_1",
  method: "POST",
  path: "/v1/messages",
  status: 502,
  seconds: 0.5,
  organizationId: "org_a",
  keyId: undefined,
  clientId: undefined,
};

test.each([
  ["api_error", "api_error"],
  // A redirect or an answer without a body says nothing more exact.
  [null, "server_error"],
])("rule 14.3: the line of a failed request has a reason: %s", (reason, told) => {
  const summary = newRequestSummary(null);
  summary.calls.push({
    upstream: "u",
    status: 500,
    fault: "server_error",
    reason,
    words: null,
    ms: 1,
  });
  expect(requestLine(facts, summary)).toMatchObject({ upstream_status: 500, reason: told });
});

test("an answered request has none", () => {
  const summary = newRequestSummary(null);
  summary.calls.push({ upstream: "u", status: 200, fault: null, reason: null, words: null, ms: 1 });
  expect(requestLine(facts, summary)).toMatchObject({ reason: undefined });
});
