/** Generated keys of organizations. */
import { randomInt } from "node:crypto";
import type { WantedKey } from "./plan/objects.ts";

const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const prefixes = { inference: "sk-svc-", admin: "sk-adm-svc-" } as const;

/** A new key: the prefix of its kind and 40 base62 characters from a cryptographic source (service.md "Authentication"). */
export function newKey(form: WantedKey["form"]): string {
  const secret = Array.from({ length: 40 }, () => BASE62[randomInt(BASE62.length)]).join("");
  return `${prefixes[form]}${secret}`;
}
