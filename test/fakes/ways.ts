/** Every way on which an answer reaches its client: relayed, converted, through the tool loop; whole or streamed. */
import type { Route, Upstream } from "../../dataplane/config/schema.ts";
import { type Dialect, dialects } from "../../dataplane/dialects/dialect.ts";
import {
  callOf,
  declaredSearch,
  routeTo,
  snapshotOf,
  toolPolicy,
  upstreamOf,
  type TestCall,
} from "./inference.ts";

export interface Way {
  readonly path: "relay" | "convert" | "tools";
  readonly client: Dialect;
  /** What the upstream speaks. */
  readonly upstream: Dialect;
  readonly stream: boolean;
}

/** Of a whole answer as of a stream. */
export const paths: readonly Omit<Way, "stream">[] = dialects.flatMap((client) =>
  dialects.flatMap((upstream) => [
    { path: client === upstream ? ("relay" as const) : ("convert" as const), client, upstream },
    { path: "tools" as const, client, upstream },
  ]),
);

export const ways: readonly Way[] = paths.flatMap((way) =>
  [false, true].map((stream) => ({ ...way, stream })),
);

/** For test titles. */
export const nameOf = ({ path, client, upstream, stream }: Way): string =>
  `${path}, ${client} to ${upstream}, ${stream ? "streamed" : "whole"}`;

/** The field of an output limit in a request of each dialect. */
export const limitField = {
  messages: "max_tokens",
  chat: "max_completion_tokens",
  responses: "max_output_tokens",
};

/** A request that says "hi" to the upstream at `url`, with an output limit of 100 tokens. */
export function callOn(
  url: string,
  { path, client, upstream, stream }: Way,
  more: {
    readonly body?: object;
    readonly route?: Partial<Route>;
    readonly upstream?: Partial<Upstream>;
  } = {},
): TestCall {
  const route = routeTo([upstreamOf(url, upstream, more.upstream)], {
    toolPolicy: "test/default",
    ...more.route,
  });
  const content = client === "responses" ? { input: "hi" } : { messages: [{ role: "user", content: "hi" }] };
  return callOf(client, snapshotOf([route], ["*"], {}, { "test/default": toolPolicy }), {
    model: "public-model",
    stream,
    [limitField[client]]: 100,
    ...content,
    ...(path === "tools" ? declaredSearch[client] : {}),
    ...more.body,
  });
}
