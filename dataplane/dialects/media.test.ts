/** Documents of Messages clients toward upstreams of the other dialects, which read a file by its own type. */
import { describe, expect, test } from "vitest";
import { openContext, openTarget } from "../../test/fakes/request-edges.ts";
import { DropNotes } from "./losses.ts";
import type { JsonObject } from "./messages/types.ts";
import { requestCodecs } from "./request-codecs.ts";

const document = (media_type: string): JsonObject => ({
  type: "document",
  source: { type: "base64", media_type, data: "QUFB" },
});

function write(upstream: "chat" | "responses", content: JsonObject[]): string {
  const body = { model: "m", messages: [{ role: "user", content }] };
  const { request, carry } = requestCodecs.messages.readRequest(body, openContext);
  const written = requestCodecs[upstream].writeRequest(request, carry, openTarget, new DropNotes(false));
  return JSON.stringify(written);
}

describe.each(["chat", "responses"] as const)("toward %s", (upstream) => {
  test("a document in base64 is a PDF", () => {
    expect(write(upstream, [document("application/pdf")])).toContain("data:application/pdf;base64,QUFB");
  });

  test.each(["audio/wav", "video/mp4", "image/png", "text/plain"])(
    "one of %s is refused, not sent as the file of another type that its name tells",
    (type) => {
      expect(() => write(upstream, [{ type: "text", text: "Look:" }, document(type)])).toThrow(
        expect.objectContaining({
          message: expect.stringContaining(`documents of type ${type} in base64`) as string,
          code: "unsupported_content",
          param: "messages.0.content.1",
        }),
      );
    },
  );
});
