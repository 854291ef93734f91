import { describe, expect, test } from "vitest";
import {
  markReasoning,
  openReasoning,
  openSignature,
  readMark,
  SEALED_PREFIX,
  sealReasoning,
  sealSignature,
} from "./reasoning.ts";

/** Reversible and recognisable; the real one is `lib/seal.ts`. */
const sealerOf = (organization: string) => ({
  seal: (plain: string) => Buffer.from(`${organization}|${plain}`).toString("base64url"),
  open: (sealed: string) => {
    const text = Buffer.from(sealed, "base64url").toString();
    return text.startsWith(`${organization}|`) ? text.slice(organization.length + 1) : null;
  },
});
const ours = sealerOf("org_a");
const foreign = sealerOf("org_b");

const marks = [
  { from: "responses", id: "rs_1", encrypted: "gAAA" },
  { from: "responses", id: "rs_1", encrypted: null },
  { from: "chat" },
] as const;

describe("reasoning through a Messages client", () => {
  test.each(marks)("a mark comes back whole: %j", (mark) => {
    const signature = sealSignature(markReasoning(mark), ours);
    expect(signature.startsWith(SEALED_PREFIX)).toBe(true);
    expect(readMark(openSignature(signature, ours) ?? "")).toEqual(mark);
  });

  test("a Messages upstream's own signature is left alone", () => {
    expect(sealSignature("EqQB", ours)).toBe("EqQB");
    expect(openSignature("EqQB", ours)).toBe("EqQB");
  });

  test.each([
    ["another organization's", sealSignature(markReasoning({ from: "chat" }), foreign)],
    ["a damaged one", `${SEALED_PREFIX}!!`],
    ["a mark in the clear", markReasoning({ from: "chat" })],
  ])("rule 2.17: %s is dropped", (_name, signature) => {
    expect(openSignature(signature, ours)).toBeNull();
  });
});

describe("reasoning through a Responses client", () => {
  test.each([
    { type: "thinking", thinking: "hm", signature: "EqQB" } as const,
    { type: "thinking", thinking: "hm", signature: markReasoning(marks[0]) } as const,
    { type: "redacted_thinking", data: "xyz" } as const,
  ])("a block comes back whole: %j", (block) => {
    expect(openReasoning(sealReasoning(block, ours), "hm", ours)).toEqual(block);
  });

  test.each([
    ["another organization's", sealReasoning({ type: "redacted_thinking", data: "x" }, foreign)],
    ["an upstream's own", "gAAAAABk"],
    ["one without its parts", SEALED_PREFIX + ours.seal('{"from":"messages"}')],
    ["one that is not JSON", SEALED_PREFIX + ours.seal("{")],
    ["one that is not an object", SEALED_PREFIX + ours.seal("[]")],
  ])("rule 2.17: %s is dropped", (_name, encrypted) => {
    expect(openReasoning(encrypted, "hm", ours)).toBeNull();
  });
});
