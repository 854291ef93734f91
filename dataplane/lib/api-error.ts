/**
 * The one table of every error the service answers with, and the exception that stops a request with one of them.
 * Sources: service.md "Errors", dialects.md §A2, rules.md 1.4–1.6, 1.17, 2.12, 2.16.
 * Nothing here knows a dialect's body: `dialects/errors.ts` renders it.
 */
import { shortened } from "./first-units.ts";

/** How one kind of error appears in both error styles. `retry: false` sends `x-should-retry: false`. */
export interface ErrorKind {
  readonly status: number;
  /** `error.type` in Messages style. */
  readonly messagesType: string;
  /** `error.type` and `error.code` in OpenAI style. */
  readonly openaiType: string;
  readonly openaiCode: string | null;
  /** `error.details.error_code` in Messages style; absent when the type says it all. */
  readonly detailsCode?: string;
  readonly retry: boolean;
}

const invalid = (openaiCode: string | null, detailsCode?: string, status = 400): ErrorKind => ({
  status,
  messagesType: "invalid_request_error",
  openaiType: "invalid_request_error",
  openaiCode,
  ...(detailsCode === undefined ? {} : { detailsCode }),
  retry: false,
});

/** The credit limit of a key or project is used up (rule 9.3), not the organization's credit. */
const limitSpent = (code: string): ErrorKind => ({
  status: 402,
  messagesType: "billing_error",
  openaiType: "insufficient_quota",
  openaiCode: code,
  detailsCode: code,
  retry: false,
});

export const errorKinds = {
  /** Malformed in a way for which the contract has no code. */
  invalid_request: invalid(null),
  /** The contract's own code `invalid_request_error`: in OpenAI style `type` and `code` are both equal to it (rule 3.1). */
  invalid_request_error: invalid("invalid_request_error"),
  missing_parameter: invalid("missing_required_parameter"),
  invalid_type: invalid("invalid_type"),
  invalid_value: invalid("invalid_value"),
  context_length_exceeded: invalid("context_length_exceeded"),
  unsupported_tool: invalid("unsupported_tool", "unsupported_tool"),
  unsupported_content: invalid("unsupported_content", "unsupported_content"),
  unsupported_parameter: invalid("unsupported_parameter", "unsupported_parameter"),
  /** `thread`: the one code that makes the SDKs fall back to whole histories (dialects.md §B1). */
  thread_unsupported: invalid("unsupported_parameter", "thread_unsupported_request"),
  /** The organization's storage quota is used up (rule 7.8). */
  storage_limit_reached: invalid("storage_limit_reached", "storage_limit_reached"),
  authentication: {
    status: 401,
    messagesType: "authentication_error",
    openaiType: "invalid_request_error",
    openaiCode: "invalid_api_key",
    retry: false,
  },
  insufficient_credit: {
    status: 402,
    messagesType: "billing_error",
    openaiType: "insufficient_quota",
    openaiCode: "insufficient_quota",
    retry: false,
  },
  key_limit_reached: limitSpent("key_limit_reached"),
  project_limit_reached: limitSpent("project_limit_reached"),
  permission: {
    status: 403,
    messagesType: "permission_error",
    openaiType: "invalid_request_error",
    openaiCode: "insufficient_permissions",
    retry: false,
  },
  /** The token is valid, but its organization has reached its number of people (docs/people.md). */
  people_limit_reached: {
    status: 403,
    messagesType: "permission_error",
    openaiType: "invalid_request_error",
    openaiCode: "people_limit_reached",
    detailsCode: "people_limit_reached",
    retry: false,
  },
  not_found: {
    status: 404,
    messagesType: "not_found_error",
    openaiType: "invalid_request_error",
    openaiCode: null,
    retry: false,
  },
  model_not_found: {
    status: 404,
    messagesType: "not_found_error",
    openaiType: "invalid_request_error",
    openaiCode: "model_not_found",
    retry: false,
  },
  file_expired: {
    status: 404,
    messagesType: "not_found_error",
    openaiType: "invalid_request_error",
    openaiCode: "file_expired",
    detailsCode: "file_expired",
    retry: false,
  },
  /** The client did not send its body in time; the connection is closed, SDKs may try again. */
  request_timeout: { ...invalid(null, undefined, 408), retry: true },
  method_not_allowed: invalid("method_not_supported", undefined, 405),
  too_large: {
    status: 413,
    messagesType: "request_too_large",
    openaiType: "invalid_request_error",
    openaiCode: "request_too_large",
    retry: false,
  },
  unsupported_media_type: invalid("unsupported_content_type", undefined, 415),
  expectation_failed: invalid(null, undefined, 417),
  upgrade_required: invalid(null, undefined, 426),
  rate_limited: {
    status: 429,
    messagesType: "rate_limit_error",
    openaiType: "requests",
    openaiCode: "rate_limit_exceeded",
    retry: true,
  },
  tokens_rate_limited: {
    status: 429,
    messagesType: "rate_limit_error",
    openaiType: "tokens",
    openaiCode: "rate_limit_exceeded",
    retry: true,
  },
  internal: {
    status: 500,
    messagesType: "api_error",
    openaiType: "server_error",
    openaiCode: null,
    retry: true,
  },
  upstream_error: {
    status: 502,
    messagesType: "api_error",
    openaiType: "server_error",
    openaiCode: "upstream_error",
    detailsCode: "upstream_error",
    retry: true,
  },
  unavailable: {
    status: 503,
    messagesType: "api_error",
    openaiType: "server_error",
    openaiCode: "server_is_overloaded",
    retry: true,
  },
  timeout: {
    status: 504,
    messagesType: "timeout_error",
    openaiType: "server_error",
    openaiCode: "timeout",
    retry: true,
  },
  /** 529 exists only in Messages style; `dialects/errors.ts` answers 503 elsewhere. */
  overloaded: {
    status: 529,
    messagesType: "overloaded_error",
    openaiType: "server_error",
    openaiCode: "server_is_overloaded",
    retry: true,
  },
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof errorKinds;

export interface ApiErrorOptions {
  /** Path of the field at fault in the caller's own body, such as `tools[0].type`. */
  readonly param?: string;
  /** A provider's own code for what is wrong with the client's request, shown where the table has none (rule 1.5). */
  readonly reportedCode?: string;
  /** What OpenAI style says instead of the message. */
  readonly openaiMessage?: string;
  /** Whole seconds for `retry-after`, at most 60. */
  readonly retryAfterSeconds?: number;
  /** Overrides the table's `retry` (a failure after billed iterations must not be repeated by an SDK). */
  readonly retry?: boolean;
  /** Further headers of the error answer, names in lower case (rate limits). */
  readonly headers?: Readonly<Record<string, string>>;
  /** Further fields of `error.details` in Messages style. */
  readonly details?: Readonly<Record<string, unknown>>;
  /** For the log only; never shown to a client. */
  readonly cause?: unknown;
}

/** Longest message, in characters: a message may quote the request, which may be megabytes. */
const MOST_MESSAGE = 4_000;

/**
 * Ends the current request with an error. `message` is shown to the client, so it holds no upstream's address, account or
 * text, except for an upstream 400 about the client's own request (rule 1.5).
 */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly param: string | undefined;
  readonly reportedCode: string | undefined;
  readonly openaiMessage: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly details: Readonly<Record<string, unknown>> | undefined;
  readonly #retry: boolean | undefined;

  constructor(code: ErrorCode, message: string, options: ApiErrorOptions = {}) {
    super(
      shortened(message, MOST_MESSAGE),
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.name = "ApiError";
    this.code = code;
    this.param = options.param;
    this.reportedCode = options.reportedCode;
    this.openaiMessage = options.openaiMessage;
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.headers = options.headers ?? {};
    this.details = options.details;
    this.#retry = options.retry;
  }

  get kind(): ErrorKind {
    return errorKinds[this.code];
  }

  /** False when the same request can only fail again, or would be billed again. */
  get retry(): boolean {
    return this.#retry ?? this.kind.retry;
  }
}
