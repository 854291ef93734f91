/** How the tables of request fields are written (request-fields.ts says what the words mean), and the rows that they share. */
import type { Dialect } from "./dialect.ts";
import type { JsonValue } from "./messages/types.ts";
import { accountFields, foreignAnswer } from "./price-effects.ts";

export type FieldHandling = "mapped" | "dropped" | "refused" | { readonly copiedTo: string };

/** What becomes of one request field. */
export interface FieldRule {
  /** Dotted; lists are walked through without an index. */
  readonly name: string;
  readonly to: Readonly<Record<Dialect, FieldHandling>>;
  /** Values that ask for nothing: leaving them out loses nothing. `any`: whatever it holds. */
  readonly neutral?: readonly JsonValue[] | "any";
  /** A list there is history, which an earlier answer told and a client repeats: leaving it out loses nothing. */
  readonly listIsHistory?: true;
  /** In an object with this `role` the field is mapped, whatever the target. */
  readonly usedInRole?: string;
  /** It is dropped wherever the object around it is not of this `role`. */
  readonly keptInRole?: string;
  /** Elements of a list that are served, or ask for nothing here; any other is dropped. Absent: all are. */
  readonly served?: readonly string[];
  /** Further elements, served toward these targets without server tools and but for a summary. */
  readonly servedToward?: Partial<Readonly<Record<Dialect, readonly string[]>>>;
  /** The only values that cross toward these targets; any other is dropped. Toward other targets all do. */
  readonly crossing?: Partial<Readonly<Record<Dialect, readonly string[]>>>;
  /** Dropped whatever the target when a server tool is used (service.md "What a request with server tools may hold"). */
  readonly droppedWithServerTools?: true;
  /** The same where a summary of the conversation is asked for, which is sealed (responses/compaction.ts). */
  readonly droppedWithSummary?: true;
  /**
   * Members of the field's objects that are not lost, beside those with a row of their own: its reader uses them, or they
   * repeat what it uses (`parsed`, which the SDKs' helpers add). Any other member is unknown and dropped toward other
   * dialects. Absent: the objects are not looked into, as they are the client's own data (schemas, arguments, maps) or
   * refused elsewhere.
   */
  readonly holds?: readonly string[];
  /** Text for docs/dialects.md. */
  readonly note?: string;
}

type Extra = Pick<
  FieldRule,
  | "neutral"
  | "listIsHistory"
  | "usedInRole"
  | "keptInRole"
  | "served"
  | "servedToward"
  | "crossing"
  | "droppedWithServerTools"
  | "droppedWithSummary"
  | "holds"
  | "note"
>;
/** A rule as the tables write it: the name, and its handling toward each dialect. */
export type FieldRow = readonly [
  name: string,
  messages: FieldHandling,
  chat: FieldHandling,
  responses: FieldHandling,
  extra?: Extra,
];

export const mapped = "mapped";
export const dropped = "dropped";
export const refused = "refused";
export const copiedTo = (path: string): FieldHandling => ({ copiedTo: path });

export const fieldTable = (rows: readonly FieldRow[]): readonly FieldRule[] =>
  rows.map(([name, messages, chat, responses, extra]) => ({
    name,
    to: { messages, chat, responses },
    ...extra,
  }));

/** What a declaration of one of Gapura's server tools may say; read, or accepted and ignored (service.md "Declarations in Messages"). */
export const serverToolParts = [
  "max_uses",
  "allowed_domains",
  "blocked_domains",
  "user_location",
  "citations",
  "max_content_tokens",
  "use_cache",
  "response_inclusion",
  "url_sources",
  "search_profile",
  "allowed_x_handles",
  "excluded_x_handles",
  "from_date",
  "to_date",
];

/** A note of a row. */
export const ofAggregators = "known to providers that speak this dialect beside its vendor";

const accountNotes: Readonly<Record<string, string>> = {
  diagnostics: "an id of another conversation",
  fallbacks: "another model, at its price",
  models: "OpenRouter: other models, at their prices",
  provider: "OpenRouter: who serves it, at what price",
  plugins: "OpenRouter: tools with fees of their own",
  search_parameters: "xAI: a fee for each source",
  enable_search: "Qwen: a fee for each search",
  multi_agent: "agents of the provider's own, as many as it likes, each with its tokens",
  background_options: "another price for what is answered later",
};

/** Fields that no dialect offers here (service.md "Errors"). */
export const unavailableRows: readonly FieldRow[] = [
  ["container", refused, refused, refused],
  ["mcp_servers", refused, refused, refused, { neutral: [[]] }],
];
/** How Chat and Responses have their answers sampled. */
export const openaiSamplingRows: readonly FieldRow[] = [
  [
    "temperature",
    mapped,
    mapped,
    mapped,
    { note: "at most 1 toward Messages; with thinking, below 1 dropped" },
  ],
  ["top_p", mapped, mapped, mapped, { note: "toward Messages with thinking, below 0.95 dropped" }],
];
/** How Chat and Responses have their answers kept and sent. */
export const openaiAnswerRows: readonly FieldRow[] = [
  ["metadata", dropped, copiedTo("metadata"), copiedTo("metadata"), { neutral: [{}] }],
  ["store", mapped, mapped, mapped, { note: "nothing is stored at an upstream" }],
  ["stream", mapped, mapped, mapped],
  ["stream_options", mapped, mapped, mapped],
];
/** For whom Chat and Responses ask, and which prompts are cached together. */
export const openaiUserRows: readonly FieldRow[] = [
  ["user", mapped, copiedTo("user"), copiedTo("user")],
  ["safety_identifier", mapped, copiedTo("safety_identifier"), copiedTo("safety_identifier")],
  [
    "prompt_cache_key",
    dropped,
    copiedTo("prompt_cache_key"),
    copiedTo("prompt_cache_key"),
    { droppedWithServerTools: true },
  ],
  ["prompt_cache_options", mapped, mapped, mapped, { holds: [] }],
  ...["mode", "ttl"].map((member): FieldRow => {
    const name = `prompt_cache_options.${member}`;
    // Lifetimes depend on the API: in Responses there are longer ones.
    const extra: Extra = member === "ttl" ? { crossing: { chat: ["30m"] } } : {};
    return [name, dropped, copiedTo(name), copiedTo(name), extra];
  }),
  // Chat has no such requests, and refuses the field.
  [
    "prompt_cache_options.prewarm",
    dropped,
    dropped,
    copiedTo("prompt_cache_options.prewarm"),
    { neutral: [false] },
  ],
  [foreignAnswer.join("."), dropped, dropped, dropped, { note: "an id of another conversation" }],
  ["prompt_cache_retention", dropped, copiedTo("prompt_cache_retention"), copiedTo("prompt_cache_retention")],
];
/** Fields that name an account of a provider, or what it shall serve, in whichever dialect they come. */
export const accountRows = accountFields.map((name): FieldRow => {
  const note = accountNotes[name];
  return [name, dropped, dropped, dropped, note === undefined ? {} : { note }];
});
