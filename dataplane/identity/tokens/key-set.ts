/** The public keys of an issuer (RFC 7517), as far as tokens may be signed with them (rule 13.1). Pure. */
import type { JWK } from "jose";
import { z } from "zod";

/** Type of key of each algorithm. No other algorithm is ever accepted; none of these works with a shared secret. */
const families = {
  RS256: { kty: "RSA" },
  PS256: { kty: "RSA" },
  ES256: { kty: "EC", crv: "P-256" },
  EdDSA: { kty: "OKP", crv: "Ed25519" },
} as const;
export type Algorithm = keyof typeof families;
export const algorithms = Object.keys(families) as Algorithm[];

const MOST_KEYS = 100;
/** Keys of one id that are tried, one after the other. */
const MOST_TRIED = 4;

/** Characters of a modulus in base64url: 8192 bits. */
const MOST_MODULUS = 1366;
/** The same of an exponent: 32 bits. Each bit more costs the verifier, and the owner of an issuer's keys may be hostile. */
const MOST_EXPONENT = 6;

/** Characters of a key's id. */
export const MOST_KID = 1024;

const text = z.string().min(1).max(MOST_MODULUS);
const common = {
  kid: z.string().max(MOST_KID).optional(),
  alg: z.string().optional(),
  use: z.string().optional(),
  key_ops: z.array(z.string()).optional(),
};
/** The public part of a key, and nothing else of it. */
const keySchema = z.discriminatedUnion("kty", [
  z.object({ kty: z.literal("RSA"), n: text, e: text.max(MOST_EXPONENT), ...common }),
  z.object({ kty: z.literal("EC"), crv: z.literal("P-256"), x: text, y: text, ...common }),
  z.object({ kty: z.literal("OKP"), crv: z.literal("Ed25519"), x: text, ...common }),
]);
const documentSchema = z.object({ keys: z.array(z.unknown()).max(MOST_KEYS) });

/** The same object for as long as the issuer publishes the same key. */
export interface IssuerKey {
  /** The key that verifies; imported once for each algorithm, as long as it is the same object. */
  readonly jwk: JWK & { readonly kty: string };
  readonly kid: string | undefined;
  /** The only algorithm that it is for; undefined: any of its kind. */
  readonly alg: string | undefined;
  /** Identifies the key among all others. */
  readonly text: string;
}
export type KeySet = readonly IssuerKey[];

/**
 * Reads a key set. Keys for encryption, for other algorithms and of unknown forms are left out: an issuer may publish them too.
 * @throws Error when it is no key set.
 */
export function readKeySet(document: unknown, before: KeySet): KeySet {
  const read = documentSchema.safeParse(document);
  if (!read.success) throw new Error("not a JSON Web Key Set");
  return read.data.keys.flatMap((entry) => {
    const key = keySchema.safeParse(entry);
    if (!key.success) return [];
    const { use = "sig", key_ops = ["verify"], kid, alg, ...jwk } = key.data;
    if (use !== "sig" || !key_ops.includes("verify")) return [];
    const written = JSON.stringify({ kid, alg, ...jwk });
    return [before.find((known) => known.text === written) ?? { jwk, kid, alg, text: written }];
  });
}

export interface TokenHeader {
  readonly alg: Algorithm;
  readonly kid: string | undefined;
}

/** Returns the keys that the token may be signed with; `kid`: it has to name one, as there are several. */
export function keysFor(set: KeySet, { alg, kid }: TokenHeader): KeySet | "kid" {
  if (kid === undefined && set.length > 1) return "kid";
  const named = kid === undefined ? set : set.filter((key) => key.kid === kid);
  return named.filter((key) => mayVerify(key, alg)).slice(0, MOST_TRIED);
}

/** A key's own `alg` binds: what was made for one algorithm verifies no other. */
function mayVerify({ jwk, alg: only }: IssuerKey, alg: Algorithm): boolean {
  const family = families[alg];
  if (jwk.kty !== family.kty || ("crv" in family && jwk.crv !== family.crv)) return false;
  // RFC 9864 gives EdDSA over this curve a name of its own.
  return only === undefined || only === alg || (alg === "EdDSA" && only === "Ed25519");
}
