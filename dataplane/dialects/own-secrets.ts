/** Masks in an upstream's messages what no client may see of our account there. Pure. */

/** Most characters of an upstream's message that are shown. */
const MESSAGE_MAX_CHARACTERS = 2_000;

/** The model's name at the upstream, and the public one. */
export interface ModelNames {
  readonly upstreamModel: string;
  readonly model: string;
}

/** Patterns of our own data that an upstream may repeat, whatever it looks like, each with its replacement. */
export type OwnSecrets = readonly (readonly [RegExp, string])[];

/** What no client may see of ours at an upstream. */
export interface Own {
  readonly secrets: OwnSecrets;
  readonly names: ModelNames;
}

/** Shorter credentials are no secrets, and occur in ordinary words. */
const MIN_CREDENTIAL_CHARACTERS = 8;

/**
 * Makes the patterns of our key at an upstream and of its address.
 * @param credential undefined: there is none.
 */
export function ownSecrets(url: string, credential: string | undefined): OwnSecrets {
  const { hostname, port, protocol } = new URL(url);
  const name = hostname.replaceAll(/^\[|\]$/g, "");
  // A host of one word may be an ordinary word: it is surely the address only with its port.
  const isSurely = /[.:]/.test(name);
  const host = `\\[?${literally(name)}\\]?`;
  const at = `:${port === "" ? (protocol === "https:" ? "443" : "80") : port}(?!\\d)`;
  const address = new RegExp(`(?<![\\w-])${host}(?:${at}${isSurely ? "|(?![\\w-])" : ""})`, "gi");
  const key = credential?.trim() ?? "";
  return key.length < MIN_CREDENTIAL_CHARACTERS
    ? [[address, "[address]"]]
    : [
        [new RegExp(literally(key), "g"), "[key]"],
        [address, "[address]"],
      ];
}

const literally = (text: string): string => text.replaceAll(/[^\w\s]/g, String.raw`\$&`);

function masked(text: string, own: OwnSecrets): string {
  return own.reduce((shown, [pattern, stand]) => shown.replaceAll(pattern, stand), text);
}

/** Patterns of keys, ids and addresses, which are masked even in a sentence about the request. */
const secrets: OwnSecrets = [
  // A host in brackets is an IPv6 address, or was ours.
  [/\b(?:https?|wss?):\/\/(?:\[[^\]\s]*\][^\s"'<>)\]]*|[^\s"'<>)\]]+)/gi, "[address]"],
  [/\b(?:sk|pk|rk|gsk|xai|key|tok)[-_][A-Za-z0-9_*.-]{6,}/g, "[key]"],
  [/\bBearer\s+[^\s"']+/gi, "[key]"],
  [/\bAIza[A-Za-z0-9_-]{10,}/g, "[key]"],
  // Except `user_location`, the one field of the official APIs that looks like an id.
  [/\b(?!user_location\b)(?:org|proj|user|acct|wrkspc|req|request)[-_][A-Za-z0-9]{6,}\b/g, "[id]"],
  [/\b[\w.+-]+@[\w-]+\.[\w.-]+\b/g, "[address]"],
  [/\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b/g, "[address]"],
];

/**
 * Masks what looks like a key, an id or an address. Our own data is masked first, as patterns would leave pieces of it.
 * @param names the upstream's model becomes the public one.
 */
export function withoutSecrets(message: string, names: ModelNames | null, own: OwnSecrets = []): string {
  const text = masked(masked(message, own).slice(0, MESSAGE_MAX_CHARACTERS), secrets);
  return names === null ? text : text.replaceAll(names.upstreamModel, names.model);
}
