/** A tenant's own upstream whose streamed answers come as fast as the network brings them (`flood.ts`). */
import { dialectPath, type Dialect } from "../../../dataplane/dialects/dialect.ts";
import { sendStream, type Attack } from "../attack.ts";
import { asked } from "../bodies.ts";
import { floodModel, keys } from "../world.ts";
import { BUSY } from "./make.ts";

/** How long each is read before its client leaves. */
const READ_MS = 1_000;

interface Flood {
  readonly kind: string;
  readonly client: Dialect;
  readonly upstream: Dialect;
  readonly more?: string;
}

function flood(name: string, { kind, client, upstream, more = "" }: Flood): Attack {
  const body = asked(floodModel(kind, upstream), '"a"', `,"stream":true${more}`);
  return {
    name: `streams: ${name}`,
    parallel: 300,
    expected: [200, ...BUSY],
    short: false,
    send: (target) =>
      sendStream(
        target,
        { path: dialectPath[client], headers: { authorization: `Bearer ${keys.rich}` }, body },
        READ_MS,
      ),
  };
}

export const streams: readonly Attack[] = [
  flood("deltas, relayed", { kind: "deltas", client: "messages", upstream: "messages" }),
  flood("deltas, converted", { kind: "deltas", client: "messages", upstream: "chat" }),
  flood("deltas beside server tools", {
    kind: "deltas",
    client: "messages",
    upstream: "messages",
    more: ',"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}]',
  }),
  flood("line feeds", { kind: "line-feeds", client: "messages", upstream: "messages" }),
  flood("line feeds, each an HTTP chunk", { kind: "tiny-chunks", client: "chat", upstream: "chat" }),
  flood("events of 8 MB", { kind: "large-events", client: "responses", upstream: "responses" }),
  flood("events of 8 MB, converted", { kind: "large-events", client: "messages", upstream: "chat" }),
  flood("events of millions of values", { kind: "wide-events", client: "chat", upstream: "chat" }),
];
