/**
 * Seals what clients carry for us between requests (reasoning, search results, citation indexes), so that they can
 * neither read, change nor forge it, and no other organization can use it.
 *
 * An envelope is base64url of: version (1 byte) ‖ length of the key id (1 byte) ‖ key id ‖ IV (12) ‖ tag (16) ‖
 * ciphertext; AES-256-GCM over the deflated UTF-8 text. Everything before the IV and the organization's id are
 * authenticated with it. The key id names the key among several: the first key seals, all of them open, so that a
 * key is rotated by appending the new one everywhere and then moving it to the front (design.md §7).
 */
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { deflateRawSync, inflateRawSync } from "node:zlib";

const VERSION = 1;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const KEY_BYTES = 32;
const KEY_ID_BYTES_MAX = 64;
/** Largest content of an envelope once it is inflated. At most a few hundred kB are ever sealed; this stops a compression bomb. */
const PLAIN_BYTES_MAX = 16 * 1024 * 1024;

export interface SealKey {
  /** Printable ASCII without `:` and `,`, at most 64 characters. */
  readonly id: string;
  /** 32 bytes. */
  readonly key: Buffer;
}

/**
 * Reads `kid:base64,kid:base64,…` (`GAPURA_SEAL_KEYS`).
 * @throws Error that names the entry at fault, never its key.
 */
export function parseSealKeys(text: string): readonly SealKey[] {
  const keys = text
    .split(",")
    .filter((entry) => entry.trim() !== "")
    .map((entry, index) => {
      const [id = "", encoded = "", ...more] = entry.trim().split(":");
      const key = Buffer.from(encoded, "base64");
      const isValid = /^[!-~]+$/.test(id) && id.length <= KEY_ID_BYTES_MAX && more.length === 0;
      if (!isValid || key.length !== KEY_BYTES)
        throw new Error(
          `seal key ${index + 1} is not of the form id:base64 with a key of ${KEY_BYTES} bytes`,
        );
      return { id, key };
    });
  if (keys.length === 0) throw new Error("there is no seal key");
  if (new Set(keys.map(({ id }) => id)).size < keys.length) throw new Error("two seal keys have the same id");
  return keys;
}

/** Seals and opens envelopes of one organization. */
export interface OrganizationSealer {
  seal(plain: string): string;
  /** Null when the text is damaged, foreign, sealed with an unknown key, or not an envelope at all. */
  open(sealed: string): string | null;
}

/** Makes each organization's sealer. `keys` is what `parseSealKeys` gave; the first one seals. */
export function sealing(keys: readonly SealKey[]): (organizationId: string) => OrganizationSealer {
  const [first] = keys;
  if (first === undefined) throw new Error("there is no seal key");
  const byId = new Map(keys.map(({ id, key }) => [id, key]));
  return (organizationId) => ({
    seal: (plain) => seal(plain, organizationId, first),
    open: (sealed) => open(sealed, organizationId, byId),
  });
}

function headerOf(keyId: string): Buffer {
  const id = Buffer.from(keyId, "ascii");
  return Buffer.concat([Buffer.from([VERSION, id.length]), id]);
}

/** The authenticated data: header and organization id. The header states its own length, so the two cannot be confused. */
const authenticated = (header: Buffer, organizationId: string): Buffer =>
  Buffer.concat([header, Buffer.from(organizationId, "utf8")]);

function seal(plain: string, organizationId: string, { id, key }: SealKey): string {
  const header = headerOf(id);
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv("aes-256-gcm", key, iv).setAAD(authenticated(header, organizationId));
  const text = Buffer.concat([cipher.update(deflateRawSync(plain)), cipher.final()]);
  return Buffer.concat([header, iv, cipher.getAuthTag(), text]).toString("base64url");
}

function open(sealed: string, organizationId: string, keys: ReadonlyMap<string, Buffer>): string | null {
  // Buffer.from skips what is not base64url; an envelope that was tampered with that way is damaged too.
  if (!/^[A-Za-z0-9_-]+$/.test(sealed)) return null;
  const envelope = Buffer.from(sealed, "base64url");
  if (envelope.toString("base64url") !== sealed || envelope[0] !== VERSION) return null;
  const headerEnd = 2 + (envelope[1] ?? 0);
  const textStart = headerEnd + IV_BYTES + TAG_BYTES;
  if (envelope.length < textStart) return null;
  const key = keys.get(envelope.toString("latin1", 2, headerEnd));
  if (key === undefined) return null;
  const iv = envelope.subarray(headerEnd, headerEnd + IV_BYTES);
  const decipher = createDecipheriv("aes-256-gcm", key, iv, { authTagLength: TAG_BYTES })
    .setAAD(authenticated(envelope.subarray(0, headerEnd), organizationId))
    .setAuthTag(envelope.subarray(headerEnd + IV_BYTES, textStart));
  try {
    const packed = Buffer.concat([decipher.update(envelope.subarray(textStart)), decipher.final()]);
    return inflateRawSync(packed, { maxOutputLength: PLAIN_BYTES_MAX }).toString("utf8");
  } catch {
    // Not authentic, or larger than `PLAIN_BYTES_MAX`.
    return null;
  }
}

/** Whether a text begins like an envelope of any organization; its first 90 characters are enough. */
export function isEnvelope(text: string): boolean {
  if (!/^[A-Za-z0-9_-]{4,}/.test(text)) return false;
  const head = Buffer.from(text.slice(0, 90), "base64url");
  const idLength = head[1] ?? 0;
  if (head[0] !== VERSION || idLength === 0 || idLength > KEY_ID_BYTES_MAX) return false;
  return head.length >= 2 + idLength && /^[!-~]+$/.test(head.toString("latin1", 2, 2 + idLength));
}
