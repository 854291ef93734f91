import { customAlphabet } from "nanoid";

/** In the order of their bytes. */
export const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const random16 = customAlphabet(BASE62, 16);
const random24 = customAlphabet(BASE62, 24);
const random40 = customAlphabet(BASE62, 40);

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

/**
 * A random id such as `msg_4fR…`: the prefix, an underscore and 24 base62 characters (142 bits). The first eight of a
 * request's are its time, so that the records of a moment stand together in the index of a day's.
 */
export const newId: NewId = (prefix) =>
  prefix === "req" ? `req_${timeWord(Date.now())}${random16()}` : `${prefix}_${random24()}`;

let wordOf = 0;
let word = "";
/** Unix milliseconds in eight base62 characters, which sort as the times do in bytes. Many ids are made in one millisecond. */
function timeWord(unixMs: number): string {
  if (unixMs === wordOf) return word;
  wordOf = unixMs;
  word = "";
  for (let left = unixMs; word.length < 8; left = Math.floor(left / 62)) word = `${BASE62[left % 62]}${word}`;
  return word;
}

/** The secret of a key: 40 base62 characters from a cryptographic source (service.md "Authentication"). */
export const newKeySecret = (): string => random40();
