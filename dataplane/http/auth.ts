/** Who is calling, and whether they may call this. Source: service.md "Authentication", dialects.md §A1, rules.md 5.8, 13.3. */
import { hash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { isPersonId } from "../billing/scopes.ts";
import { keyForms, keyPrefixes } from "../config/schema.ts";
import type { Directory, People, Principal } from "../identity/principal.ts";
import { hasTokenForm } from "../identity/tokens/verify.ts";
import { ApiError } from "../lib/api-error.ts";
import { invalidKey } from "../lib/invalid-key.ts";
import { metrics } from "../telemetry/metrics.ts";
import { networkOf, tooManyRefusals, type UnknownCallers } from "./unknown-callers.ts";

/** Kind of key that a route needs. A person counts as a key of the kind that their role stands for. */
export type KeyKind = "inference" | "admin";

const names: Record<KeyKind, string> = { inference: "an inference key", admin: "an admin key" };
const roles: Record<Principal["kind"], string> = { inference: "Member", admin: "Admin", viewer: "Viewer" };

/** `x-api-key` first, else the bearer token; undefined when there is neither. */
function presentedKey(headers: IncomingHttpHeaders): string | undefined {
  const direct = headers["x-api-key"];
  if (typeof direct === "string" && direct.trim() !== "") return direct.trim();
  const match = /^Bearer +(\S.*)$/i.exec(headers.authorization ?? "");
  return match?.[1]?.trim();
}

/** Input of `authenticate`: the request's headers and address, and what knows keys and tokens. */
export interface Authentication {
  readonly headers: IncomingHttpHeaders;
  /** Address that the client connects from. */
  readonly address: string | undefined;
  /** Kind of key that the endpoint needs, for the messages of refusals. */
  readonly needed: KeyKind;
  readonly directory: Directory;
  /** Absent: no tokens are accepted. */
  readonly people: People | undefined;
  readonly unknownCallers: UnknownCallers;
  /** How old a remembered lookup of a key may be. */
  readonly maxAgeMs: number;
}

/**
 * Finds the owner of the request's key or token, of whatever kind; synchronously when it is remembered.
 * @throws ApiError 401; the message never repeats what was sent. A key of the wrong kind is recognized by its prefix, so that
 * the message does not show whether such a key exists. 429 when the address has sent too many invalid ones; a valid one of the
 * wrong kind does not count (rule 7.7).
 */
export function authenticate(asked: Authentication): Principal | Promise<Principal> {
  const { headers, address, needed, directory, people, unknownCallers, maxAgeMs } = asked;
  const key = presentedKey(headers);
  if (people !== undefined && key !== undefined && hasTokenForm(key)) return findPerson(asked, people, key);
  if (key === undefined) throw unknownCallers.refusal(address, missingKey(needed));
  if (!hasKeyForm(key)) throw unknownCallers.refusal(address, ofOtherKind(key, needed) ?? malformedKey());
  const sha256 = hash("sha256", key, "hex");
  if (!directory.knows(sha256)) return findUnknown(asked, key, sha256);
  const found = directory.find(sha256, maxAgeMs);
  const check = (principal: Principal | null) => {
    if (principal === null) throw unknownCallers.refusal(address, notFound(key, needed));
    return principal;
  };
  return found instanceof Promise ? found.then(check) : check(found);
}

async function findUnknown(
  { address, needed, directory, unknownCallers, maxAgeMs }: Authentication,
  key: string,
  sha256: string,
): Promise<Principal> {
  const lookup = unknownCallers.ask(address);
  const principal = await (lookup.atOnce
    ? directory.find(sha256, maxAgeMs)
    : directory.findQueued(sha256, networkOf(address)).catch((error: unknown) => turnedAway(error, "keys")));
  if (principal === null) throw lookup.within ? notFound(key, needed) : tooManyRefusals();
  unknownCallers.found(address, lookup);
  return principal;
}

/** Verifies a token, however many invalid ones its address has sent: only refusals are counted. */
function findPerson(asked: Authentication, people: People, token: string): Principal | Promise<Principal> {
  const found = people.find(token);
  if (!(found instanceof Promise)) return found;
  return found.catch((error: unknown) => {
    const isRefused =
      error instanceof ApiError && (error.code === "authentication" || error.code === "people_limit_reached");
    if (isRefused) throw asked.unknownCallers.refusal(asked.address, error);
    return turnedAway(error, "tokens");
  });
}

/** Counts a 429 of those who wait to be known. @throws the error */
function turnedAway(error: unknown, reason: "keys" | "tokens"): never {
  if (error instanceof ApiError && error.code === "rate_limited") metrics.refused.inc({ reason });
  throw error;
}

/** Longest wait for the lookup of the caller where no route serves the path. */
const UNSERVED_WAIT_MS = 1_000;

/**
 * Finds the caller of a path that no route serves, so that the request is recorded as theirs (rule 14.1); null: not known in
 * time. The key decides nothing here, so nobody is refused for it and nothing is counted; an unknown key is looked up in the
 * queue.
 */
export function callerOfUnserved({
  headers,
  address,
  directory,
  people,
}: Pick<Authentication, "headers" | "address" | "directory" | "people">):
  | Principal
  | null
  | Promise<Principal | null> {
  const key = presentedKey(headers);
  if (key === undefined) return null;
  const isToken = people !== undefined && hasTokenForm(key);
  if (!isToken && !hasKeyForm(key)) return null;
  const found = isToken ? people.find(key) : findInLine(directory, hash("sha256", key, "hex"), address);
  if (!(found instanceof Promise)) return found;
  const late = sleep(UNSERVED_WAIT_MS, null, { ref: false });
  return Promise.race([found.catch(() => null), late]);
}

const findInLine = (directory: Directory, sha256: string, address: string | undefined) =>
  directory.knows(sha256)
    ? directory.find(sha256, Number.POSITIVE_INFINITY)
    : directory.findQueued(sha256, networkOf(address));

/**
 * Why the caller may not call this: 401 for the wrong kind of key, 403 where a viewer would change something; null: they may.
 * Apart from `authenticate`, so that what is refused is recorded as theirs (rule 14.1).
 */
export function kindFault({ keyId, kind }: Principal, needed: KeyKind, method: string): ApiError | null {
  if (kind === needed) return null;
  if (!isPersonId(keyId)) return wrongKind(needed);
  if (kind !== "viewer" || needed !== "admin")
    return invalidKey(
      `this endpoint needs ${names[needed]} (${keyPrefixes[needed]}…) or a token with the role ${needed === "admin" ? "Admin or Viewer" : "Member"}; yours has the role ${roles[kind]}.`,
    );
  if (method === "GET" || method === "HEAD") return null;
  return new ApiError(
    "permission",
    "The role Viewer reads the admin API and changes nothing: this needs the role Admin.",
  );
}

/** Whether a text has the form of a key, of either kind. */
const hasKeyForm = (key: string): boolean => keyForms.inference.test(key) || keyForms.admin.test(key);

/** The error for a key without an owner. It does not reveal which of the possible reasons applies. */
const notFound = (key: string, needed: KeyKind): ApiError => ofOtherKind(key, needed) ?? unservedKey();

function ofOtherKind(key: string, needed: KeyKind): ApiError | undefined {
  const other: KeyKind = needed === "inference" ? "admin" : "inference";
  return key.startsWith(keyPrefixes[other]) ? wrongKind(needed) : undefined;
}

const missingKey = (needed: KeyKind) =>
  new ApiError(
    "authentication",
    `Missing API key: send ${names[needed]} in the x-api-key header or as "Authorization: Bearer".`,
  );

const malformedKey = () => invalidKey("incorrect API key provided.");

const unservedKey = () =>
  invalidKey(
    "incorrect API key provided. It is not known here, has expired, was switched off, or its organization is suspended.",
  );

const wrongKind = (needed: KeyKind) =>
  invalidKey(`this endpoint needs ${names[needed]} (${keyPrefixes[needed]}…).`);
