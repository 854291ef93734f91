import { expect, test } from "vitest";
import { modelPatterns } from "./limits.ts";

test.each([["demo-chat"], ["demo-*"], ["*"]])("%j is a model pattern", (pattern) => {
  expect(modelPatterns().safeParse([pattern]).success).toBe(true);
});

// A folder's YAML may hold half a character; Postgres, which keeps limits, holds none.
test.each([[""], ["*-chat"], ["demo chat"], ["demo\u0000"], ["demo-\ud800*"]])(
  "%j is no model pattern",
  (pattern) => {
    const { error } = modelPatterns().safeParse([pattern]);
    expect(error?.issues.at(-1)?.message).toBe(
      "must be a model id, or the beginning of some and a * at its end",
    );
  },
);
