import { describe, expect, test } from "vitest";
import { blocks, lookAt, tools } from "../../../test/fakes/look-at.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { choosePath, pathNeeds } from "./choose-path.ts";

describe("paths", () => {
  const pathOf = (dialect: Dialect, more: object, upstream: Dialect = dialect) =>
    choosePath(pathNeeds(lookAt(dialect, more)), upstream);
  const citation = { type: "web_search_result_location", url: "u", encrypted_index: "x" };

  test("the same dialect is relayed, another one converted", () => {
    expect(pathOf("chat", {})).toBe("relay");
    expect(pathOf("chat", {}, "messages")).toBe("convert");
  });

  test("rule 3.4: what only we can read is never relayed", () => {
    expect(
      pathOf("messages", blocks({ type: "server_tool_use", id: "s", name: "web_search", input: {} })),
    ).toBe("convert");
    expect(pathOf("messages", blocks({ type: "web_fetch_tool_result", tool_use_id: "s" }))).toBe("convert");
    expect(pathOf("messages", blocks({ type: "text", text: "t", citations: [citation] }))).toBe("convert");
    expect(pathOf("messages", blocks({ type: "text", text: "t", citations: null }))).toBe("relay");
  });

  test("rule 7.12: sealed reasoning is opened where it stands", () => {
    expect(pathOf("messages", blocks({ type: "thinking", thinking: "", signature: "gapura_r1_abc" }))).toBe(
      "relay",
    );
  });

  test("a declared server tool runs in the loop, whatever the upstream speaks", () => {
    expect(pathOf("messages", tools({ type: "web_search_20250305", name: "web_search" }))).toBe("tools");
    expect(pathOf("responses", tools({ type: "x_search" }))).toBe("tools");
    expect(pathOf("chat", { web_search_options: {} })).toBe("tools");
    expect(pathOf("chat", { web_search_options: null })).toBe("relay");
    expect(pathOf("responses", tools({ type: "web_search", external_web_access: false }))).toBe("relay");
    expect(pathOf("responses", tools({ type: "web_search", external_web_access: true }))).toBe("tools");
  });
});
