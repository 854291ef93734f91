/**
 * One client request per concept, and what each upstream dialect gets of it. To add a case, add one file
 * `requests/DIALECT/NAME.json` with `{"request": …}` (and `"target": {…}` where the model is a special one); the
 * expectation beside it, `NAME.expected.json`, is written by the first run and read by its reviewer.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { CodecContext, RequestCodec, Target } from "../../../dataplane/dialects/codecs.ts";
import { type Dialect, dialects } from "../../../dataplane/dialects/dialect.ts";
import { DropNotes } from "../../../dataplane/dialects/losses.ts";
import type { JsonObject } from "../../../dataplane/dialects/messages/types.ts";
import { requestCodecs } from "../../../dataplane/dialects/request-codecs.ts";
import { ApiError } from "../../../dataplane/lib/api-error.ts";

interface Case {
  readonly request: JsonObject;
  readonly target?: Partial<Target>;
}

const folder = join(import.meta.dirname, "requests");

/** Seals nothing: what is sealed is readable in the files. */
const context: CodecContext = {
  newId: (prefix) => `${prefix}_new`,
  createdAt: 1_790_000_000,
  sealer: {
    seal: (plain) => Buffer.from(plain).toString("base64url"),
    open: (sealed) => (sealed.startsWith("foreign") ? null : Buffer.from(sealed, "base64url").toString()),
  },
  model: "public-model",
};

const ordinary: Target = {
  upstreamModel: "upstream-model",
  maxOutputTokens: 8192,
  samplingParameters: true,
  encryptedReasoning: true,
  ownAccount: false,
  thinking: true,
  imageInput: true,
  pdfInput: true,
};

function convert(from: RequestCodec, to: RequestCodec, { request: body, target }: Case): JsonObject {
  const notes = new DropNotes(false);
  try {
    const { request, carry } = from.readRequest(body, context);
    const written = to.writeRequest(request, carry, { ...ordinary, ...target }, notes);
    return { body: written, dropped: notes.header() };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { error: { code: error.code, param: error.param ?? null, message: error.message } };
  }
}

const casesOf = (dialect: Dialect): string[] =>
  readdirSync(join(folder, dialect)).filter((file) => file.endsWith(".json") && !file.endsWith(".expected.json"));

describe.each(dialects)("requests of %s clients", (client) => {
  test.each(casesOf(client))("%s", async (file) => {
    const input = JSON.parse(readFileSync(join(folder, client, file), "utf8")) as Case;
    const results = Object.fromEntries(
      dialects.map((upstream) => [upstream, convert(requestCodecs[client], requestCodecs[upstream], input)]),
    );
    await expect(`${JSON.stringify(results, null, 2)}\n`).toMatchFileSnapshot(
      join(folder, client, file.replace(/\.json$/, ".expected.json")),
    );
  });
});
