/**
 * The Messages dialect's wire types, which are also the hub that every conversion passes through (design.md §4.3).
 * Source: dialects.md §B1, §C1, §E. Deliberately open: fields that are not named here pass through
 * same-dialect paths untouched, so every object type allows more than it names.
 */

import type { ServerToolName } from "../server-tools.ts";

export type JsonValue = string | number | boolean | null | JsonValue[] | { [key: string]: JsonValue };
export type JsonObject = { [key: string]: JsonValue };

export interface CacheControl {
  type: "ephemeral";
  ttl?: "5m" | "1h";
}

export interface TextBlock {
  type: "text";
  text: string;
  citations?: Citation[] | null;
  cache_control?: CacheControl | null;
  /** Inside the process, and in Chat and Responses (logprobs.ts). */
  logprobs?: readonly Logprob[];
  /** Inside the process, and in Chat and Responses (url-citations.ts). */
  annotations?: readonly UrlCitation[];
}
/** A token's log probability, and the token's own UTF-8 bytes. */
export type TokenLogprob = { token: string; logprob: number; bytes: number[] };
/** A token of an answer, with the likeliest ones in its place. */
export type Logprob = TokenLogprob & { top_logprobs: TokenLogprob[] };
/** A web page that a passage of a text is taken from. Indexes count Unicode code points of the text; `end_index` is exclusive. */
export interface UrlCitation {
  readonly start_index: number;
  readonly end_index: number;
  readonly url: string;
  readonly title: string;
}
export type ImageSource =
  | { type: "base64"; media_type: string; data: string }
  | { type: "url"; url: string }
  | { type: "file"; file_id: string };
export interface ImageBlock {
  type: "image";
  source: ImageSource;
  cache_control?: CacheControl | null;
}
export type DocumentSource =
  | { type: "base64"; media_type: string; data: string }
  | { type: "url"; url: string }
  | { type: "file"; file_id: string }
  | { type: "text"; media_type: string; data: string }
  | { type: "content"; content: string | ContentBlockParam[] };
export interface DocumentBlock {
  type: "document";
  source: DocumentSource;
  title?: string | null;
  context?: string | null;
  citations?: { enabled?: boolean } | null;
  cache_control?: CacheControl | null;
}
export interface SearchResultBlock {
  type: "search_result";
  source: string;
  title: string;
  content: TextBlock[];
  citations?: { enabled?: boolean };
  cache_control?: CacheControl | null;
}
export interface ThinkingBlock {
  type: "thinking";
  thinking: string;
  signature: string;
}
export interface RedactedThinkingBlock {
  type: "redacted_thinking";
  data: string;
}
export interface ToolUseBlock {
  type: "tool_use";
  id: string;
  name: string;
  input: JsonObject;
  /** The caller: the model itself, or a program of its own. */
  caller?: { type: string };
  cache_control?: CacheControl | null;
}
export interface ToolResultBlock {
  type: "tool_result";
  tool_use_id: string;
  content?: string | ContentBlockParam[];
  is_error?: boolean;
  cache_control?: CacheControl | null;
}
export interface ServerToolUseBlock {
  type: "server_tool_use";
  id: string;
  /** Empty: of a tool that nobody has, which is called in a tool loop; Chat and Responses show nothing of it. Inside the process only. */
  name: ServerToolName | "";
  input: JsonObject;
  caller?: { type: "direct" };
}
export interface WebSearchResult {
  type: "web_search_result";
  url: string;
  title: string;
  encrypted_content: string;
  page_age: string | null;
}
export type WebSearchErrorCode =
  | "too_many_requests"
  | "invalid_tool_input"
  | "max_uses_exceeded"
  | "query_too_long"
  | "unavailable";
export type WebFetchErrorCode =
  | WebSearchErrorCode
  | "url_too_long"
  | "url_not_allowed"
  | "url_not_in_prior_context"
  | "url_not_accessible"
  | "unsupported_content_type";
export interface WebSearchToolResultBlock {
  type: "web_search_tool_result";
  tool_use_id: string;
  content: WebSearchResult[] | { type: "web_search_tool_result_error"; error_code: WebSearchErrorCode };
  caller?: { type: "direct" };
}
export interface WebFetchToolResultBlock {
  type: "web_fetch_tool_result";
  tool_use_id: string;
  content:
    | { type: "web_fetch_result"; url: string; retrieved_at: string | null; content: DocumentBlock }
    | { type: "web_fetch_tool_result_error"; error_code: WebFetchErrorCode };
  caller?: { type: "direct" };
}

export type Citation =
  | {
      type: "web_search_result_location";
      url: string;
      title: string | null;
      encrypted_index: string;
      cited_text: string;
    }
  | {
      type: "search_result_location";
      source: string;
      title: string | null;
      cited_text: string;
      search_result_index: number;
      start_block_index: number;
      end_block_index: number;
    }
  | {
      type: "char_location";
      cited_text: string;
      document_index: number;
      document_title: string | null;
      start_char_index: number;
      end_char_index: number;
      file_id?: string | null;
    }
  | { type: "page_location" | "content_block_location"; cited_text: string; [key: string]: JsonValue };

/** A block as a client may send it. */
export type ContentBlockParam =
  | TextBlock
  | ImageBlock
  | DocumentBlock
  | SearchResultBlock
  | ThinkingBlock
  | RedactedThinkingBlock
  | ToolUseBlock
  | ToolResultBlock
  | ServerToolUseBlock
  | WebSearchToolResultBlock
  | WebFetchToolResultBlock;

/** A block as an answer may hold it. */
export type ContentBlock =
  | TextBlock
  | ThinkingBlock
  | RedactedThinkingBlock
  | ToolUseBlock
  | ServerToolUseBlock
  | WebSearchToolResultBlock
  | WebFetchToolResultBlock;

export interface MessageParam {
  role: "user" | "assistant" | "system";
  content: string | ContentBlockParam[];
}

export interface FunctionTool {
  type?: "custom";
  name: string;
  description?: string;
  input_schema: JsonObject;
  strict?: boolean;
  cache_control?: CacheControl | null;
}

export type ToolChoice =
  | { type: "auto"; disable_parallel_tool_use?: boolean }
  | { type: "any"; disable_parallel_tool_use?: boolean }
  | { type: "tool"; name: string; disable_parallel_tool_use?: boolean }
  | { type: "none" };

export type Effort = "low" | "medium" | "high" | "xhigh" | "max";

export interface MessagesRequest {
  model: string;
  max_tokens?: number;
  messages: MessageParam[];
  system?: string | TextBlock[];
  tools?: (FunctionTool | JsonObject)[];
  tool_choice?: ToolChoice;
  thinking?: {
    type: "adaptive" | "disabled" | "enabled" | "between_tools";
    budget_tokens?: number;
    display?: string;
  };
  output_config?: { effort?: Effort; format?: { type: "json_schema"; schema: JsonObject } };
  temperature?: number;
  top_p?: number;
  top_k?: number;
  stop_sequences?: string[];
  stream?: boolean;
  metadata?: { user_id?: string | null };
  service_tier?: string;
}

export type StopReason =
  | "end_turn"
  | "max_tokens"
  | "stop_sequence"
  | "tool_use"
  | "pause_turn"
  | "refusal"
  | "model_context_window_exceeded";

/** Counters are totals of the whole message so far; null means "not reported" and never overwrites a number. */
export interface MessagesUsage {
  input_tokens: number;
  output_tokens: number;
  cache_creation_input_tokens?: number | null;
  cache_read_input_tokens?: number | null;
  cache_creation?: { ephemeral_5m_input_tokens: number; ephemeral_1h_input_tokens: number } | null;
  output_tokens_details?: { thinking_tokens?: number } | null;
  server_tool_use?: {
    web_search_requests: number;
    web_fetch_requests: number;
    x_search_requests?: number;
  } | null;
  service_tier?: string | null;
  inference_geo?: string | null;
  speed?: string | null;
  /**
   * Tokens with prices of their own (rule 10.5), parts of `input_tokens` and of `output_tokens`; absent: not reported.
   * Inside the process, and in Chat.
   */
  media?: { audioInput?: number; audioOutput?: number; imageOutput?: number };
  /**
   * What the upstream took to compact the conversation before it answered (rule 10.7): each a call of its own, no part of
   * the rest; absent: nothing. Inside the process only.
   */
  compactions?: readonly MessagesUsage[];
  /** The tiers with a price that the call was served at; absent: the standard one. Inside the process only. */
  tiers?: { charged: readonly string[]; doubtful: readonly string[] };
  /**
   * Whether some of it was counted here, as the upstream did not report it (so far). Inside the process only; no client
   * sees it.
   */
  estimated?: boolean;
  /** Whether the upstream reported more than is possible, or a tier without a price. Inside the process only. */
  implausible?: boolean;
}

export interface MessagesResponse {
  id: string;
  type: "message";
  role: "assistant";
  model: string;
  content: ContentBlock[];
  stop_reason: StopReason | null;
  stop_sequence: string | null;
  stop_details?: { type: "refusal"; category?: string | null; explanation?: string | null } | null;
  usage: MessagesUsage;
}

export type BlockDelta =
  | { type: "text_delta"; text: string; logprobs?: readonly Logprob[] }
  | { type: "input_json_delta"; partial_json: string }
  | { type: "thinking_delta"; thinking: string }
  | { type: "signature_delta"; signature: string }
  | { type: "citations_delta"; citation: Citation }
  | AnnotationsDelta
  | CompactionDelta;

/**
 * Citations with indexes in the whole text of their block. Inside the process, and in Chat and Responses. Their block
 * may have ended: some upstreams tell all citations at the end of an answer.
 */
export type AnnotationsDelta = { type: "annotations_delta"; annotations: readonly UrlCitation[] };

/** The whole content of a `compaction` block, in one delta; null where it failed. */
export type CompactionDelta = {
  type: "compaction_delta";
  content: string | null;
  encrypted_content?: string | null;
};

/** The stream grammar of dialects.md §C1: the internal event language of every converted stream. */
export type MessagesEvent =
  | { type: "message_start"; message: MessagesResponse }
  | { type: "content_block_start"; index: number; content_block: ContentBlock }
  | { type: "content_block_delta"; index: number; delta: BlockDelta }
  | { type: "content_block_stop"; index: number }
  | MessageDelta
  | { type: "message_stop" }
  | { type: "ping" };

/** The event with the end of the answer and its usage. */
export interface MessageDelta {
  type: "message_delta";
  delta: MessageEnd;
  usage: Partial<MessagesUsage> & { output_tokens: number };
}

/** How an answer ended. */
export type MessageEnd = Pick<MessagesResponse, "stop_reason" | "stop_sequence" | "stop_details">;
