/**
 * `item_reference`: the AI SDK's default OpenAI provider names output items of earlier answers by their id instead
 * of sending them again (dialects.md §B3). We keep no responses; output items alone are kept for an hour for their
 * organization, unless the client says `store: false`, and references are replaced by them before anything else
 * looks at the request. An unknown one stays and is refused, never dropped and never forwarded.
 */
import { isObject } from "../dialects/cursor.ts";
import { objectOf, parseJson } from "../dialects/fields.ts";
import type { JsonObject } from "../dialects/messages/types.ts";
import { type Edit, type Span, splice } from "../lib/json-splice.ts";
import { SseReader } from "../lib/sse.ts";
import type { ToolCache } from "../tools/cache.ts";
import type { AnswerSink, InferenceCall } from "./call.ts";
import { look } from "./look.ts";
import type { Reference } from "./look-content.ts";

const KEPT_MS = 60 * 60 * 1000;
/** A client may be back before its items have arrived in Redis. */
const SECOND_LOOK_MS = 100;
/** Longer answers are not taken apart on the way out. */
const ANSWER_BYTES_MAX = 4 * 1024 * 1024;
const REFERENCES_MAX = 1000;
const ID_LENGTH_MAX = 128;

type Serve = (call: InferenceCall) => Promise<void>;
/** Waits; an argument for the tests' sake. */
type Pause = (ms: number) => Promise<void>;

const sleep: Pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** `serve`, with references resolved on the way in and items kept on the way out. */
export const withItemReferences =
  (serve: Serve, cache: ToolCache, pause: Pause = sleep): Serve =>
  async (call) => {
    if (call.dialect !== "responses") return serve(call);
    const items = new OrganizationItems(cache, call.principal.organizationId);
    const body = await resolved(call.body, items, pause);
    const isKept = call.batchId === null && !saysNotToStore(body);
    return serve({ ...call, body, sink: isKept ? keeping(call.sink, items) : call.sink });
  };

/** One organization's output items, as the bytes of their JSON. */
class OrganizationItems {
  readonly #cache: ToolCache;
  readonly #organizationId: string;

  constructor(cache: ToolCache, organizationId: string) {
    this.#cache = cache;
    this.#organizationId = organizationId;
  }

  get(id: string): Promise<Buffer | null> {
    return id.length > ID_LENGTH_MAX ? Promise.resolve(null) : this.#cache.get(this.#key(id));
  }

  async keep(item: JsonObject): Promise<void> {
    const { id } = item;
    if (typeof id !== "string" || id === "" || id.length > ID_LENGTH_MAX) return;
    await this.#cache.set(this.#key(id), Buffer.from(JSON.stringify(item)), KEPT_MS);
  }

  #key(id: string): string {
    return `item:${this.#organizationId}:${id}`;
  }
}

/** The body with every known reference replaced. @throws ApiError when it is no request at all. */
async function resolved(body: Buffer, items: OrganizationItems, pause: Pause): Promise<Buffer> {
  if (!body.includes('"item_reference"')) return body;
  const references = look("responses", body).content.references.filter(({ kind }) => kind === "item");
  if (references.length === 0 || references.length > REFERENCES_MAX) return body;
  const ids = [...new Set(references.map(({ id }) => id))];
  const found = await findAll(ids, items);
  const missing = ids.filter((id) => !found.has(id));
  if (missing.length > 0) {
    await pause(SECOND_LOOK_MS);
    for (const [id, item] of await findAll(missing, items)) found.set(id, item);
  }
  return splice(body, editsOf(body, references, found));
}

async function findAll(ids: readonly string[], items: OrganizationItems): Promise<Map<string, Buffer>> {
  const found = new Map<string, Buffer>();
  await Promise.all(
    ids.map(async (id) => {
      const item = await items.get(id);
      if (item !== null) found.set(id, item);
    }),
  );
  return found;
}

function editsOf(
  body: Buffer,
  references: readonly Reference[],
  found: ReadonlyMap<string, Buffer>,
): readonly Edit[] {
  const kept: Edit[] = [];
  const removed: Span[] = [];
  for (const { start, end, id } of references) {
    const item = found.get(id);
    if (item === undefined) continue;
    if (isEmptyReasoning(item)) removed.push({ start, end });
    else kept.push({ start, end, text: item });
  }
  return [...kept, ...removalsOf(body, removed)];
}

/** Reasoning whose content was never asked for says nothing to an upstream that stores nothing. */
function isEmptyReasoning(item: Buffer): boolean {
  const { type, encrypted_content } = JSON.parse(item.toString("utf8")) as JsonObject;
  return type === "reasoning" && typeof encrypted_content !== "string";
}

const COMMA = 0x2c;
const isSpace = (byte: number | undefined): boolean =>
  byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d;

/** Takes elements out of an array, each with one comma. `spans` stand in order. */
function removalsOf(body: Buffer, spans: readonly Span[]): readonly Edit[] {
  const removals: { start: number; end: number }[] = [];
  for (const span of spans) {
    let { start, end } = span;
    while (isSpace(body[end])) end += 1;
    if (body[end] === COMMA) end += 1;
    else {
      // The last element: the comma before it goes, past elements that are going too.
      for (;;) {
        while (isSpace(body[start - 1])) start -= 1;
        const before = removals.at(-1);
        if (before?.end !== start) break;
        start = before.start;
        removals.pop();
      }
      if (body[start - 1] === COMMA) start -= 1;
    }
    removals.push({ start, end });
  }
  return removals.map(({ start, end }) => ({ start, end, text: "" }));
}

/** `"store": false` anywhere among the body's keys; within a string the quotes would be escaped. */
function saysNotToStore(body: Buffer): boolean {
  const key = '"store"';
  for (let at = body.indexOf(key); at >= 0; at = body.indexOf(key, at + key.length)) {
    const after = body.toString("latin1", at + key.length, at + key.length + 32);
    if (/^\s*:\s*false/.test(after)) return true;
  }
  return false;
}

/** The sink, with the output items of the answer that passes through kept. */
function keeping(sink: AnswerSink, items: OrganizationItems): AnswerSink {
  return {
    start: (status, headers) => sink.start(status, headers),
    write: (bytes) => {
      for (const item of outputOf(bytes)) void items.keep(item);
      return sink.write(bytes);
    },
    drained: () => sink.drained(),
    end: () => sink.end(),
    closed: sink.closed,
  };
}

/** The output items of a whole answer, or of the event that ends a stream: each is written in one piece. */
function outputOf(bytes: Uint8Array | string): readonly JsonObject[] {
  const written = Buffer.from(bytes);
  if (written.length > ANSWER_BYTES_MAX) return [];
  if (written[0] === 0x7b) return itemsOf(objectOf(parseJson(written.toString("utf8"))));
  if (!written.includes('"response.completed"') && !written.includes('"response.incomplete"')) return [];
  return new SseReader().push(written).flatMap(({ data }) => {
    const event = objectOf(parseJson(data));
    const isEnd = event?.["type"] === "response.completed" || event?.["type"] === "response.incomplete";
    return isEnd && isObject(event["response"]) ? itemsOf(event["response"]) : [];
  });
}

const itemsOf = (response: JsonObject | null): readonly JsonObject[] =>
  Array.isArray(response?.["output"]) ? response["output"].filter(isObject) : [];
