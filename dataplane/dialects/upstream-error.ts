/**
 * What an upstream's failure means for the client (rules 1.5 and 2.12, dialects.md §A2). An upstream's words pass
 * on only where it says what is wrong with the client's own request; nothing of the account that we use there
 * (keys, organizations, credit, addresses) ever does.
 */
import { ApiError } from "../lib/api-error.ts";
import type { ErrorCode } from "../lib/api-error.ts";
import { isObject } from "../lib/json-object.ts";
import type { JsonReader } from "../lib/json-reader.ts";
import { saidSentence, sentenceOf } from "./context-overflow.ts";
import type { Dialect } from "./dialect.ts";
import { objectOf, stringOf, textOf } from "./fields.ts";
import type { JsonObject } from "./messages/types.ts";
import { type ModelNames, type Own, type OwnSecrets, withoutSecrets } from "./own-secrets.ts";
import { readErrorBody, reportedError, type ReportedError } from "./reported-error.ts";

/** Seconds that a client is asked to wait when the upstream named none, and at most (rule 1.5). */
const RETRY_AFTER_DEFAULT_S = 5;
const RETRY_AFTER_MAX_S = 60;

/** An upstream's error answer: status, body, and what is needed to read them. */
export interface UpstreamFailure {
  readonly dialect: Dialect;
  readonly status: number;
  /** As it came; need not be JSON. */
  readonly body: string | Uint8Array;
  /** As its `retry-after` header has it: seconds or an HTTP date; null when it named no time. */
  readonly retryAfter: string | null;
  /** Unix milliseconds, to read a date in `retryAfter`. */
  readonly now: number;
  /** The model's name at the upstream, replaced by the public id in what is shown. */
  readonly upstreamModel: string;
  /** Public model id. */
  readonly model: string;
}

/** The error that a client gets for an upstream's answer with a status other than 2xx. */
export function upstreamError(failure: UpstreamFailure): ApiError {
  const cause = { upstreamStatus: failure.status };
  if (failure.status === 429)
    return new ApiError("rate_limited", ownWords.rate_limited, {
      retryAfterSeconds: retryAfterSeconds(failure.retryAfter, failure.now),
      cause,
    });
  const names = { upstreamModel: failure.upstreamModel, model: failure.model };
  if (failure.status === 400) {
    const said = readErrorBody(failure.body);
    return aboutTheRequest(said, names) ?? new AccountRefusal(said, cause);
  }
  if (failure.status === 422) return ofFields(readErrorBody(failure.body), names);
  const code = statusCodes[failure.status] ?? "upstream_error";
  if (code === "unavailable" || code === "overloaded")
    return new ApiError(code, ownWords[code], {
      retryAfterSeconds: retryAfterSeconds(failure.retryAfter, failure.now),
      cause,
    });
  return ours(code, cause);
}

/** Codes by status (rule 2.12), but for 400, 422 and 429; any other is 502. */
const statusCodes: Readonly<Record<number, OwnCode>> = {
  408: "timeout",
  413: "too_large",
  503: "unavailable",
  504: "timeout",
  529: "overloaded",
};

const ownWords = {
  invalid_request: "The model's provider refused the request as invalid.",
  too_large: "The request is larger than the model's provider accepts.",
  rate_limited: "The model's provider is limiting requests at the moment. Please try again later.",
  upstream_error: "The model's provider failed to answer the request.",
  unavailable: "The model's provider is unavailable at the moment. Please try again later.",
  overloaded: "The model's provider is overloaded at the moment. Please try again later.",
  timeout: "The model's provider did not answer in time.",
} as const satisfies Partial<Record<ErrorCode, string>>;
type OwnCode = keyof typeof ownWords;

const ours = (code: OwnCode, cause: unknown): ApiError => new ApiError(code, ownWords[code], { cause });

/** An answer that cannot be read; `what` goes to the log only. */
export const corruptAnswer = (what: string): ApiError =>
  new ApiError("upstream_error", "The model's provider sent an answer that could not be read.", {
    cause: { corrupt: what },
  });

/** Whether the error is about an answer that cannot be read, not one that an upstream reported. */
export const isCorrupt = (error: ApiError): boolean => corruptionOf(error) !== undefined;

/** Whether a whole answer came that was empty or no answer: not one that broke off before anything came. */
export const isGarbage = (error: ApiError): boolean => corruptionOf(error) === "garbage";

const corruptionOf = ({ cause }: ApiError): unknown =>
  typeof cause === "object" && cause !== null && "corrupt" in cause ? cause.corrupt : undefined;

/** A stream that stopped before its terminal event. */
export const cutAnswer = (): ApiError =>
  new ApiError("upstream_error", "The model's provider ended its answer too early.");

/** An upstream's refusal of the request that it got: paths are those of its own dialect. */
class UpstreamRefusal extends ApiError {
  readonly #said: ReportedError;
  readonly #all: ReportedError;

  /** @param all that the upstream said, which may be more than the client is shown. */
  constructor(said: ReportedError, names: ModelNames | null, all = said, own: OwnSecrets = []) {
    const text = withoutSecrets(said.message, names, own);
    const isClean = (word: string) => withoutSecrets(word, names, own) === word;
    super("invalid_request", text === "" ? ownWords.invalid_request : text, {
      ...placeIn(said, isClean),
      ...(isRequestCode(said.code) && isClean(said.code) ? { reportedCode: said.code } : {}),
    });
    this.#said = said;
    this.#all = all;
  }

  get all(): ReportedError {
    return this.#all;
  }

  /** The same without what is known to be ours. */
  without({ secrets, names }: Own): UpstreamRefusal {
    return new UpstreamRefusal(this.#said, names, this.#all, secrets);
  }
}

/** A 400 about our account at the upstream, which may still be about a field: what it said is for `accountRefusalOf` alone. */
class AccountRefusal extends ApiError {
  readonly #said: ReportedError;

  constructor(said: ReportedError, cause: unknown) {
    super("upstream_error", ownWords.upstream_error, { cause });
    this.#said = said;
  }

  get all(): ReportedError {
    return this.#said;
  }
}

/** A prompt that does not fit: a sentence that Claude Code reads, and in OpenAI style the upstream's own message. */
class ContextOverflow extends ApiError {
  readonly #sentence: string;
  readonly #said: ReportedError;
  readonly #all: ReportedError;

  /** @param all that was said, which may be more than the client is told. */
  constructor(
    sentence: string,
    said: ReportedError,
    names: ModelNames | null,
    all: ReportedError,
    own: OwnSecrets = [],
  ) {
    const text = withoutSecrets(said.message, names, own);
    super("context_length_exceeded", sentence, {
      ...(text === "" ? {} : { openaiMessage: text }),
      ...placeIn(said, (word) => withoutSecrets(word, names, own) === word),
    });
    this.#sentence = sentence;
    this.#said = said;
    this.#all = all;
  }

  get said(): ReportedError {
    return this.#said;
  }

  get all(): ReportedError {
    return this.#all;
  }

  /** The same without what is known to be ours. */
  without({ secrets, names }: Own): ContextOverflow {
    return new ContextOverflow(this.#sentence, this.#said, names, this.#all, secrets);
  }
}

/**
 * A failure that an upstream told inside an answer, and not by its status. What it said is not a part of the cause, which is
 * logged.
 */
class InBandFailure extends ApiError {
  readonly #said: ReportedError;

  /** @param upstreamStatus that it stands for; null: none is known. */
  constructor(code: OwnCode, said: ReportedError, upstreamStatus: number | null) {
    super(code, ownWords[code], {
      ...(code === "rate_limited" && { retryAfterSeconds: RETRY_AFTER_DEFAULT_S }),
      cause: {
        inBand: { type: said.type, code: said.code },
        ...(upstreamStatus !== null && { upstreamStatus }),
      },
    });
    this.#said = said;
  }

  get all(): ReportedError {
    return this.#said;
  }

  /** The upstream's words where they cannot repeat the client's own; empty: there are none. */
  get words(): string {
    if (this.code === "too_large") return "";
    const { message } = this.#said;
    return upstreamStatus(this) !== 400 && isOfService(this.#said) ? message : accountPhrases(message);
  }
}

/** Returns the field at fault, if the upstream named one that may be shown. */
function placeIn({ param, details }: ReportedError, isClean: (word: string) => boolean): { param?: string } {
  const places = [param ?? "", ...details.map(({ field }) => field)];
  const place = places.find((name) => plainPath.test(name) && isClean(name));
  return place === undefined ? {} : { param: place };
}

/** A place in a request, and no words: `temperature`, `messages[0].content`. */
const plainPath = /^[A-Za-z_][\w.[\]-]{0,127}$/;

/** Whether the upstream's code is one word that says what is wrong with a request, such as `tool_name_conflict`. */
const isRequestCode = (code: string): boolean => /^[A-Za-z][\w.]{0,63}$/.test(code) && !isAccountCode(code);

/** Returns what an upstream said of a request that it refused; null for any other error. Not for the client. */
export const refusalOf = (error: unknown): ReportedError | null =>
  error instanceof UpstreamRefusal ? error.all : null;

/** Returns what an upstream said with a 400 about our account; null for any other error. Not for the client. */
export const accountRefusalOf = (error: unknown): ReportedError | null =>
  error instanceof AccountRefusal ? error.all : null;

/** Returns what an error inside an answer was made of, where its code and cause do not hold all of it (`errorSaying`). */
export const saidBy = (error: ApiError): ReportedError | null =>
  error instanceof UpstreamRefusal || error instanceof ContextOverflow || error instanceof InBandFailure
    ? error.all
    : null;

/** Removes our own data from an upstream's error, for the client. @returns `error` itself when it is not an upstream's. */
export const withoutOwn = (error: ApiError, own: () => Own): ApiError =>
  error instanceof UpstreamRefusal || error instanceof ContextOverflow ? error.without(own()) : error;

/** Most characters of an upstream's message that are kept for the operator. */
const MAX_WORDS = 300;

/**
 * Returns what an upstream said with a status other than 2xx, for the operator alone: its code, and its message unless
 * that is about the client's own request (400, 413, 422), which it may repeat.
 * @param isOurAccount a 400 is about our account there. It may repeat the request all the same: only what it is about is told.
 */
export function sayingOf(
  status: number,
  body: Uint8Array,
  own: OwnSecrets,
  isOurAccount: boolean,
): { readonly reason: string | null; readonly words: string | null } {
  const { type, code, message } = readErrorBody(body);
  const isPage = /^\s*<(?:!doctype|html)/i.test(Buffer.from(body.subarray(0, 64)).toString("latin1"));
  const said = code === "" ? type : code;
  const reason = isPage ? "html" : said === "" ? null : withoutSecrets(said, null, own).slice(0, 64);
  const aboutTheRequest = status === 400 || status === 413 || status === 422;
  const told = aboutTheRequest ? (isOurAccount ? accountPhrases(message) : "") : message;
  return { reason, words: told === "" ? null : withoutSecrets(told, null, own).slice(0, MAX_WORDS) };
}

/** Returns the phrases by which a message is known to be about our account. */
const accountPhrases = (message: string): string =>
  [...new Set(Array.from(message.matchAll(new RegExp(aboutTheAccount, "gi")), ([phrase]) => phrase))].join(
    ", ",
  );

/**
 * Whether an answer or an event has an error, whatever else it has: official clients take any value for one that is not
 * null, false, 0 or empty.
 */
export const holdsError = ({ error }: JsonObject): boolean => Boolean(error);

/** Checks the same for an `error` that a reader stands before. */
export function isErrorAhead(reader: JsonReader): boolean {
  switch (reader.kind()) {
    case "null":
      return false;
    case "boolean":
      return reader.boolean() === true;
    case "number":
      return reader.number() !== 0;
    case "string":
      return reader.string() !== "";
    default:
      return true;
  }
}

/** Returns an event's kind: its type, else its name; `error` for one that has neither and holds an error. */
export const kindOfEvent = (data: JsonObject, name: string): string =>
  textOf(data["type"]) ?? (name === "" && holdsError(data) ? "error" : name);

/**
 * Reads an error inside a stream, or a whole answer that turns out to be one: Messages' and Chat's `{error: {…}}`,
 * Responses' flat or nested `error` event, and the `error` of a failed response.
 */
export const inBandError = (body: JsonObject): ApiError =>
  errorSaying(reportedError(objectOf(body["error"]) ?? stringOf(body["error"]) ?? body));

/** Makes the error for what an upstream says inside an answer. */
export function errorSaying(error: ReportedError): ApiError {
  if (error.code === "422") return ofFields(error, null);
  const code = inBandCodes.get(error.code) ?? inBandCodes.get(error.type) ?? "upstream_error";
  if (code === "invalid_request")
    return aboutTheRequest(error, null) ?? new InBandFailure("upstream_error", error, 400);
  const status = inBandStatuses.get(error.code) ?? inBandStatuses.get(error.type) ?? null;
  return new InBandFailure(code, error, code === "rate_limited" ? null : status);
}

/** Returns the words of an error inside an answer, for the operator alone; null: there are none to keep. */
export function inBandWords(error: ApiError, own: OwnSecrets): string | null {
  const words = error instanceof InBandFailure ? error.words : "";
  return words === "" ? null : withoutSecrets(words, null, own).slice(0, MAX_WORDS);
}

/** Statuses for codes and types of errors inside an answer, whose own status was sent before. */
const inBandStatuses: ReadonlyMap<string, number> = new Map([
  ["authentication_error", 401],
  ["invalid_api_key", 401],
  ["billing_error", 402],
  ["insufficient_quota", 402],
  ["permission_error", 403],
  ["not_found_error", 404],
  ["model_not_found", 404],
  ["api_error", 500],
  ["server_error", 500],
  ["500", 500],
  ["502", 502],
]);

/** Codes and types, beside those that are known here, by which upstreams say that they failed themselves, or that our account did. */
const ofService =
  /^(?:40[1-4]|5\d\d)$|server|internal|overload|unavailable|time(?:d_)?_?out|gateway|upstream|provider/i;

/** Whether an error inside an answer is not about the client's own request, as far as its code and type say; some have neither. */
function isOfService({ code, type }: ReportedError): boolean {
  const names = [code, type].filter((name) => name !== "" && name !== "error");
  const isKnown = (name: string) => inBandCodes.has(name) || inBandStatuses.has(name);
  return names.length === 0 || names.some((name) => isKnown(name) || ofService.test(name));
}

/** Returns the status of an upstream's failure, or the one that its error inside an answer stands for; null: none. */
export function upstreamStatus({ cause }: ApiError): number | null {
  const { upstreamStatus: status } = (cause ?? {}) as { upstreamStatus?: unknown };
  return typeof status === "number" ? status : null;
}

/** Whether the error is what an upstream reported, by its status or inside an answer, and not what happened here. */
export const isOfUpstream = (error: ApiError): boolean =>
  upstreamStatus(error) !== null || inBandSaying(error) !== null;

/** Returns the type and code of an upstream's error that came inside an answer or is about the request; null for any other. */
export function inBandSaying(error: ApiError): { readonly type?: unknown; readonly code?: unknown } | null {
  if (error instanceof UpstreamRefusal) return error.all;
  if (error instanceof ContextOverflow) return error.said;
  const { inBand } = (error.cause ?? {}) as { inBand?: unknown };
  return isObject(inBand) ? inBand : null;
}

/** By `code` first, then by `type`; any other error (keys, quota, permissions, servers) is ours to mend: 502. */
const inBandCodes: ReadonlyMap<string, OwnCode> = new Map<string, OwnCode>([
  ["invalid_request_error", "invalid_request"],
  ["invalid_prompt", "invalid_request"],
  ["context_length_exceeded", "invalid_request"],
  ["400", "invalid_request"],
  ["request_too_large", "too_large"],
  ["413", "too_large"],
  ["rate_limit_error", "rate_limited"],
  ["rate_limit_exceeded", "rate_limited"],
  ["429", "rate_limited"],
  ["insufficient_quota", "upstream_error"],
  ["invalid_api_key", "upstream_error"],
  ["model_not_found", "upstream_error"],
  ["overloaded_error", "overloaded"],
  ["529", "overloaded"],
  ["server_is_overloaded", "unavailable"],
  ["service_unavailable_error", "unavailable"],
  ["503", "unavailable"],
  ["timeout_error", "timeout"],
  ["timeout", "timeout"],
  ["408", "timeout"],
  ["504", "timeout"],
]);

/** Sentences about our account there, which some upstreams wrap into a 400. */
const aboutTheAccount =
  /credit balance|billing|insufficient (?:quota|funds|balance)|exceeded your current quota|(?:incorrect|invalid|missing|valid) (?:x-)?api[ _-]?key|(?:your|this|the) (?:organi[sz]ation|workspace|account|project|subscription|plan|api[ _-]?key|usage limits?)\b|spend(?:ing)? limit|unauthori[sz]ed/i;

/** Codes that say the same: `organization_on_hold`, `billing_hard_limit_reached`, `AccountOverdueError`, `Arrearage`. */
const accountCode =
  /(?:^|[_.])(?:account|api_?key|arrearage|balance|billable|billing|cmek|credits?|key_creator|org|organi[sz]ation|payment|quota|spend|subscription|user_profile|workspace)(?:[_.]|$)/i;

const isAccountCode = (code: string): boolean =>
  accountCode.test(code.replaceAll(/(?<=[a-z\d])(?=[A-Z])/g, "_"));

const isOfTheAccount = ({ message, code }: ReportedError): boolean =>
  aboutTheAccount.test(message) || isAccountCode(code);

/** Makes the client's error for a 422: where the fault is. Its words may be what a validator read. */
const ofFields = (all: ReportedError, names: ModelNames | null): ApiError =>
  new UpstreamRefusal({ ...all, message: "" }, names, all);

/** Makes the client's error for a 400; null when it is about our account instead of the request. */
function aboutTheRequest(error: ReportedError, names: ModelNames | null): ApiError | null {
  const overflow = contextOverflow(error, names);
  if (overflow !== null) return overflow;
  if (isOfTheAccount(error) || inBandCodes.get(error.code) === "upstream_error") return null;
  return new UpstreamRefusal(error, names);
}

/**
 * A prompt that does not fit: in Messages exactly the two sentences whose numbers Claude Code reads (dialects.md §A2), and
 * everywhere where the upstream said one of them.
 */
function contextOverflow(error: ReportedError, names: ModelNames | null): ApiError | null {
  const own = saidSentence(error.message);
  if (own !== null) return new ApiError("context_length_exceeded", own);
  const sentence = sentenceOf(error);
  if (sentence === null) return null;
  const said = isOfTheAccount(error) ? { ...error, message: "" } : error;
  return new ContextOverflow(sentence, said, names, error);
}

/** Whole seconds from 1 to 60 (rule 1.5), also when the upstream said nothing usable. */
export function retryAfterSeconds(header: string | null, now: number): number {
  const text = header?.trim() ?? "";
  const seconds = /^\d+(\.\d+)?$/.test(text) ? Number(text) : (Date.parse(text) - now) / 1000;
  if (!Number.isFinite(seconds)) return RETRY_AFTER_DEFAULT_S;
  return Math.min(RETRY_AFTER_MAX_S, Math.max(1, Math.ceil(seconds)));
}
