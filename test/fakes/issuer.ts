/** An OpenID provider without a network: keys, tokens signed with them, and what it answers to those who read its keys. */
import { createHmac, generateKeyPairSync, sign as signBytes, type KeyObject } from "node:crypto";
import type { FetchJson } from "../../dataplane/identity/tokens/fetch-json.ts";

export interface SigningKey {
  readonly kid: string | undefined;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
  /** As it is published. */
  readonly jwk: Readonly<Record<string, unknown>>;
}

const makers = {
  RSA: () => generateKeyPairSync("rsa", { modulusLength: 2048 }),
  weak: () => generateKeyPairSync("rsa", { modulusLength: 1024 }),
  EC: () => generateKeyPairSync("ec", { namedCurve: "P-256" }),
  P384: () => generateKeyPairSync("ec", { namedCurve: "P-384" }),
  Ed25519: () => generateKeyPairSync("ed25519"),
} as const;

export function signingKey(
  kind: keyof typeof makers,
  kid: string | undefined,
  more: Readonly<Record<string, unknown>> = {},
): SigningKey {
  const { privateKey, publicKey } = makers[kind]();
  const jwk = { ...publicKey.export({ format: "jwk" }), ...(kid === undefined ? {} : { kid }), ...more };
  return { kid, privateKey, publicKey, jwk };
}

const encode = (value: unknown): string =>
  Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

export type Header = Readonly<Record<string, unknown>>;

/** A token of these parts; objects are written as JSON, texts as they are. */
export function compose(
  header: unknown,
  payload: unknown,
  sign: (signed: string) => Buffer | string = () => "",
): string {
  const signed = `${encode(header)}.${encode(payload)}`;
  return `${signed}.${Buffer.from(sign(signed)).toString("base64url")}`;
}

const signers: Readonly<Record<string, (data: Buffer, key: KeyObject) => Buffer>> = {
  RS256: (data, key) => signBytes("sha256", data, key),
  RS512: (data, key) => signBytes("sha512", data, key),
  PS256: (data, key) => signBytes("sha256", data, { key, padding: 6, saltLength: 32 }),
  ES256: (data, key) => signBytes("sha256", data, { key, dsaEncoding: "ieee-p1363" }),
  ES384: (data, key) => signBytes("sha384", data, { key, dsaEncoding: "ieee-p1363" }),
  EdDSA: (data, key) => signBytes(null, data, key),
};

/** Signed with the key by the header's `alg`. */
export const signed = (header: Header, payload: unknown, key: SigningKey): string =>
  compose(header, payload, (text) => {
    const sign = signers[String(header["alg"])];
    if (sign === undefined) throw new Error(`this issuer does not sign with ${String(header["alg"])}`);
    return sign(Buffer.from(text), key.privateKey);
  });

/** With a secret that is no secret. */
export const hmac = (header: Header, payload: unknown, secret: string | Buffer): string =>
  compose(header, payload, (text) => createHmac("sha256", secret).update(text).digest());

export class FakeIssuer {
  readonly url: string;
  published: Readonly<Record<string, unknown>>[] = [];
  /** What it is asked for, in order. */
  readonly asked: string[] = [];
  /** What its discovery document says beside or instead. */
  discovery: Readonly<Record<string, unknown>> = {};
  isAway = false;
  /** Where its keys are. */
  path = "/keys";
  readonly #now: () => number;

  constructor(url: string, now: () => number) {
    this.url = url;
    this.#now = now;
  }

  publish(...keys: readonly SigningKey[]): void {
    this.published = keys.map(({ jwk }) => ({ ...jwk }));
  }

  /** Valid for an hour, of the audience `gapura`. */
  claims(more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
    const now = Math.floor(this.#now() / 1000);
    return { iss: this.url, sub: "ada", aud: "gapura", iat: now, exp: now + 3600, groups: ["ml"], ...more };
  }

  token(key: SigningKey, more: Readonly<Record<string, unknown>> = {}, header: Header = {}): string {
    return signed({ alg: "RS256", kid: key.kid, typ: "JWT", ...header }, this.claims(more), key);
  }

  readonly fetchJson: FetchJson = async (url) => {
    this.asked.push(url);
    if (this.isAway) throw new Error("nobody answers");
    if (url === `${this.url}/.well-known/openid-configuration`)
      return { issuer: this.url, jwks_uri: this.url + this.path, ...this.discovery };
    if (url === this.url + this.path) return { keys: this.published };
    throw new Error(`status 404 for ${url}`);
  };
}
