/** Reasons to refuse a token, in words for its sender. Nothing of the token is repeated. */
import { ApiError } from "../../lib/api-error.ts";
import { invalidKey } from "../../lib/invalid-key.ts";

/** In the order of the checks: of several organizations' refusals the one that came furthest is reported. */
const words = {
  malformed: "the token is malformed",
  size: "the token is larger than 16 KiB",
  issuer: "no organization accepts tokens of this issuer",
  audience: "the token is for another audience",
  algorithm: "the token's algorithm is not one of RS256, PS256, ES256 and EdDSA",
  kid: "the token names no key (kid), and its issuer has several",
  key: "the token's key is none of its issuer's",
  signature: "the token's signature is not its issuer's",
  claims: "the token's exp, nbf, iat or sub is not what it has to be",
  expiry: "the token has no expiry (exp)",
  subject: "the token has no subject (sub)",
  expired: "the token has expired",
  early: "the token is not valid yet",
  rule: "no rule of the organization matches the token's claims",
  ambiguous: "the token is for audiences of several namespaces, of which each would take it",
  suspended: "the organization is suspended",
} as const;
export type TokenFault = keyof typeof words;

const order = Object.keys(words) as TokenFault[];
export const furthest = (faults: readonly TokenFault[]): TokenFault =>
  faults.toSorted((one, other) => order.indexOf(other) - order.indexOf(one))[0] ?? "issuer";

export const refusedToken = (fault: TokenFault): ApiError => invalidKey(`${words[fault]}.`);

export const issuerAway = (cause: unknown): ApiError =>
  new ApiError(
    "unavailable",
    "The keys of the token's issuer cannot be read right now. Try again in a moment.",
    {
      retryAfterSeconds: 5,
      cause,
    },
  );
