/** Verifies tokens (rule 13.1). No I/O: the caller passes the keys. */
import { decodeJwt, decodeProtectedHeader, errors, jwtVerify } from "jose";
import type { Claims } from "./claims.ts";
import type { TokenFault } from "./faults.ts";
import { algorithms, type IssuerKey, type KeySet, type TokenHeader } from "./key-set.ts";

/** Longest token; the largest that are known, with hundreds of groups, have half of this. */
const MOST_CHARACTERS = 16 * 1024;
/** How far the clocks of issuers and holders may be wrong. */
const LEEWAY_SECONDS = 60;

/** Whether a credential has the form of a token: nothing else is ever read as one. */
export const hasTokenForm = (credential: string): boolean =>
  /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$/.test(credential);

/** A token as it describes itself: nothing may follow from it but which keys to try, and that it is refused. */
export interface UnverifiedToken {
  readonly header: TokenHeader;
  readonly issuer: string;
  readonly claims: Claims;
}

/** Reads what a token says of itself, before it is verified. */
export function readToken(token: string): UnverifiedToken | TokenFault {
  if (token.length > MOST_CHARACTERS) return "size";
  let header: Record<string, unknown>;
  let claims: Claims;
  try {
    header = decodeProtectedHeader(token);
    claims = decodeJwt(token);
  } catch {
    return "malformed";
  }
  const { alg, kid } = header;
  const { iss: issuer } = claims;
  if (typeof issuer !== "string" || typeof alg !== "string") return "malformed";
  if (kid !== undefined && typeof kid !== "string") return "malformed";
  const known = algorithms.find((algorithm) => algorithm === alg);
  return known === undefined ? "algorithm" : { header: { alg: known, kid }, issuer, claims };
}

export interface VerifiedToken {
  readonly claims: Claims;
  readonly subject: string;
  /** Unix milliseconds from which it is refused. */
  readonly until: number;
  readonly key: IssuerKey;
}

/** Verifies a token. `keys`: those that it may be signed with. `now`: Unix milliseconds. */
export async function verifyToken(
  token: string,
  said: UnverifiedToken,
  keys: KeySet,
  now: number,
): Promise<VerifiedToken | TokenFault> {
  let fault: TokenFault = "key";
  for (const key of keys) {
    const verified = await verifyWith(token, said, key, now);
    if (verified !== "signature") return verified;
    fault = verified;
  }
  return fault;
}

async function verifyWith(
  token: string,
  { header, issuer }: UnverifiedToken,
  key: IssuerKey,
  now: number,
): Promise<VerifiedToken | TokenFault> {
  if (!isExact(token.slice(token.lastIndexOf(".") + 1))) return "signature";
  let claims: Claims;
  try {
    const { payload } = await jwtVerify(token, key.jwk, {
      algorithms: [header.alg],
      issuer,
      clockTolerance: LEEWAY_SECONDS,
      currentDate: new Date(now),
    });
    claims = payload;
  } catch (error) {
    return faultOf(error);
  }
  const { sub, exp } = claims;
  if (exp === undefined) return "expiry";
  // JSON may say 1e999.
  if (!Number.isFinite(exp)) return "claims";
  if (sub === undefined || sub === "") return "subject";
  if (typeof sub !== "string") return "claims";
  return { claims, subject: sub, until: (Number(exp) + LEEWAY_SECONDS) * 1000, key };
}

/** Whether a signature has no unused bits set at the end of its base64url: else other texts would be the same token. */
const isExact = (signature: string): boolean =>
  Buffer.from(signature, "base64url").toString("base64url") === signature;

function faultOf(error: unknown): TokenFault {
  if (error instanceof errors.JWTExpired) return "expired";
  if (error instanceof errors.JWTClaimValidationFailed)
    return error.claim === "nbf" && error.reason === "check_failed" ? "early" : "claims";
  // What is left is broken in some other way: a header that has to be understood, a weak key.
  if (error instanceof errors.JWTInvalid || error instanceof errors.JWSInvalid) return "malformed";
  if (error instanceof errors.JOSENotSupported) return "malformed";
  return "signature";
}
