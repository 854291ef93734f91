/**
 * Decides what is left out when everything together does not fit the snapshot (rule 8.5): object by object, the largest
 * of the namespace that grew last first, so that the namespace that fills it pays for it, and nobody's changes wait.
 */
import { gzipSync } from "node:zlib";
import type { Compiled } from "./compiled.ts";
import type { Refusal, Refusals } from "./judge.ts";
import { byAge, compareText, type Declared } from "./objects.ts";
import { oncePer } from "./once-per.ts";
import { credentialsOf } from "./policies.ts";
import { Prior, type Published, type ServedEntry, servedEntries } from "./prior.ts";
import { entriesByUid, entrySize } from "./quotas.ts";

/** Which part does not fit, and by how many bytes: packed ones, as the pieces hold, or unpacked ones, as a data plane reads. */
export interface Excess {
  readonly part: "routing" | "credentials";
  readonly bytes: number;
  readonly unpacked?: true;
}

interface Candidate {
  readonly object: Declared;
  /** Bytes that leaving it out frees, about: packed ones, unless `Excess.unpacked`. */
  readonly bytes: number;
  readonly keepsLast: boolean;
}

const packed = oncePer((entry: ServedEntry) => ({ bytes: gzipSync(JSON.stringify(entry)).length }));

const idsOf = (entry: ServedEntry): readonly string[] =>
  "upstreams" in entry
    ? entry.upstreams.flatMap(({ credential }) => credential?.id ?? [])
    : "webSearch" in entry
      ? credentialsOf(entry)
      : (entry.notifications ?? []).flatMap(({ credential }) => credential ?? []);

/** Returns what to leave out in addition to `before`; empty: nothing else can be left out. */
export function leaveOut(
  compiled: Compiled,
  published: Published | null,
  excess: Excess,
  before: Refusals,
): Refusals {
  const entries = entriesByUid(compiled);
  const prior = new Prior(published);
  const plain = (entry: ServedEntry, values: Readonly<Record<string, string>>) =>
    excess.part === "routing"
      ? entrySize(entry).bytes
      : // The id counts too: a value may be shorter than that.
        idsOf(entry).reduce((sum, id) => sum + id.length + (values[id]?.length ?? 0), 0);
  const size: typeof plain =
    excess.part === "routing" && excess.unpacked !== true ? (entry) => packed(entry).bytes : plain;

  const sizes = new Map<string, number>();
  const grow = (namespace: string, bytes: number) =>
    sizes.set(namespace, (sizes.get(namespace) ?? 0) + bytes);
  const growth = new Map<string, number>();
  for (const entry of entries.values()) grow(entry.source.namespace, plain(entry, compiled.credentials));
  for (const [namespace, bytes] of sizes) growth.set(namespace, bytes);
  for (const entry of published === null ? [] : servedEntries(published.routing)) {
    const { namespace } = entry.source;
    growth.set(namespace, (growth.get(namespace) ?? 0) - plain(entry, published?.credentials ?? {}));
  }
  // Namespaces that did not grow come after all that did, the largest first.
  const rank = (namespace: string) => Math.max(0, growth.get(namespace) ?? 0);
  const namespaces = [...sizes.keys()].sort(
    (one, other) =>
      rank(other) - rank(one) || (sizes.get(other) ?? 0) - (sizes.get(one) ?? 0) || compareText(one, other),
  );

  const candidate = (object: Declared): Candidate | null => {
    const entry = entries.get(object.uid);
    if (entry === undefined) return null;
    const whole = size(entry, compiled.credentials);
    const last = prior.entry(object.uid);
    const freed =
      last === undefined || last.source.generation === entry.source.generation || before.has(object)
        ? 0
        : whole - size(last, published?.credentials ?? {});
    return freed > 0 ? { object, bytes: freed, keepsLast: true } : { object, bytes: whole, keepsLast: false };
  };
  const byNamespace = Map.groupBy(
    compiled.verdicts.map(({ object }) => object),
    ({ namespace }) => namespace,
  );
  const refusals = new Map<Declared, Refusal>();
  let left = excess.bytes;
  for (const namespace of namespaces) {
    const candidates = (byNamespace.get(namespace) ?? [])
      .flatMap((object) => candidate(object) ?? [])
      .filter(({ bytes }) => bytes > 0)
      .sort((one, other) => other.bytes - one.bytes || byAge(other.object, one.object));
    for (const { object, bytes, keepsLast } of candidates) {
      if (left <= 0) return refusals;
      refusals.set(object, { fault: tooLarge(object, excess.part), keepsLast });
      left -= bytes;
    }
  }
  return refusals;
}

const tooLarge = ({ namespace }: Declared, part: Excess["part"]): Refusal["fault"] => ({
  reason: "TooLarge",
  path: "",
  message: `the snapshot of all namespaces is full, and ${
    part === "routing" ? "this is" : "the credentials are those of"
  } the largest object of namespace "${namespace}", which grew last; make it smaller, or delete what is not needed`,
});
