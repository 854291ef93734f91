/** `main.ts why ID`: prints everything that is known of one request, one fact a line. */
import { creditsText } from "../billing/credits.ts";
import { commandArguments } from "../lib/command-arguments.ts";
import type { KeptRequest } from "./read-records.ts";
import { requestOf } from "./stored-form.ts";

const usage = "usage: why REQUEST_ID [--json]";

/** @throws Error that says what is wrong with the arguments. */
export function parseWhy(args: readonly string[]): { readonly id: string; readonly json: boolean } {
  const { values, positionals } = commandArguments(usage, {
    args: [...args],
    options: { json: { type: "boolean" } },
    allowPositionals: true,
  });
  const [id, ...more] = positionals;
  if (id === undefined || more.length > 0) throw new Error(usage);
  return { id, json: values.json === true };
}

/** The lines to print. */
export function whyLines(request: KeptRequest, json: boolean): string[] {
  const { tries, toolCalls, micros, acceptedAt, ...kept } = request;
  // Method and URL are not stored where the dialect determines them.
  const plain = kept.dialect === null ? kept : { ...kept, ...requestOf(kept.dialect) };
  const time = new Date(acceptedAt).toISOString();
  const credits = creditsText(micros);
  if (json) return [JSON.stringify({ time, ...plain, tries, toolCalls, credits })];
  const facts: [string, string | number | boolean | null][] = [
    ["id", plain.id],
    ["time", time],
    ["request", `${plain.method ?? ""} ${plain.url ?? ""}`],
    ["organization", plain.organizationId],
    ["project", plain.projectId],
    ["key", plain.keyId],
    ["dialect", plain.dialect],
    ["path", plain.path],
    ["model", plain.model],
    ["upstream", plain.upstream],
    ["streamed", plain.streamed],
    ["batch", plain.batchId],
    ["trace", plain.traceId],
    ["tags", plain.tags],
    ["status", plain.status],
    ["error", plain.error],
    ["error code", plain.errorCode],
    ["first byte", plain.firstByteMs === null ? null : `${plain.firstByteMs} ms`],
    ["duration", `${plain.durationMs} ms`],
    ["input tokens", plain.inputTokens],
    ["output tokens", plain.outputTokens],
    ["credits", credits],
    ...Object.entries(toolCalls ?? {}).map(([call, times]) => [`tool ${call}`, times] as [string, number]),
    ...tries.map((one, at) => [`try ${at + 1}`, tryText(one)] as [string, string]),
  ];
  return facts.flatMap(([name, value]) => (value === null ? [] : [`${name}: ${shown(String(value))}`]));
}

/** Escapes control characters: a fact is one line and sends the terminal no commands, even if a client wrote it. */
const shown = (text: string): string =>
  text.replaceAll(/\p{C}/gu, (sign) => `\\u{${sign.codePointAt(0)?.toString(16) ?? ""}}`);

/** `primary, 401, account, authentication_error, 12 ms: invalid x-api-key` */
function tryText({ upstream, status, fault, reason, words, ms }: KeptRequest["tries"][number]): string {
  const facts = [upstream, status ?? "no answer", fault ?? "answered", reason, `${ms} ms`];
  const text = facts.filter((fact) => fact !== null && fact !== "").join(", ");
  return words === null ? text : `${text}: ${JSON.stringify(words)}`;
}
