/**
 * Chooses the schema version of a snapshot. While pods of two releases run side by side it is one that all of them
 * accept, so that a release and its predecessor never break each other (design.md §2).
 */
import { SCHEMA_VERSION } from "../../dataplane/config/schema.ts";
import type { RoutingContent } from "./compiled.ts";

/** By older version, how it is made from the next newer one. A version that is not listed is not written any more. */
const downgrades: Readonly<Record<number, (routing: RoutingContent) => RoutingContent>> = {};

/** Every version that this operator can write, newest first. */
const written: readonly number[] = [
  SCHEMA_VERSION,
  ...Object.keys(downgrades)
    .map(Number)
    .sort((one, other) => other - one),
];

/**
 * Returns the newest version that every answering pod accepts; our own newest when none answers. Where no version suits
 * all, the one that suits most: the other pods report that they refuse it.
 * @param accepted what each answering pod accepts
 */
export function chooseVersion(
  accepted: readonly (readonly number[])[],
  choices: readonly number[] = written,
): number {
  const friends = (version: number) => accepted.filter((versions) => versions.includes(version)).length;
  const [best = SCHEMA_VERSION] = choices.toSorted(
    (one, other) => friends(other) - friends(one) || other - one,
  );
  return best;
}

/** Returns the routing part in a version that `chooseVersion` returned. */
export function inVersion(newest: RoutingContent, version: number): RoutingContent {
  let routing = newest;
  for (const next of written.filter((each) => each < SCHEMA_VERSION && each >= version)) {
    const downgrade = downgrades[next];
    if (downgrade !== undefined) routing = { ...downgrade(routing), schemaVersion: next };
  }
  return routing;
}
