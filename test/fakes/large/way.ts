/** On which way a large answer reaches its client, and the golden answers that tests of two threads make large. */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { type Dialect, dialects } from "../../../dataplane/dialects/dialect.ts";
import type { JsonObject } from "../../../dataplane/dialects/messages/types.ts";
import {
  callOf,
  declaredSearch,
  routeTo,
  snapshotOf,
  toolPolicy,
  upstreamOf,
  type TestCall,
} from "../inference.ts";
import { bodyOf } from "../one-upstream.ts";
import { isWhole } from "../runs.ts";

export interface LargeWay {
  /** The client's dialect. */
  readonly from: Dialect;
  /** The upstream's. */
  readonly to: Dialect;
  /** Further fields of the request. */
  readonly request?: object;
  /** Whether it declares a server tool. */
  readonly tools?: boolean;
}

/** A request to the upstream at `url`. */
export function callOnWay(url: string, { from, to, request = {}, tools = false }: LargeWay): TestCall {
  const upstream = upstreamOf(url, to, { model: "upstream-model" });
  const route = routeTo([upstream], { toolPolicy: tools ? "p" : null });
  const snapshot = snapshotOf([route], ["*"], { "test/key": "upstream-secret" }, { p: toolPolicy });
  return callOf(from, snapshot, bodyOf(from, { ...request, ...(tools && declaredSearch[from]) }));
}

/** All ways of an upstream's answers; relayed and on one other, by the `index`, where not everything is tried. */
export function waysOf(to: Dialect, index: number): readonly LargeWay[] {
  const others: LargeWay[] = [
    ...dialects.filter((from) => from !== to).map((from) => ({ from, to })),
    { from: "messages", to, tools: true },
  ];
  const tried = isWhole ? others : others.slice(index % others.length, (index % others.length) + 1);
  return [{ from: to, to }, ...tried];
}

export interface GoldenAnswer {
  readonly name: string;
  /** The upstream's dialect. */
  readonly from: Dialect;
  readonly request?: JsonObject;
  readonly whole?: JsonObject;
  readonly stream?: readonly (JsonObject | string)[];
}

const folder = join(import.meta.dirname, "../../golden/dialects/answers");
const answers = readdirSync(folder)
  .filter((file) => /^[^.]+\.json$/.test(file))
  .map((name) => ({ name, ...JSON.parse(readFileSync(join(folder, name), "utf8")) }) as GoldenAnswer);

/** Golden answers that have a whole form. */
export const wholeGoldens = answers.filter(
  (golden): golden is GoldenAnswer & { readonly whole: JsonObject } => golden.whole !== undefined,
);

/** Golden answers that have a streamed form. */
export const streamedGoldens = answers.filter(
  (golden): golden is GoldenAnswer & { readonly stream: readonly (JsonObject | string)[] } =>
    golden.stream !== undefined,
);
