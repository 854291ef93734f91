/**
 * Lists of models as bytes. Making the list of a thousand models takes ten milliseconds and writing it five, and whoever has a
 * key may ask a hundred times a second: so both are done once for all callers who may use the same models.
 */
import { allowedRoutes, type ModelUser } from "../../config/find-route.ts";
import type { Route } from "../../config/schema.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import type { ErrorFamily } from "../../dialects/errors.ts";
import { CLOSE_ARRAY, COMMA, OPEN_ARRAY } from "../../lib/json-bytes.ts";
import { JsonBytes } from "../../lib/json-slices.ts";
import { SharedCache } from "../../lib/shared-cache.ts";
import { listEnvelope, pageOf, type ListQuery } from "../list-query.ts";

/** The lists take 16 MiB together; they are weighed in units of 16 KiB. */
const MOST_UNITS = 1024;
const UNIT_BYTES = 16 * 1024;

const [OPEN, BETWEEN, CLOSE] = [OPEN_ARRAY, COMMA, CLOSE_ARRAY].map((byte) => Buffer.of(byte)) as [
  Buffer,
  Buffer,
  Buffer,
];

/** Writes a model's entry as it is shown at a moment (Unix milliseconds). */
export type WriteEntry = (family: ErrorFamily, route: Route, snapshot: Snapshot, now: number) => object;

/** A model of a list, and where its entry stands in the list's bytes. */
interface Listed {
  readonly id: string;
  readonly start: number;
  readonly end: number;
}

/** All models that a caller may use, newest first; the entries are joined by commas. */
interface ModelList {
  readonly models: readonly Listed[];
  readonly bytes: Buffer;
}

/** From when on and until when an entry stays as it is; Unix milliseconds. */
interface Span {
  readonly from: number;
  readonly to: number;
}

export class ModelLists {
  readonly #entry: WriteEntry;
  #snapshot: Snapshot | null = null;
  #span: Span = { from: 0, to: 0 };
  #entries = newEntries();
  #lists = newLists();

  constructor(entry: WriteEntry) {
    this.#entry = entry;
  }

  /**
   * Returns the answer's page of the models that a caller may use.
   * @param usualLimit of a page where none is asked for
   * @throws ApiError 400 for a cursor that names no model of the list.
   */
  page(
    family: ErrorFamily,
    user: ModelUser,
    { snapshot, now }: { readonly snapshot: Snapshot; readonly now: number },
    query: ListQuery,
    usualLimit: number,
  ): object {
    this.#keepUpWith(snapshot, now);
    const { models, bytes } = this.#list(family, user, snapshot, now);
    const { data, hasMore } = pageOf(models, query, usualLimit);
    return { ...listEnvelope(data, hasMore), data: entriesOf(data, bytes) };
  }

  /** Forgets what another snapshot said, or was said before prices changed. */
  #keepUpWith(snapshot: Snapshot, now: number): void {
    const { from, to } = this.#span;
    if (snapshot === this.#snapshot && from <= now && now < to) return;
    this.#snapshot = snapshot;
    this.#span = pricedAlike(snapshot, now);
    this.#entries = newEntries();
    this.#lists = newLists();
  }

  #list(family: ErrorFamily, user: ModelUser, snapshot: Snapshot, now: number): ModelList {
    const key = `${family} ${policyOf(user, snapshot)}`;
    const known = this.#lists.get(key);
    if (known !== undefined) return known;
    const parts: Buffer[] = [];
    const models: Listed[] = [];
    let start = 0;
    for (const route of allowedRoutes(snapshot, user)) {
      const entry = this.#bytes(family, route, snapshot, now);
      if (start > 0) parts.push(BETWEEN);
      parts.push(entry);
      models.push({ id: route.model, start, end: start + entry.length });
      start += entry.length + BETWEEN.length;
    }
    const list = { models, bytes: Buffer.concat(parts) };
    this.#lists.set(user.organizationId, key, list, Math.ceil((list.bytes.length + key.length) / UNIT_BYTES));
    return list;
  }

  #bytes(family: ErrorFamily, route: Route, snapshot: Snapshot, now: number): Buffer {
    const known = this.#entries[family].get(route);
    if (known !== undefined) return known;
    const bytes = Buffer.from(JSON.stringify(this.#entry(family, route, snapshot, now)));
    this.#entries[family].set(route, bytes);
    return bytes;
  }
}

const newEntries = (): Readonly<Record<ErrorFamily, Map<Route, Buffer>>> => ({
  messages: new Map(),
  openai: new Map(),
});

/** Owned by the organizations that asked for them first: one with very many keys evicts its own. */
const newLists = (): SharedCache<ModelList> => new SharedCache(MOST_UNITS);

/** All that decides which models a caller may use, and with which upstreams, as `allowedRoutes` does. */
function policyOf({ organizationId, limits }: ModelUser, snapshot: Snapshot): string {
  const organization = snapshot.organization(organizationId);
  const namespace = organization?.source.namespace ?? "";
  return JSON.stringify([
    snapshot.dedicatesTo(organizationId) ? organizationId : null,
    snapshot.hasRoutesFor(namespace) ? namespace : null,
    organization?.allowedModels ?? [],
    ...limits.flatMap(({ limits: { models } }) => (models === undefined ? [] : [models])),
  ]);
}

/** The entries as a JSON list, without a copy where they stand in the order in which they were made. */
function entriesOf(data: readonly Listed[], bytes: Buffer): JsonBytes {
  const [first, last] = [data[0], data.at(-1)];
  if (first === undefined || last === undefined) return new JsonBytes([OPEN, CLOSE]);
  if (first.start <= last.start) return new JsonBytes([OPEN, bytes.subarray(first.start, last.end), CLOSE]);
  const entries = data.flatMap(({ start, end }) => [BETWEEN, bytes.subarray(start, end)]);
  return new JsonBytes([OPEN, Buffer.concat(entries.slice(1)), CLOSE]);
}

/** The time around a moment in which no price changes. */
function pricedAlike({ routing }: Snapshot, now: number): Span {
  let [from, to] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (const { prices } of routing.routes)
    for (const { from: moment } of prices.changes ?? [])
      if (moment <= now) from = Math.max(from, moment);
      else to = Math.min(to, moment);
  return { from, to };
}
