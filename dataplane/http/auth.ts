/** Who is calling. Source: spec.md "Authentication", reference/dialects.md §A1, rules.md 5.8. */
import { hash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import type { Directory, Principal } from "../billing/principal.ts";
import { ApiError } from "../lib/api-error.ts";

export type KeyKind = Principal["kind"];

const shapes: Record<KeyKind, RegExp> = {
  inference: /^sk-svc-[0-9A-Za-z]{40}$/,
  admin: /^sk-adm-svc-[\x21-\x7e]{1,200}$/,
};
const prefixes: Record<KeyKind, string> = { inference: "sk-svc-", admin: "sk-adm-svc-" };
const names: Record<KeyKind, string> = { inference: "an inference key", admin: "an admin key" };

/** `x-api-key` first, else the bearer token; undefined when there is neither. */
export function presentedKey(headers: IncomingHttpHeaders): string | undefined {
  const direct = headers["x-api-key"];
  if (typeof direct === "string" && direct.trim() !== "") return direct.trim();
  const match = /^Bearer +(\S.*)$/i.exec(headers.authorization ?? "");
  return match?.[1]?.trim();
}

/**
 * Finds the owner of the request's key; at once when it is remembered.
 * @param maxAgeMs how old a remembered answer may be.
 * @throws ApiError 401; the message never repeats what was sent. A key of the wrong kind is told apart by its
 * prefix alone, so that the answer says nothing about whether such a key exists.
 */
export function authenticate(
  headers: IncomingHttpHeaders,
  needed: KeyKind,
  directory: Directory,
  maxAgeMs: number,
): Principal | Promise<Principal> {
  const key = presentedKey(headers);
  if (key === undefined) {
    throw new ApiError(
      "authentication",
      `Missing API key: send ${names[needed]} in the x-api-key header or as "Authorization: Bearer".`,
    );
  }
  const other: KeyKind = needed === "inference" ? "admin" : "inference";
  if (key.startsWith(prefixes[other])) throw wrongKind(needed);
  if (!shapes[needed].test(key)) throw invalidKey();
  const found = directory.find(hash("sha256", key, "hex"), maxAgeMs);
  return found instanceof Promise
    ? found.then((principal) => checked(principal, needed))
    : checked(found, needed);
}

function checked(principal: Principal | null, needed: KeyKind): Principal {
  if (principal === null) throw invalidKey();
  if (principal.kind !== needed) throw wrongKind(needed);
  return principal;
}

/** The words that Claude Code and the SDKs' users know ("invalid x-api-key"). */
const invalidKey = () => new ApiError("authentication", "invalid x-api-key: incorrect API key provided.");

const wrongKind = (needed: KeyKind) =>
  new ApiError(
    "authentication",
    `invalid x-api-key: this endpoint needs ${names[needed]} (${prefixes[needed]}…).`,
  );
