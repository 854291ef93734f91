/** What of our account at an upstream no client may see: taken out of whatever the upstream says. Pure. */

/** More of an upstream's sentence than this helps nobody. */
const MESSAGE_MAX_CHARACTERS = 2_000;

/** The model's name there, and the public one. */
export interface ModelNames {
  readonly upstreamModel: string;
  readonly model: string;
}

/** What of our own an upstream may repeat, whatever it looks like, and what stands for it. */
export type OwnSecrets = readonly (readonly [RegExp, string])[];

/** What of ours at an upstream no client may see. */
export interface Own {
  readonly secrets: OwnSecrets;
  readonly names: ModelNames;
}

/** Shorter ones are no secrets, and stand in words that are none. */
const MIN_CREDENTIAL_CHARACTERS = 8;

/**
 * Our key at an upstream, and where it is.
 * @param credential undefined: there is none.
 */
export function ownSecrets(url: string, credential: string | undefined): OwnSecrets {
  const { hostname, port, protocol } = new URL(url);
  const name = hostname.replaceAll(/^\[|\]$/g, "");
  // A name of one word alone may be any word: only with its port is it surely the address.
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

/** What must never be seen of the account that we use there, even inside a sentence about the request. */
const secrets: OwnSecrets = [
  // A host in brackets is an IPv6 address, or was ours.
  [/\b(?:https?|wss?):\/\/(?:\[[^\]\s]*\][^\s"'<>)\]]*|[^\s"'<>)\]]+)/gi, "[address]"],
  [/\b(?:sk|pk|rk|gsk|xai|key|tok)[-_][A-Za-z0-9_*.-]{6,}/g, "[key]"],
  [/\bBearer\s+[^\s"']+/gi, "[key]"],
  [/\bAIza[A-Za-z0-9_-]{10,}/g, "[key]"],
  // But for the one field of the official APIs that looks like an id.
  [/\b(?!user_location\b)(?:org|proj|user|acct|wrkspc|req|request)[-_][A-Za-z0-9]{6,}\b/g, "[id]"],
  [/\b[\w.+-]+@[\w-]+\.[\w.-]+\b/g, "[address]"],
  [/\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b/g, "[address]"],
];

/**
 * What looks like a key, an id or an address is taken out, and what is known to be one first: patterns would leave pieces.
 * @param names the upstream's model becomes the public one.
 */
export function withoutSecrets(message: string, names: ModelNames | null, own: OwnSecrets = []): string {
  const text = masked(masked(message, own).slice(0, MESSAGE_MAX_CHARACTERS), secrets);
  return names === null ? text : text.replaceAll(names.upstreamModel, names.model);
}
