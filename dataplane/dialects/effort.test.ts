/** The thinking that a Messages upstream is asked for where the request is written anew, as in a tool loop. */
import { expect, test } from "vitest";
import { openContext, openTarget } from "../../test/fakes/request-edges.ts";
import { DropNotes } from "./losses.ts";
import type { JsonObject } from "./messages/types.ts";
import { requestCodecs } from "./request-codecs.ts";

test.each<[JsonObject, JsonObject]>([
  [{ type: "enabled", budget_tokens: 5000 }, { type: "adaptive" }],
  [
    { type: "adaptive", display: "omitted", budget_tokens: 5000 },
    { type: "adaptive", display: "omitted" },
  ],
  [{ type: "between_tools", budget_tokens: 5000 }, { type: "between_tools" }],
])("never with a budget: %j", (asked, sent) => {
  const body = { model: "m", messages: [{ role: "user", content: "Hi" }], thinking: asked };
  const { request, carry } = requestCodecs.messages.readRequest(body, openContext);
  const written = requestCodecs.messages.writeRequest(request, carry, openTarget, new DropNotes(true));
  expect(written["thinking"]).toEqual(sent);
});
