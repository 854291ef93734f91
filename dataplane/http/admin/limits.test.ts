import { expect, test } from "vitest";
import { readLimits } from "./limits.ts";

test.for<[given: unknown, message: string]>([
  ["none", "limits: must be an object."],
  [{ credits: 5 }, "limits.credits: must be an object."],
  [{ credits: {} }, "limits.credits.amount: is required."],
  [{ credits: { amount: "1" } }, "limits.credits.per: is required."],
  [{ credits: { amount: 5, per: "day" } }, "limits.credits.amount: must be a string."],
  [
    { credits: { amount: "five", per: "day" } },
    'limits.credits.amount: must be credits such as "500" or "2.5", with at most six decimals.',
  ],
  [{ credits: { amount: "9999999999", per: "day" } }, "limits.credits.amount: must be at most 9000000000."],
  [{ credits: { amount: "10000000000", per: "day" } }, "limits.credits.amount: must be at most 9000000000."],
  [{ credits: { amount: "1".repeat(50), per: "day" } }, "limits.credits.amount: must be at most 9000000000."],
  [{ credits: { amount: "1", per: "Day" } }, "limits.credits.per: must be one of day, week, month, total."],
  [{ models: [] }, "limits.models: must have at least 1 entry."],
  [{ models: [5] }, "limits.models.0: must be a string."],
  [{ models: ["a".repeat(130)] }, "limits.models.0: must have at most 129 characters."],
  [{ requests_per_minute: 0 }, "limits.requests_per_minute: must be at least 1."],
  [{ requests_per_minute: -1e300 }, "limits.requests_per_minute: must be at least 1."],
  [{ requests_per_minute: 1e300 }, "limits.requests_per_minute: must be at most 1000000000."],
  [{ requests_per_minute: 1.5 }, "limits.requests_per_minute: must be an integer."],
  [{ tokens_per_minute: 2e9 }, "limits.tokens_per_minute: must be at most 1000000000."],
  [{ concurrent_requests: "many" }, "limits.concurrent_requests: must be a number."],
  [{ credits: { amount: "1", per: "day", from: 1 } }, "limits.credits.from: is not a known field."],
])("rule 9.4: %j is refused in plain words", ([given, message]) => {
  const param = message.slice(0, message.indexOf(":"));
  expect(() => readLimits(given)).toThrow(expect.objectContaining({ code: "invalid_value", message, param }));
});
