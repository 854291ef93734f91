/**
 * What one tenant's namespace may hold under `Namespaced` (rule 8.2): objects, and bytes of compiled entries. What is
 * served stays, then the oldest.
 */
import type { Compiled } from "./compiled.ts";
import type { Refusal, Refusals } from "./judge.ts";
import { byAge, type Declared, type Fault } from "./objects.ts";
import { oncePer } from "./once-per.ts";
import { type Prior, type ServedEntry, servedEntries } from "./prior.ts";
import { isTenant, type Tenancy, whyNot } from "./tenancy.ts";

/** Specs may have this many times `quotas.bytes`: a PriceTable holds more than is served of it. None beyond is looked at. */
const DECLARED_PER_SERVED = 16;

/** Returns how many bytes of specs, as JSON, are looked at of a namespace; null: all. */
export const mostDeclared = (tenancy: Tenancy, namespace: string): number | null =>
  isTenant(tenancy, namespace) ? DECLARED_PER_SERVED * tenancy.quotas.bytes : null;

/** Returns the fault of an object that is beyond `mostDeclared`. */
export const overDeclared = (namespace: string, most: number): Fault => ({
  reason: "NotPermitted",
  path: "",
  message: `the objects of namespace "${namespace}" have more than ${most} bytes together (${DECLARED_PER_SERVED} times quotas.bytes); ${help(namespace)}`,
});

/** Bytes of an entry's plain JSON. */
export const entrySize = oncePer((entry: ServedEntry) => ({
  bytes: Buffer.byteLength(JSON.stringify(entry)),
}));

/** What is compiled, by the uid of the object that it comes from. */
export const entriesByUid = ({ routing }: Compiled): ReadonlyMap<string, ServedEntry> =>
  new Map(servedEntries(routing).map((entry) => [entry.source.uid, entry]));

/** Objects of each tenant's namespace, oldest first. */
const byTenant = (objects: readonly Declared[], tenancy: Tenancy): ReadonlyMap<string, Declared[]> =>
  tenancy.mode === "Trusted"
    ? new Map()
    : Map.groupBy(
        objects.filter(({ namespace }) => isTenant(tenancy, namespace)),
        ({ namespace }) => namespace,
      );

/** Refuses the objects beyond `quotas.objects`. @param objects oldest first */
export function overObjects(objects: readonly Declared[], prior: Prior, tenancy: Tenancy): Refusals {
  const most = tenancy.quotas.objects;
  const refusals = new Map<Declared, Refusal>();
  for (const [namespace, own] of byTenant(objects, tenancy)) {
    if (own.length <= most) continue;
    const { servedUids } = prior;
    const first = [
      ...own.filter(({ uid }) => servedUids.has(uid)),
      ...own.filter(({ uid }) => !servedUids.has(uid)),
    ];
    for (const object of first.slice(most))
      refusals.set(
        object,
        overQuota(
          // The message does not say how many there are: each one more would change the status of all that are refused.
          `namespace "${namespace}" may have ${most} objects (quotas.objects), and has more; ${help(namespace)}`,
          false,
        ),
      );
  }
  return refusals;
}

/**
 * Refuses objects whose entries do not fit, in addition to those refused already. `allNew`: with them all others of their
 * namespace, which stay as they were served before, so that none of them takes the freed place.
 */
export function overBytes(
  compiled: Compiled,
  prior: Prior,
  tenancy: Tenancy,
  refused: Refusals,
  allNew: boolean,
): Refusals {
  const refusals = new Map<Declared, Refusal>();
  if (tenancy.mode === "Trusted") return refusals;
  const entries = entriesByUid(compiled);
  const objects = compiled.verdicts.map(({ object }) => object);
  for (const [namespace, own] of byTenant(objects.toSorted(byAge), tenancy)) {
    const message = `the configuration of namespace "${namespace}" may have ${tenancy.quotas.bytes} bytes (quotas.bytes), and this does not fit; ${help(namespace)}`;
    const before = refusals.size;
    let left = tenancy.quotas.bytes;
    const grown: { object: Declared; bytes: number }[] = [];
    const fresh: { object: Declared; bytes: number }[] = [];
    for (const object of own) {
      const entry = entries.get(object.uid);
      if (entry === undefined) continue;
      const { bytes } = entrySize(entry);
      const last = prior.entry(object.uid);
      if (last === undefined) fresh.push({ object, bytes });
      else {
        const kept = Math.min(bytes, entrySize(last).bytes);
        if (kept > left) refusals.set(object, overQuota(message, false));
        else {
          left -= kept;
          if (bytes > kept) grown.push({ object, bytes: bytes - kept });
        }
      }
    }
    for (const { object, bytes } of [...grown, ...fresh]) {
      if (bytes <= left) left -= bytes;
      // What it served before fits, unless the object was refused already.
      else refusals.set(object, overQuota(message, refused.get(object) === undefined));
    }
    if (!allNew || refusals.size === before) continue;
    // A PriceTable has no entry of its own.
    for (const object of own)
      if (object.kind !== "PriceTable" && !refusals.has(object) && !refused.has(object))
        refusals.set(object, overQuota(message, true));
  }
  return refusals;
}

const help = (namespace: string): string =>
  `delete what is not needed, or ask the platform team to raise the quota (${whyNot(namespace)})`;

/** `why` says whose quota it is, and what helps. */
const overQuota = (why: string, keepsLast: boolean): Refusal => ({
  fault: { reason: "NotPermitted", path: "", message: why },
  keepsLast,
});
