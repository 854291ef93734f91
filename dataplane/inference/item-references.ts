/**
 * `item_reference`: the AI SDK's default OpenAI provider names output items of earlier answers by their id instead
 * of sending them again, and the Agents SDK sends reasoning back without its content (dialects.md §B3). We keep no
 * responses; output items alone are kept whole for an hour for their organization, unless the client says
 * `store: false`, and take the place of what refers to them before anything else looks at the request. An unknown
 * reference stays and is refused, never dropped and never forwarded.
 */
import type { KeepItem } from "../dialects/codecs.ts";
import type { JsonReader } from "../lib/json-reader.ts";
import { type Edit, splice } from "../lib/json-splice.ts";
import type { ToolCache } from "../tools/cache.ts";
import type { InferenceCall, OutputItems } from "./call.ts";
import { look, type Look, present } from "./look.ts";

const KEPT_MS = 60 * 60 * 1000;
/** A client may be back before its items have arrived in Redis. */
const SECOND_LOOK_MS = 100;
const REFERENCES_MAX = 1000;
const ID_LENGTH_MAX = 128;

type Serve = (call: InferenceCall) => Promise<void>;
/** Waits; an argument for the tests' sake. */
type Pause = (ms: number) => Promise<void>;

const sleep: Pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** `serve`, for calls that know their organization's output items. */
export const withItemReferences =
  (serve: Serve, cache: ToolCache, pause: Pause = sleep): Serve =>
  (call) =>
    call.dialect === "responses"
      ? serve({ ...call, items: new OrganizationItems(cache, call.principal.organizationId, pause) })
      : serve(call);

/** One organization's output items, as the bytes of their JSON. */
class OrganizationItems implements OutputItems {
  readonly #cache: ToolCache;
  readonly #organizationId: string;
  readonly #pause: Pause;

  constructor(cache: ToolCache, organizationId: string, pause: Pause) {
    this.#cache = cache;
    this.#organizationId = organizationId;
    this.#pause = pause;
  }

  keep(id: string, json: Buffer | string): void {
    if (id === "" || id.length > ID_LENGTH_MAX) return;
    // Failing is a miss later on.
    this.#cache.set(this.#key(id), Buffer.from(json), KEPT_MS).catch(() => undefined);
  }

  async find(ids: readonly string[]): Promise<ReadonlyMap<string, Buffer>> {
    const found = new Map<string, Buffer>();
    await this.#read(ids, found);
    const missing = ids.filter((id) => !found.has(id));
    if (missing.length > 0) {
      await this.#pause(SECOND_LOOK_MS);
      await this.#read(missing, found);
    }
    return found;
  }

  async #read(ids: readonly string[], found: Map<string, Buffer>): Promise<void> {
    const short = ids.filter((id) => id.length <= ID_LENGTH_MAX);
    await Promise.all(
      short.map(async (id) => {
        const item = await this.#cache.get(this.#key(id));
        if (item !== null) found.set(id, item);
      }),
    );
  }

  #key(id: string): string {
    return `item:${this.#organizationId}:${id}`;
  }
}

/** Whether a request refers to items of earlier answers: by a reference, or by reasoning without its content. */
export const refersToItems = ({ content }: Look): boolean =>
  content.bareReasoning.length > 0 || content.references.some(({ kind }) => kind === "item");

/** The request with every known item in its place. @throws ApiError when an item makes it no request any more. */
export async function withKnownItems(seen: Look, items: OutputItems): Promise<Look> {
  const references = [
    ...seen.content.references.filter(({ kind }) => kind === "item"),
    ...seen.content.bareReasoning,
  ].filter(({ id }) => id !== "");
  if (references.length === 0 || references.length > REFERENCES_MAX) return seen;
  const found = await items.find([...new Set(references.map(({ id }) => id))]);
  const edits = references.flatMap(({ start, end, id }): Edit[] => {
    const item = found.get(id);
    return item === undefined ? [] : [{ start, end, text: item }];
  });
  return edits.length === 0 ? seen : look(seen.dialect, splice(seen.body, edits));
}

/** What is told the output items of this call's answer; undefined when none are to be kept. */
export function keeperOf({ items, batchId }: InferenceCall, { fields, body }: Look): KeepItem | undefined {
  if (items === undefined || batchId !== null) return undefined;
  const store = present(fields, "store");
  if (store !== undefined && body.toString("latin1", store.start, store.end) === "false") return undefined;
  return (id, json) => items.keep(id, json);
}

/** Keeps the output item ahead as the bytes that it came in. */
export function keepItemAhead(reader: JsonReader, keep: KeepItem): void {
  if (reader.kind() !== "object") return;
  const start = reader.position;
  let id: string | undefined;
  reader.object((key) => {
    if (key === "id") id = reader.string();
  });
  if (id !== undefined) keep(id, Buffer.from(reader.bytes.subarray(start, reader.position)));
}
