import type { FastifyRequest } from "fastify";
import type { ErrorFamily, ErrorStyle } from "../dialects/errors.ts";

/** Paths that belong to one family, whatever headers come with them (dialects.md §A2 "Style rule"). */
const owned: readonly (readonly [string, ErrorFamily])[] = [
  ["/v1/messages", "messages"],
  ["/v1/organizations", "messages"],
  ["/v1/skills", "messages"],
  ["/v1/chat/completions", "openai"],
  ["/v1/responses", "openai"],
  ["/v1/batches", "openai"],
  ["/v1/organization", "openai"],
];

/** The style of the errors of a path; on shared and unknown paths the version header decides. */
export function errorStyle(path: string, version: string | undefined): ErrorStyle {
  for (const [prefix, family] of owned) {
    if (path === prefix || path.startsWith(`${prefix}/`)) return { family, union: false };
  }
  return { family: listFamily(version), union: true };
}

const listFamily = (version: string | undefined): ErrorFamily =>
  version === undefined || version === "" ? "openai" : "messages";

/** The style of shared answers (models, files): Messages' when a version header is present (service.md "Versioning"). */
export const familyOf = (request: FastifyRequest): ErrorFamily => listFamily(versionOf(request));

/** The version header; the neutral one has been folded into it. */
export function versionOf({ headers }: FastifyRequest): string | undefined {
  const version = headers["anthropic-version"];
  return typeof version === "string" ? version : undefined;
}

/** The path of a URL, without its query: what may be logged (rule 1.4). */
export function pathOf(url: string): string {
  const end = url.search(/[?#]/);
  return end < 0 ? url : url.slice(0, end);
}

/** Makes an undecodable path decodable: its percent signs stand for themselves. */
export function withLiteralPercents(url: string): string {
  const path = pathOf(url);
  return path.replaceAll("%", "%25") + url.slice(path.length);
}

/**
 * Our own keys wherever they stand, texts in the form of other services' keys, and tokens. An admin key may be base64: a slash
 * after its prefix may belong to it, so that all segments of a path that follow are removed as well.
 */
const keys =
  /sk-adm-svc-[^?#\s"'\\]{8,}|sk-svc-[^/?#\s"'\\]{8,}|(?<![A-Za-z0-9])sk-[^/?#\s"'\\]{20,}|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?/g;

/** Removes keys that a client put where they do not belong: no answer and no line of the log repeats one (rule 5.8). */
export const withoutKeys = (text: string): string =>
  text.includes("sk-") || text.includes("eyJ") ? text.replace(keys, "[key removed]") : text;
