/**
 * The form of a usage row on its way to the ledger: a value of the composite type `charge`
 * (store/migrations/0003_charging.sql) as Postgres writes it, so that nothing is taken apart on the way. Pure.
 */
import { z } from "zod";
import { chargeClasses, type ChargeClass } from "../prices/price.ts";
import type { UsageRow } from "./usage-row.ts";

/** Version of the form. */
const VERSION = 1;

/** Words that need no quotes in Postgres, among them all ids; an empty word is a null. */
const plain = /^[\w./:@-]+$/;

/** A text word. A control character would break the packed operation (holds/shard.ts) that the row travels in. */
function word(text: string | null): string {
  if (text === null || plain.test(text)) return text ?? "";
  return `"${text.replace(/\p{Cc}/gu, "\ufffd").replace(/["\\]/g, "$&$&")}"`;
}

const flag = (value: boolean) => (value ? "t" : "f");

/** Writes a row in the order of the type's attributes; `decodeRow` reads it back. */
export function encodeRow(row: UsageRow): string {
  const { tokens, tools } = row;
  const { parts } = row.cost;
  const words = [
    VERSION,
    row.acceptedAt,
    word(row.id),
    word(row.organizationId),
    word(row.projectId),
    word(row.keyId),
    word(row.model),
    row.contextTokens,
    word(row.serviceTier),
    row.endpoint,
    word(row.batchId),
    row.status,
    row.iterations,
    word(row.upstream),
    flag(row.estimated),
    flag(row.provisional),
    tokens.input,
    tokens.cacheRead,
    tokens.cacheWrite5m,
    tokens.cacheWrite1h,
    tokens.output,
    tokens.reasoning,
    tools.webSearches,
    tools.webFetches,
    tools.xSearches,
    tools.xPosts,
    tools.xProfiles,
    parts.input,
    parts.cacheRead,
    parts.cacheWrite5m,
    parts.cacheWrite1h,
    parts.output,
    parts.webSearch,
    parts.webFetch,
    parts.xSearch,
    flag(row.implausible),
    word(row.tags === "" ? null : row.tags),
  ];
  return `(${words.join(",")})`;
}

/** An array of rows as Postgres reads it. */
export function chargeArray(texts: readonly string[]): string {
  return `{${texts.map((text) => `"${text.replace(/["\\]/g, "\\$&")}"`).join(",")}}`;
}

const digits = z.string().regex(/^\d+$/);
const count = digits.transform(Number).pipe(z.int());
const micros = digits.transform((text) => BigInt(text));
const boolean = z.enum(["t", "f"]).transform((letter) => letter === "t");

/** The fields in the order of the type. */
const valueSchema = z.object({
  v: z.literal(String(VERSION)),
  acceptedAt: count,
  id: z.string(),
  organizationId: z.string(),
  projectId: z.string(),
  keyId: z.string(),
  model: z.string(),
  contextTokens: count,
  serviceTier: z.string(),
  endpoint: z.enum(["messages", "chat", "responses", "batch"]),
  batchId: z.string().nullable(),
  status: z.enum(["ok", "error", "cancelled"]),
  iterations: count,
  upstream: z.string().nullable(),
  estimated: boolean,
  provisional: boolean,
  input: count,
  cacheRead: count,
  cacheWrite5m: count,
  cacheWrite1h: count,
  output: count,
  reasoning: count,
  webSearches: count,
  webFetches: count,
  xSearches: count,
  xPosts: count,
  xProfiles: count,
  inputMicros: micros,
  cacheReadMicros: micros,
  cacheWrite5mMicros: micros,
  cacheWrite1hMicros: micros,
  outputMicros: micros,
  webSearchMicros: micros,
  webFetchMicros: micros,
  xSearchMicros: micros,
  implausible: boolean,
  tags: z
    .string()
    .nullable()
    .transform((text) => text ?? ""),
});
const names = Object.keys(valueSchema.shape);

/** Reads what another pod, perhaps of another release, wrote. @throws Error when the text is no row. */
export function decodeRow(text: string): UsageRow {
  const words = wordsOf(text);
  if (words.length !== names.length)
    throw new Error(`a charge has ${names.length} words, not ${words.length}`);
  const value = valueSchema.parse(Object.fromEntries(names.map((name, index) => [name, words[index]])));
  const parts: Record<ChargeClass, bigint> = {
    input: value.inputMicros,
    cacheRead: value.cacheReadMicros,
    cacheWrite5m: value.cacheWrite5mMicros,
    cacheWrite1h: value.cacheWrite1hMicros,
    output: value.outputMicros,
    webSearch: value.webSearchMicros,
    webFetch: value.webFetchMicros,
    xSearch: value.xSearchMicros,
  };
  return {
    id: value.id,
    acceptedAt: value.acceptedAt,
    organizationId: value.organizationId,
    projectId: value.projectId,
    keyId: value.keyId,
    model: value.model,
    contextTokens: value.contextTokens,
    serviceTier: value.serviceTier,
    endpoint: value.endpoint,
    batchId: value.batchId,
    tags: value.tags,
    status: value.status,
    iterations: value.iterations,
    upstream: value.upstream,
    estimated: value.estimated,
    provisional: value.provisional,
    implausible: value.implausible,
    tokens: {
      input: value.input,
      cacheRead: value.cacheRead,
      cacheWrite5m: value.cacheWrite5m,
      cacheWrite1h: value.cacheWrite1h,
      output: value.output,
      reasoning: value.reasoning,
    },
    tools: {
      webSearches: value.webSearches,
      webFetches: value.webFetches,
      xSearches: value.xSearches,
      xPosts: value.xPosts,
      xProfiles: value.xProfiles,
    },
    cost: { total: totalOf(parts), parts },
  };
}

const totalOf = (parts: Readonly<Record<ChargeClass, bigint>>) =>
  chargeClasses.reduce((sum, name) => sum + parts[name], 0n);

/** Takes a value apart as Postgres does: a word in quotes has them, and backslashes, twice. */
function wordsOf(text: string): (string | null)[] {
  if (!text.startsWith("(") || !text.endsWith(")")) throw new Error("a charge stands in parentheses");
  const words: (string | null)[] = [];
  const next = /(?:"((?:[^"\\]|""|\\\\)*)"|([^",()\\]*))(,|$)/y;
  const inner = text.slice(1, -1);
  for (let more = true; more;) {
    const [, quoted, bare, end] = next.exec(inner) ?? [];
    if (end === undefined) throw new Error("a charge has a word that is not in quotes as it should be");
    words.push(quoted?.replace(/(["\\])\1/g, "$1") ?? (bare || null));
    more = end === ",";
  }
  return words;
}
