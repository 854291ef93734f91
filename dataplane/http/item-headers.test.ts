import { describe, expect, test } from "vitest";
import { itemHeaders } from "./item-headers.ts";

describe("headers of a batch's creation count for each of its items", () => {
  test("as they came, and no others", () => {
    const betas = Array.from({ length: 60 }, (_, index) => `some-capability-2026-01-${index}`).join(",");
    expect(betas.length).toBeGreaterThan(1_000);
    expect(
      itemHeaders({
        "anthropic-version": "2023-06-01",
        "anthropic-beta": betas,
        "x-gapura-tags": "b=2, a=1",
        authorization: "Bearer x",
        "x-other": "y",
      }),
    ).toEqual({ "anthropic-version": "2023-06-01", "anthropic-beta": betas, "x-gapura-tags": "a=1,b=2" });
    expect(itemHeaders({})).toEqual({});
  });

  test.each(["anthropic-beta", "anthropic-version", "x-gapura-strict"])(
    "one that is too long to be kept is refused, not cut: %s",
    (name) => {
      expect(itemHeaders({ [name]: "x".repeat(8_192) })).toEqual({ [name]: "x".repeat(8_192) });
      expect(() => itemHeaders({ [name]: "x".repeat(8_193) })).toThrow(
        expect.objectContaining({ code: "invalid_value", param: name }),
      );
    },
  );
});
