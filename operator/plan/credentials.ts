/** Resolving Secrets: values of upstreams and engines, and the digests of declared keys. */
import { createHash } from "node:crypto";
import { keyForms, keyPrefixes } from "../../dataplane/config/schema.ts";
import type { Fault, KnownSecrets, ResolvedReason } from "./objects.ts";
import type { Prior } from "./prior.ts";

export interface SecretKeyRef {
  readonly name: string;
  readonly key: string;
}

type LookUp =
  | { readonly found: true; readonly value: string }
  /** `mayBeMade`: whether a key may be made there, because there is nothing. */
  | {
      readonly found: false;
      readonly reason: "SecretNotFound" | "SecretForbidden";
      readonly message: string;
      readonly mayBeMade: boolean;
    };

/** Looks a value up; a trailing newline is trimmed (rule 6.9), an empty value is a missing one. */
export function lookUp({ secrets, forbidden }: KnownSecrets, namespace: string, ref: SecretKeyRef): LookUp {
  const id = `${namespace}/${ref.name}`;
  const data = secrets.get(id);
  const words = forbidden.get(id);
  const wanted = `Secret "${ref.name}", wanted for its key "${ref.key}",`;
  if (words !== undefined)
    return {
      found: false,
      reason: "SecretForbidden",
      message: `${wanted} may not be read by the operator: ${words}`,
      mayBeMade: false,
    };
  if (data === undefined)
    return {
      found: false,
      reason: "SecretNotFound",
      message: `${wanted} is not in namespace "${namespace}"`,
      mayBeMade: true,
    };
  const text = Object.hasOwn(data, ref.key) ? (data[ref.key] ?? "") : "";
  const value = withoutLineBreaks(text);
  if (value !== "") return { found: true, value };
  const isBlank = text !== "";
  const message = isBlank
    ? `Secret "${ref.name}" has nothing but line breaks under the key "${ref.key}"; remove them`
    : `Secret "${ref.name}" has no value under the key "${ref.key}"`;
  // A value of line breaks would not be overwritten.
  return { found: false, reason: "SecretNotFound", message, mayBeMade: !isBlank };
}

/** Removes the line breaks at the end. A regular expression would search anew from each line break on. */
function withoutLineBreaks(text: string): string {
  let end = text.length;
  while (text[end - 1] === "\n" || text[end - 1] === "\r") end -= 1;
  return text.slice(0, end);
}

/** Collects the credentials that a snapshot needs, each under `namespace/secret/key`. */
export class CredentialCollector {
  readonly values: Record<string, string> = {};
  readonly #secrets: KnownSecrets;
  readonly #prior: Prior;

  constructor(secrets: KnownSecrets, prior: Prior) {
    this.#secrets = secrets;
    this.#prior = prior;
  }

  /**
   * Resolves one reference and keeps its value. `heldBefore`: whether the object's last published entry used the same
   * credential, so that its last value stays when the Secret is gone. `faultOf`: what is wrong with a value. The id is null
   * when there is no value.
   */
  resolve(
    namespace: string,
    ref: SecretKeyRef,
    path: () => string,
    heldBefore: (id: string) => boolean,
    faultOf: (value: string) => string | null = headerFault,
  ): { readonly id: string | null; readonly fault: Fault<ResolvedReason> | null } {
    const id = `${namespace}/${ref.name}/${ref.key}`;
    const current = lookUp(this.#secrets, namespace, ref);
    const invalid = current.found ? faultOf(current.value) : null;
    if (current.found && invalid === null) {
      this.values[id] = current.value;
      return { id, fault: null };
    }
    const fault: Fault<ResolvedReason> = current.found
      ? {
          reason: "SecretInvalid",
          path: path(),
          message: `Secret "${ref.name}", key "${ref.key}": ${invalid}`,
        }
      : { reason: current.reason, path: path(), message: current.message };
    return { id: heldBefore(id) && this.keep(id, faultOf) ? id : null, fault };
  }

  /** Keeps a credential of a last good entry: its present value if that has no fault, else the published one, if any. */
  keep(id: string, faultOf: (value: string) => string | null = headerFault): boolean {
    if (Object.hasOwn(this.values, id)) return true;
    const [namespace = "", name = "", ...key] = id.split("/");
    const current = lookUp(this.#secrets, namespace, { name, key: key.join("/") });
    const value =
      current.found && faultOf(current.value) === null ? current.value : this.#prior.credential(id);
    if (value === undefined) return false;
    this.values[id] = value;
    return true;
  }
}

/**
 * Longest credential in characters, each a byte in a header. Servers take 8 to 16 KiB of headers together (Node 16);
 * and a few values of the size of a Secret would fill the snapshot, which holds up everybody's configuration.
 */
export const MAX_CREDENTIAL = 8 * 1024;

/** Returns why a value cannot stand in a header; null: it can. */
function headerFault(value: string): string | null {
  if (value.length > MAX_CREDENTIAL)
    return `the value has more than the ${MAX_CREDENTIAL} characters of the longest credential`;
  return /^[\t -~\u0080-\u00ff]*$/.test(value) ? null : "the value holds characters that no header can carry";
}

/** Returns why a value cannot sign webhooks (https://www.standardwebhooks.com); null: it can. */
export function signingSecretFault(value: string): string | null {
  const [, base64 = ""] = /^(?:whsec_)?([A-Za-z0-9+/]+={0,2})$/.exec(value) ?? [];
  const bytes = Buffer.from(base64, "base64");
  return bytes.length >= 24 && bytes.length <= 64 && bytes.toString("base64") === base64
    ? null
    : "the value is no secret for signing (whsec_ and 24 to 64 bytes in base64)";
}

export type KeyForm = keyof typeof keyPrefixes;

export const isKeyOfForm = (value: string, form: KeyForm): boolean => keyForms[form].test(value);

/** Returns digest and hint of a key: nothing else of it may leave the operator. */
export function describeKey(value: string, form: KeyForm): { sha256: string; hint: string } {
  const secret = value.slice(keyPrefixes[form].length);
  return {
    sha256: createHash("sha256").update(value).digest("hex"),
    // A quarter at most, so that the hint does not give a short key away.
    hint: `${keyPrefixes[form]}${secret.slice(0, Math.min(6, Math.floor(secret.length / 4)))}...`,
  };
}
