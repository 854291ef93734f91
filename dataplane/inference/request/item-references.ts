/**
 * `item_reference`: the AI SDK's default OpenAI provider names output items of earlier answers by their id instead
 * of sending them again, and the Agents SDK sends reasoning back without its content (dialects.md §B3). We keep no
 * responses; output items alone are kept whole for an hour for their organization, unless the client says
 * `store: false`, and take the place of what refers to them before anything else looks at the request. An unknown
 * reference stays and is refused, never dropped and never forwarded.
 */
import type { KeepItem } from "../../dialects/codecs.ts";
import { ApiError } from "../../lib/api-error.ts";
import { BODY_LIMIT, bodyLimits } from "../../lib/body-limits.ts";
import { HOUR_MS } from "../../lib/clock.ts";
import type { JsonReader, Span } from "../../lib/json-reader.ts";
import { withoutRepeats } from "../../lib/json-repeats.ts";
import type { Edit } from "../../lib/json-splice.ts";
import { asUtf8 } from "../../lib/utf8.ts";
import { MAX_ENTRY_BYTES, type ToolCache } from "../../tools/cache.ts";
import type { BodyLease, InferenceCall, OutputItems, Serve } from "../call.ts";
import type { Facts } from "../inspect/body.ts";
import { type AnswerSeal, sealedItem } from "../answer/seal-answer.ts";

const KEPT_MS = HOUR_MS;
/** Wait before a second look: a client may be back before its items have arrived in Redis. */
const SECOND_LOOK_MS = 100;
const REFERENCES_MAX = 1000;
/** Items, of up to 1 MiB each (`MAX_ENTRY_BYTES`), that are read at once, before their size is counted. */
const READ_AT_ONCE = 16;
/** Time after which no further portion is read: the store may not answer. */
const READ_MS = 2_000;
const ID_LENGTH_MAX = 128;

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Wraps `serve`: Responses calls know their organization's output items. */
export const withItemReferences =
  (serve: Serve, cache: ToolCache): Serve =>
  (call) =>
    call.dialect === "responses"
      ? serve({ ...call, items: new OrganizationItems(cache, call.principal.organizationId) })
      : serve(call);

/** One organization's output items, as the bytes of their JSON. */
class OrganizationItems implements OutputItems {
  readonly #cache: ToolCache;
  readonly #organizationId: string;

  constructor(cache: ToolCache, organizationId: string) {
    this.#cache = cache;
    this.#organizationId = organizationId;
  }

  keep(id: string, json: Buffer | string): void {
    if (id === "" || id.length > ID_LENGTH_MAX || json.length > MAX_ENTRY_BYTES) return;
    // Not copied: those of a large answer may have tens of megabytes together.
    const bytes = typeof json === "string" ? Buffer.from(json) : json;
    // An item that could not be stored is simply not found later on.
    const kept = this.#cache.set(this.#organizationId, this.#key(id), bytes, KEPT_MS);
    kept.catch(() => undefined);
  }

  async find(
    ids: readonly string[],
    found: (id: string, item: Buffer) => Promise<void> | void,
  ): Promise<readonly string[]> {
    const { missing, unread } = await this.#read(ids, found);
    if (missing.length === 0) return unread;
    await sleep(SECOND_LOOK_MS);
    // What had no item a moment ago has none where the store does not answer now.
    await this.#read(missing, found);
    return unread;
  }

  /** @returns the ids that have no item, and those of which that could not be known. */
  async #read(
    ids: readonly string[],
    found: (id: string, item: Buffer) => Promise<void> | void,
  ): Promise<{ readonly missing: readonly string[]; readonly unread: readonly string[] }> {
    const missing: string[] = [];
    const unread = new Set<string>();
    const until = performance.now() + READ_MS;
    let from = 0;
    for (; from < ids.length && performance.now() < until; from += READ_AT_ONCE) {
      const portion = ids.slice(from, from + READ_AT_ONCE);
      const items = await Promise.all(portion.map((id) => this.#get(id, () => unread.add(id))));
      for (const [index, id] of portion.entries()) {
        const item = items[index] ?? null;
        if (item !== null) await found(id, item);
        else if (!unread.has(id)) missing.push(id);
      }
    }
    return { missing, unread: [...unread, ...ids.slice(from)] };
  }

  async #get(id: string, silent: () => void): Promise<Buffer | null> {
    return id.length > ID_LENGTH_MAX ? null : await this.#cache.get(this.#key(id), silent);
  }

  #key(id: string): string {
    return `item:${this.#organizationId}:${id}`;
  }
}

/** Whether a request refers to items of earlier answers: by a reference, or by reasoning without its content. */
export const refersToItems = ({ content }: Facts): boolean =>
  content.bareReasoning.length > 0 || content.references.some(({ kind }) => kind === "item");

/**
 * Returns the edits that put every known item in its place.
 * @throws ApiError 413 when the request would become too large; 429 or 503 without room for so many bytes more; 503 where it
 * is not known in time whether an item that is referred to exists. (Reasoning whose content is not known is dropped, rule 2.17.)
 */
export async function knownItems(
  { content, bodyBytes }: Facts,
  items: OutputItems,
  bodyLease: BodyLease,
): Promise<Edit[]> {
  const references = [
    ...content.references.filter(({ kind }) => kind === "item"),
    ...content.bareReasoning,
  ].filter(({ id }) => id !== "");
  if (references.length === 0 || references.length > REFERENCES_MAX) return [];
  const uses = new Map<string, number>();
  for (const { id } of references) uses.set(id, (uses.get(id) ?? 0) + 1);
  const known = new Map<string, Buffer>();
  let size = bodyBytes;
  const unread = await items.find([...uses.keys()], async (id, item) => {
    const more = item.length * (uses.get(id) ?? 0);
    size += more;
    if (size > bodyLimits.bytes)
      throw new ApiError(
        "too_large",
        `With the items that it names the request is larger than ${BODY_LIMIT}.`,
      );
    await bodyLease.take(more);
    known.set(id, item);
  });
  if (unread.length > 0 && content.references.some(({ kind, id }) => kind === "item" && unread.includes(id)))
    throw itemsUnread();
  return references.flatMap(({ start, end, id }): Edit[] => {
    const item = known.get(id);
    return item === undefined ? [] : [{ start, end, text: item }];
  });
}

/** Whether reasoning has its content also where the client did not ask for it, so that it can be sent back. */
export const showsReasoning = ({ items }: InferenceCall, { store }: Facts): boolean =>
  items !== undefined && store !== false;

function itemsUnread(): ApiError {
  const message = "Items that the request refers to cannot be read right now. Try again in a moment.";
  return new ApiError("unavailable", message, { retryAfterSeconds: 1 });
}

/** Returns the function that keeps the output items of this call's answer; undefined when none are to be kept. */
export function keepItemOf(call: InferenceCall, facts: Facts): KeepItem | undefined {
  const { items, batchId } = call;
  if (items === undefined || batchId !== null || !showsReasoning(call, facts)) return undefined;
  return (id, json) => items.keep(id, json);
}

/** Keeps the output item ahead as the client gets it. @param wholeAt returns the bytes of what is read, as they came. */
export function keepItemAhead(
  reader: JsonReader,
  keep: KeepItem,
  seal: AnswerSeal | null,
  wholeAt = ({ start, end }: Span): Buffer => reader.bytes.subarray(start, end),
): void {
  if (reader.kind() !== "object") return;
  const start = reader.position;
  let id: string | undefined;
  reader.object((key) => {
    if (key === "id") id = reader.string();
  });
  if (id === undefined) return;
  const whole = wholeAt({ start, end: reader.position });
  // A longer one is not kept.
  if (whole.length > MAX_ENTRY_BYTES) return;
  // A request that names a member twice is refused.
  const item = withoutRepeats(Buffer.from(whole));
  keep(id, asUtf8(sealedItem(item, seal)));
}
