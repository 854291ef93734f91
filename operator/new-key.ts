/** Generated keys of organizations. */
import { randomInt } from "node:crypto";
import { keyPrefixes } from "../dataplane/config/schema.ts";
import type { KeyForm } from "./plan/credentials.ts";

const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** Makes a key: the prefix of its form and 40 base62 characters from a cryptographic source (service.md "Authentication"). */
export function newKey(form: KeyForm): string {
  const secret = Array.from({ length: 40 }, () => BASE62[randomInt(BASE62.length)]).join("");
  return `${keyPrefixes[form]}${secret}`;
}
