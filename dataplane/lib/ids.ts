import { customAlphabet } from "nanoid";

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const random24 = customAlphabet(base62, 24);
const random40 = customAlphabet(base62, 40);

/** Prefixes of every id that the service hands out (dialects.md §F). */
export type IdPrefix =
  | "req"
  | "msg"
  | "chatcmpl"
  | "resp"
  | "rs"
  | "cmp"
  | "fc"
  | "call"
  | "toolu"
  | "srvtoolu"
  | "ws"
  | "xs"
  | "file"
  | "msgbatch"
  | "batch"
  | "batch_req"
  | "apikey"
  | "proj";

/** Makes ids; an argument of whatever needs one, so that golden files can be told them in advance. */
export type NewId = (prefix: IdPrefix) => string;

/** A random id such as `msg_4fR…`: the prefix, an underscore and 24 base62 characters (142 bits). */
export const newId: NewId = (prefix) => `${prefix}_${random24()}`;

/** The secret of a key: 40 base62 characters from a cryptographic source (service.md "Authentication"). */
export const newKeySecret = (): string => random40();
