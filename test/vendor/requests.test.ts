/** What goes to an upstream fits the vendor's own type of a request, whichever dialect the client speaks. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { openContext, openTarget } from "../fakes/request-edges.ts";
import { dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { DropNotes } from "../../dataplane/dialects/losses.ts";
import type { JsonObject } from "../../dataplane/dialects/messages/types.ts";
import { COMPACTED_PREFIX } from "../../dataplane/dialects/responses/compaction.ts";
import { requestCodecs } from "../../dataplane/dialects/request-codecs.ts";
import { mappedSubset, plain } from "../fakes/conversations.ts";
import { vendorJudge } from "./judge.ts";
import { vendorType } from "./vendor-type.ts";
import { runs } from "../fakes/runs.ts";

const judge = await vendorJudge();
function convert(from: Dialect, to: Dialect, body: JsonObject): JsonObject {
  const { request, carry } = requestCodecs[from].readRequest(body, openContext);
  return plain(
    requestCodecs[to].writeRequest(request, carry, openTarget, new DropNotes(false)),
  ) as JsonObject;
}

test("500 conversations that go on after a compaction and are compacted again", () => {
  // The sealer of these tests leaves what it seals as it is; the kind stands inside of the seal too.
  const sealedSummary = `${COMPACTED_PREFIX}${COMPACTED_PREFIX}They greeted.`;
  const sealed = { type: "compaction", id: "cmp_1", encrypted_content: sealedSummary };
  fc.assert(
    fc.property(mappedSubset({}, false), (body) => {
      const { input, ...asked } = convert("messages", "responses", body);
      const compacted = {
        ...asked,
        input: [sealed, ...(input as JsonObject[]), { type: "compaction_trigger" }],
      };
      expect(judge("ResponsesRequest", compacted)).toEqual([]);
      for (const upstream of dialects) {
        const sent = convert("responses", upstream, compacted);
        expect(judge(vendorType(upstream, "Request"), sent), upstream).toEqual([]);
        expect(JSON.stringify(sent)).toContain("They greeted.");
      }
    }),
    { numRuns: runs(500) },
  );
});

describe.each(dialects)("a %s client", (client) => {
  test("500 conversations fit the type of each upstream's vendor", () => {
    fc.assert(
      fc.property(mappedSubset({}, true), (body) => {
        const asked = client === "messages" ? body : convert("messages", client, body);
        for (const upstream of dialects)
          expect(judge(vendorType(upstream, "Request"), convert(client, upstream, asked)), upstream).toEqual(
            [],
          );
      }),
      { numRuns: runs(500) },
    );
  });
});

const folder = join(import.meta.dirname, "..", "golden", "dialects", "requests");
const cases = dialects.flatMap((client) =>
  readdirSync(join(folder, client))
    .filter((file) => file.endsWith(".expected.json"))
    .map((file) => [client, file] as const),
);

/** Blocks of a beta, which the vendor's stable types lack; a client's own go to a Messages upstream as they are. */
const betas = new Set(["system-turn-blocks.expected.json"]);

test.each(cases)("the golden request of a %s client, %s", (client, file) => {
  const results = JSON.parse(readFileSync(join(folder, client, file), "utf8")) as Record<
    Dialect,
    { body?: JsonObject }
  >;
  const faults = dialects.flatMap((upstream) => {
    const { body } = results[upstream];
    if (body === undefined || (upstream === "messages" && betas.has(file))) return [];
    return judge(vendorType(upstream, "Request"), body).map((fault) => `${upstream}: ${fault}`);
  });
  expect(faults).toEqual([]);
});
