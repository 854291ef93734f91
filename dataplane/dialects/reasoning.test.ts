import { describe, expect, test } from "vitest";
import { openContext, openTarget } from "../../test/fakes/request-edges.ts";
import { DropNotes } from "./losses.ts";
import {
  markReasoning,
  openBlob,
  openReasoningItem,
  openSignature,
  readMark,
  SEALED_PREFIX,
  sealBlob,
  sealReasoning,
  sealSignature,
  signatureFor,
} from "./reasoning.ts";
import { requestCodecs } from "./request-codecs.ts";

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

const opened = (encrypted: string) => openReasoningItem({ id: "rs_1", encrypted, summary: "hm" }, ours);
const thought = (signature: string) => ({ type: "thinking", thinking: "hm", signature }) as const;

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

  test("rule 7.12: a Messages upstream's own signature is sealed, and comes back as it was", () => {
    const sealed = sealSignature("EqQB", ours);
    expect(sealed).toMatch(/^gapura_r1_/);
    expect(openSignature(sealed, ours)).toBe("EqQB");
    expect(openSignature(sealed, foreign)).toBeNull();
    expect(sealSignature("", ours)).toBe("");
    const data = sealSignature("xyz", ours, "data");
    expect(openSignature(data, ours, "data")).toBe("xyz");
    expect(openSignature(data, ours)).toBeNull();
  });

  test("rule 7.12: a signature that is not sealed goes to an account of one's own alone", () => {
    const raw = openSignature("EqQB", ours) ?? "";
    expect(signatureFor(raw, "messages", true)).toBe("EqQB");
    expect(signatureFor(raw, "messages", false)).toBeNull();
    expect(signatureFor(raw, "responses", true)).toBeNull();
    expect(signatureFor("EqQB", "messages", false)).toBe("EqQB");
    expect(signatureFor("", "messages", true)).toBeNull();
  });

  test.each([
    ["another organization's", sealSignature(markReasoning({ from: "chat" }), foreign)],
    ["a damaged one", `${SEALED_PREFIX}!!`],
    ["a mark in the clear", markReasoning({ from: "chat" })],
  ])("rule 2.17: %s is dropped", (_name, signature) => {
    expect(openSignature(signature, ours)).toBeNull();
  });
});

test.each([
  ["thinking", "chat"],
  ["thinking", "responses"],
  ["redacted_thinking", "chat"],
  ["redacted_thinking", "responses"],
] as const)("%s in a user's turn is refused by its place toward %s", (type, upstream) => {
  const sealed = sealBlob({ dialect: "messages", field: "data", id: "" }, "d", openContext.sealer);
  const block = type === "thinking" ? thought("raw") : { type, data: sealed };
  const content = [{ type: "text", text: "Hi" }, block];
  const body = { model: "m", messages: [{ role: "user", content }] };
  const { request, carry } = requestCodecs.messages.readRequest(body, openContext);
  expect(() =>
    requestCodecs[upstream].writeRequest(request, carry, openTarget, new DropNotes(false)),
  ).toThrow(expect.objectContaining({ code: "unsupported_content", param: "messages.0.content.1" }));
});

describe("reasoning through a Responses client", () => {
  test.each([
    { type: "thinking", thinking: "hm", signature: "EqQB" } as const,
    { type: "thinking", thinking: "hm", signature: markReasoning(marks[0]) } as const,
    { type: "redacted_thinking", data: "xyz" } as const,
  ])("a block comes back whole: %j", (block) => {
    expect(opened(sealReasoning(block, ours))).toEqual(block);
  });

  test.each([
    ["another organization's", sealReasoning({ type: "redacted_thinking", data: "x" }, foreign)],
    ["one without its parts", SEALED_PREFIX + ours.seal('{"from":"messages"}')],
    ["one that is not JSON", SEALED_PREFIX + ours.seal("{")],
    ["one that is not an object", SEALED_PREFIX + ours.seal("[]")],
  ])("rule 2.17: %s is dropped", (_name, encrypted) => {
    expect(opened(encrypted)).toBeNull();
  });

  test("rule 7.12: one that is not sealed goes to an account of one's own alone", () => {
    const block = opened("gAAAAABk");
    if (block?.type !== "thinking") throw new Error("it is a thinking block");
    expect(readMark(block.signature)).toMatchObject({ id: "rs_1", blob: "gAAAAABk" });
    expect(signatureFor(block.signature, "responses", true)).toBe("gAAAAABk");
    expect(signatureFor(block.signature, "responses", false)).toBeNull();
    expect(signatureFor(block.signature, "messages", true)).toBeNull();
  });
});

describe("one form on both paths", () => {
  const item = { dialect: "responses", field: "encrypted", id: "rs_1" } as const;
  const signature = { dialect: "messages", field: "signature", id: "" } as const;

  test("what relay sealed opens in a conversion", () => {
    const encrypted = sealBlob(item, "gAAA", ours);
    expect(opened(encrypted)).toEqual({
      type: "thinking",
      thinking: "hm",
      signature: markReasoning(marks[0]),
    });
    expect(openSignature(sealBlob(signature, "EqQB", ours), ours)).toBe("EqQB");
    expect(opened(sealBlob(signature, "EqQB", ours))).toEqual({
      type: "thinking",
      thinking: "hm",
      signature: "EqQB",
    });
  });

  test("what a conversion sealed opens on relay, where the upstream's dialect made it", () => {
    expect(openBlob(signature, sealSignature("EqQB", ours), ours)).toEqual({ raw: false, blob: "EqQB" });
    const block = { type: "thinking", thinking: "hm", signature: markReasoning(marks[0]) } as const;
    expect(openBlob(item, sealReasoning(block, ours), ours)).toEqual({ raw: false, blob: "gAAA" });
  });

  test.each([
    ["another organization's", item, sealBlob(item, "gAAA", foreign)],
    ["another dialect's", item, sealBlob(signature, "EqQB", ours)],
    ["another field's", signature, sealBlob({ ...signature, field: "data" }, "xyz", ours)],
    ["one without content", item, sealReasoning(thought(markReasoning(marks[1])), ours)],
    ["a Chat upstream's", signature, sealSignature(markReasoning({ from: "chat" }), ours)],
    ["a damaged one", item, `${SEALED_PREFIX}!!`],
    ["a mark in the clear", signature, markReasoning({ from: "chat" })],
  ])("rule 2.17: %s does not open", (_name, place, blob) => {
    expect(openBlob(place, blob, ours)).toEqual({ raw: false, blob: null });
  });

  test("what was never sealed says so", () => {
    expect(openBlob(item, "gAAA", ours)).toEqual({ raw: true, blob: "gAAA" });
  });
});
