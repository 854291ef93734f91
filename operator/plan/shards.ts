/** Encodes a compiled configuration as the files of one slot, and decodes them (dataplane/config/schema.ts). */
import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { gunzipSync, gzipSync } from "node:zlib";
import {
  ACCEPTED_SCHEMA_VERSIONS,
  type Slot,
  slotSchema,
  CREDENTIAL_SHARDS,
  credentialsSchema,
  indexSchema,
  MAX_PART_BYTES,
  MAX_SHARD_BYTES,
  ROUTING_SHARDS,
  routingSchema,
  type SnapshotIndex,
} from "../../dataplane/config/schema.ts";
import type { RoutingContent } from "./compiled.ts";
import type { Published } from "./prior.ts";
import type { Excess } from "./room.ts";

export interface SnapshotFile {
  readonly name: string;
  readonly bytes: Buffer;
}

export type Encoded =
  | {
      readonly ok: true;
      readonly index: SnapshotIndex;
      readonly indexText: string;
      /** The index stands last. */ readonly files: readonly SnapshotFile[];
    }
  | { readonly ok: false; readonly excess: Excess };

/** What a slot holds, as far as its files show. */
export interface SlotState {
  readonly slot: Slot;
  /** The serial that its index names, complete or not; null: no readable index. */
  readonly serial: number | null;
  readonly hash: string | null;
  /** null: not complete. */
  readonly published: Published | null;
  /** The index as it was read or written, where `published` is what it names. */
  readonly indexText?: string;
}

const sha256 = (data: string | Buffer) => createHash("sha256").update(data).digest("hex");

export const indexFileName = (slot: Slot) => `${slot}-index.json`;

/** The routing part, without its serial. */
export interface SerializedRouting {
  readonly schemaVersion: number;
  /** Its text after the first brace, as members of a gzip file. */
  readonly members: readonly Buffer[];
  /** SHA-256 of the text. */
  readonly hash: string;
  /** Length of the text. */
  readonly bytes: number;
}

/** Characters of a member, about. The whole may be tens of megabytes, and is never one text. */
const MEMBER_CHARS = 1024 * 1024;
const ENTRIES_AT_ONCE = 100;

/** Packs the routing part, once for all slots and serials that it is published under. */
export function serialize(content: RoutingContent): SerializedRouting {
  const hash = createHash("sha256").update("{");
  const members: Buffer[] = [];
  let bytes = 1;
  let waiting = "";
  const flush = () => {
    hash.update(waiting);
    bytes += Buffer.byteLength(waiting);
    members.push(gzip(waiting));
    waiting = "";
  };
  for (const text of textsOf(content)) {
    waiting += text;
    if (waiting.length >= MEMBER_CHARS) flush();
  }
  flush();
  return { schemaVersion: content.schemaVersion, members, hash: hash.digest("hex"), bytes };
}

/** Yields the JSON of the object in pieces, without its first brace. */
function* textsOf({ schemaVersion, routes, policies, organizations, objects, owners }: RoutingContent) {
  yield `"schemaVersion":${schemaVersion},"routes":`;
  yield* textsOfList(routes);
  yield `,"policies":${JSON.stringify(policies)},"organizations":`;
  yield* textsOfList(organizations);
  yield `,"objects":`;
  yield* textsOfList(objects);
  if (owners !== undefined) yield `,"owners":${JSON.stringify(owners)}`;
  yield "}";
}

function* textsOfList(entries: readonly unknown[]) {
  yield "[";
  for (let start = 0; start < entries.length; start += ENTRIES_AT_ONCE) {
    if (start > 0) yield ",";
    yield JSON.stringify(entries.slice(start, start + ENTRIES_AT_ONCE)).slice(1, -1);
  }
  yield "]";
}

/** Whether both are certainly the same, as what is compiled from unchanged objects is. */
export function isSameContent(one: RoutingContent, other: RoutingContent): boolean {
  const areSame = (entries: readonly unknown[], others: readonly unknown[]) =>
    entries.length === others.length && entries.every((entry, index) => entry === others[index]);
  return (
    one.schemaVersion === other.schemaVersion &&
    areSame(one.routes, other.routes) &&
    areSame(one.objects, other.objects) &&
    isDeepStrictEqual(one.policies, other.policies) &&
    isDeepStrictEqual(one.organizations, other.organizations) &&
    isDeepStrictEqual(one.owners, other.owners)
  );
}

/** Makes the files of a slot; or tells by how much a part is too large for the pieces that there are. */
export function encode(
  slot: Slot,
  serial: number,
  { schemaVersion, members, hash, bytes }: SerializedRouting,
  credentials: Readonly<Record<string, string>>,
): Encoded {
  const beginning = `{"serial":${serial},`;
  const valuesText = JSON.stringify({ serial, values: credentials });
  const unpacked = { routing: beginning.length - 1 + bytes, credentials: Buffer.byteLength(valuesText) };
  for (const part of ["routing", "credentials"] as const)
    if (unpacked[part] > MAX_PART_BYTES)
      return { ok: false, excess: { part, bytes: unpacked[part] - MAX_PART_BYTES, unpacked: true } };
  const routing = pieces(`${slot}-`, [gzip(beginning), ...members]);
  const values = pieces(`${slot}-credentials-`, [gzip(valuesText)]);
  if (routing.length > ROUTING_SHARDS) return tooLarge("routing", routing, ROUTING_SHARDS);
  if (values.length > CREDENTIAL_SHARDS) return tooLarge("credentials", values, CREDENTIAL_SHARDS);
  const named = (files: readonly SnapshotFile[]) =>
    files.map(({ name, bytes }) => ({ file: name, sha256: sha256(bytes) }));
  const index: SnapshotIndex = {
    schemaVersion,
    serial,
    hash,
    routing: named(routing),
    credentials: named(values),
  };
  const indexText = `${JSON.stringify(index)}\n`;
  const indexFile = { name: indexFileName(slot), bytes: Buffer.from(indexText) };
  return { ok: true, index, indexText, files: [...routing, ...values, indexFile] };
}

function tooLarge(part: Excess["part"], files: readonly SnapshotFile[], most: number): Encoded {
  const packed = files.reduce((sum, { bytes }) => sum + bytes.length, 0);
  return { ok: false, excess: { part, bytes: packed - most * MAX_SHARD_BYTES } };
}

function gzip(text: string): Buffer {
  const member = gzipSync(text);
  // Bytes 4–7 are the modification time (Node writes zero), byte 9 the operating system: the same everywhere.
  member.fill(0, 4, 8);
  member[9] = 255;
  return member;
}

function pieces(prefix: string, members: readonly Buffer[]): SnapshotFile[] {
  const packed = Buffer.concat(members);
  const count = Math.max(1, Math.ceil(packed.length / MAX_SHARD_BYTES));
  return Array.from({ length: count }, (_, number) => ({
    name: `${prefix}${number}.gz`,
    bytes: packed.subarray(number * MAX_SHARD_BYTES, (number + 1) * MAX_SHARD_BYTES),
  }));
}

/**
 * Reads both slots back from their files; what is damaged, half there or of another schema is not complete.
 * @param known earlier states: a slot that still holds the same is not unpacked again, as it may be megabytes
 */
export function decodeSlots(
  files: ReadonlyMap<string, Uint8Array>,
  known: readonly SlotState[] = [],
): SlotState[] {
  return slotSchema.options.map((slot) => {
    const bytes = files.get(indexFileName(slot));
    const index = readIndex(bytes);
    if (index === null) return { slot, serial: null, hash: null, published: null };
    const indexText = Buffer.from(bytes ?? []).toString();
    const same = known.find((state) => state.slot === slot && state.indexText === indexText);
    if (same !== undefined && same.published !== null && isWhole(index, files)) return same;
    const { serial, hash } = index;
    return { slot, serial, hash, published: readParts(index, files), indexText };
  });
}

/** Whether every piece is the one that the index names. */
const isWhole = (index: SnapshotIndex, files: ReadonlyMap<string, Uint8Array>): boolean =>
  [...index.routing, ...index.credentials].every(({ file, sha256: digest }) => {
    const bytes = files.get(file);
    return bytes !== undefined && sha256(Buffer.from(bytes)) === digest;
  });

function readIndex(bytes: Uint8Array | undefined): SnapshotIndex | null {
  if (bytes === undefined) return null;
  try {
    return indexSchema.safeParse(JSON.parse(Buffer.from(bytes).toString())).data ?? null;
  } catch {
    return null;
  }
}

function readParts(index: SnapshotIndex, files: ReadonlyMap<string, Uint8Array>): Published | null {
  // Another release wrote it: what we could read of it might mean something else.
  if (!ACCEPTED_SCHEMA_VERSIONS.includes(index.schemaVersion)) return null;
  try {
    const routing = routingSchema.safeParse(unpack(index.routing, files));
    const credentials = credentialsSchema.safeParse(unpack(index.credentials, files));
    if (!routing.success || !credentials.success) return null;
    if (routing.data.serial !== index.serial || credentials.data.serial !== index.serial) return null;
    return { routing: routing.data, credentials: credentials.data.values };
  } catch {
    return null;
  }
}

/** @throws when a piece is missing or is not the one that the index names. */
function unpack(shards: SnapshotIndex["routing"], files: ReadonlyMap<string, Uint8Array>): unknown {
  const parts = shards.map(({ file, sha256: digest }) => {
    const bytes = files.get(file);
    if (bytes === undefined || sha256(Buffer.from(bytes)) !== digest)
      throw new Error(`${file} is not complete`);
    return bytes;
  });
  return JSON.parse(gunzipSync(Buffer.concat(parts), { maxOutputLength: MAX_PART_BYTES }).toString());
}

/**
 * Returns the slot that a new serial goes into. The slot of the serial that all pods acknowledged is never overwritten.
 * Where nobody acknowledges, the older slot is. Where it is not known which pod holds what (a restarted operator), the
 * newer of two complete slots counts as pending.
 */
export function nextSlot(
  slots: readonly SlotState[],
  settledSerial: number | null,
  acknowledged: boolean,
): Slot {
  const complete = slots
    .filter((state) => state.published !== null)
    .sort((one, other) => (one.serial ?? 0) - (other.serial ?? 0));
  const [older, newer] = complete;
  if (older === undefined) return leastRecent(slots);
  const settled = complete.find((state) => state.serial === settledSerial);
  const kept = settled ?? (newer === undefined || acknowledged ? older : newer);
  return kept.slot === "a" ? "b" : "a";
}

/** Returns the older of two slots that we cannot read: a pod may still read the newer one. */
function leastRecent(slots: readonly SlotState[]): Slot {
  const [first, second] = slots;
  return (second?.serial ?? 0) < (first?.serial ?? 0) ? "b" : "a";
}

/** Returns the next serial, which grows with every publication, also when the clock goes back. */
export const nextSerial = (slots: readonly SlotState[], nowMs: number): number =>
  Math.max(nowMs, ...slots.map((state) => (state.serial ?? 0) + 1));
