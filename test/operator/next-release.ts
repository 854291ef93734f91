/**
 * Loaded before an operator or a data plane: makes it one of the next release, whose newest snapshot schema is one
 * version higher and which still reads and writes today's.
 */
import { registerHooks } from "node:module";

const changes: Readonly<Record<string, readonly (readonly [string, string])[]>> = {
  "/dataplane/config/schema.ts": [
    ["export const SCHEMA_VERSION = 1;", "export const SCHEMA_VERSION = 2;"],
    [
      "export const ACCEPTED_SCHEMA_VERSIONS: readonly number[] = [1];",
      "export const ACCEPTED_SCHEMA_VERSIONS: readonly number[] = [2, 1];",
    ],
  ],
  "/operator/plan/schema-version.ts": [
    ["RoutingContent>> = {};", "RoutingContent>> = { 1: (routing) => routing };"],
  ],
};

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    const own = Object.entries(changes).find(([path]) => url.endsWith(path));
    if (own === undefined) return loaded;
    let source = String(Buffer.from(loaded.source as Uint8Array));
    for (const [from, to] of own[1]) {
      if (!source.includes(from)) throw new Error(`${url} does not say: ${from}`);
      source = source.replace(from, to);
    }
    return { ...loaded, source };
  },
});
