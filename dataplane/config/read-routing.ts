/**
 * Reads routing parts, one publication after the other. A change usually touches one entry of thousands: an entry whose
 * bytes were read before is reused as it is, and only new ones are parsed and validated. All of it happens in slices: ten
 * thousand routes never hold up a request (design.md §8).
 */
import { hash } from "node:crypto";
import { z } from "zod";
import { JsonFault, JsonReader, type Span } from "../lib/json-reader.ts";
import { Slices } from "../lib/slices.ts";
import { organizationSchema, routeSchema, routingSchema, sourceSchema, type Routing } from "./schema.ts";

/** Longest work on a configuration before other work gets its turn. */
const SLICE_MS = 5;

/** The routing part without the entries of its lists, which are validated one by one. */
const outlineSchema = routingSchema.extend({
  routes: z.array(z.unknown()),
  organizations: z.array(z.unknown()),
  objects: z.array(z.unknown()),
});

/** Thrown for a part that cannot be served; the message names the place. */
class RoutingFault extends Error {}

export class RoutingReader {
  readonly #routes = new EntryList("routes", routeSchema);
  readonly #organizations = new EntryList("organizations", organizationSchema);
  readonly #objects = new EntryList("objects", sourceSchema);
  readonly #sliceMs: number;

  constructor(sliceMs = SLICE_MS) {
    this.#sliceMs = sliceMs;
  }

  /** Returns the routing part that this JSON text holds, or what is wrong with it. One reading at a time. */
  async read(text: Buffer): Promise<Routing | string> {
    try {
      return await this.#read(text);
    } catch (error) {
      if (error instanceof RoutingFault) return error.message;
      if (error instanceof JsonFault) return `routing: ${error.message}`.slice(0, 500);
      throw error;
    }
  }

  async #read(text: Buffer): Promise<Routing> {
    const reader = new JsonReader(text);
    const slices = new Slices(this.#sliceMs);
    const [routes, organizations, objects] = [
      this.#routes.begin(),
      this.#organizations.begin(),
      this.#objects.begin(),
    ];
    const lists = { routes, organizations, objects };
    const outline: Record<string, unknown> = {};
    for (const key of reader.keys()) {
      const list = Object.hasOwn(lists, key) ? lists[key as keyof typeof lists] : undefined;
      if (list === undefined || reader.kind() !== "array") {
        outline[key] = reader.value();
        continue;
      }
      outline[key] = [];
      for (const span of reader.items()) {
        list.add(text, span);
        if (slices.usedUp) await slices.pause();
      }
    }
    reader.end();
    const parsed = outlineSchema.safeParse(outline);
    if (!parsed.success) throw new RoutingFault(describe("routing", parsed.error));
    return {
      ...parsed.data,
      routes: this.#routes.accept(routes),
      organizations: this.#organizations.accept(organizations),
      objects: this.#objects.accept(objects),
    };
  }
}

/** One list of the routing part, through all publications. */
class EntryList<Entry> {
  readonly #name: string;
  readonly #schema: z.ZodType<Entry>;
  /** The entries of the last accepted reading, by the digest of their bytes. */
  #known: ReadonlyMap<string, Entry> = new Map();

  constructor(name: string, schema: z.ZodType<Entry>) {
    this.#name = name;
    this.#schema = schema;
  }

  begin(): Reading<Entry> {
    return new Reading(this.#name, this.#schema, this.#known);
  }

  accept({ entries, seen }: Reading<Entry>): Entry[] {
    this.#known = seen;
    return entries;
  }
}

/** The reading of one list of one publication. */
class Reading<Entry> {
  readonly entries: Entry[] = [];
  readonly seen = new Map<string, Entry>();
  readonly #name: string;
  readonly #schema: z.ZodType<Entry>;
  readonly #known: ReadonlyMap<string, Entry>;

  constructor(name: string, schema: z.ZodType<Entry>, known: ReadonlyMap<string, Entry>) {
    this.#name = name;
    this.#schema = schema;
    this.#known = known;
  }

  /** @throws RoutingFault when the entry is not valid. */
  add(text: Buffer, { start, end }: Span): void {
    const bytes = text.subarray(start, end);
    const digest = hash("sha256", bytes, "base64");
    const entry = this.#known.get(digest) ?? this.#parse(bytes);
    this.seen.set(digest, entry);
    this.entries.push(entry);
  }

  #parse(bytes: Buffer): Entry {
    const parsed = this.#schema.safeParse(JSON.parse(bytes.toString("utf8")));
    if (parsed.success) return parsed.data;
    throw new RoutingFault(describe(`routing.${this.#name}.${this.entries.length}`, parsed.error));
  }
}

/** Describes the first fault with its path: enough to act on, short enough for a status. */
export function describe(what: string, error: z.ZodError): string {
  const [issue] = error.issues;
  const path = [what, ...(issue?.path ?? [])].join(".");
  return `${path}: ${issue?.message ?? "not valid"}`.slice(0, 500);
}
