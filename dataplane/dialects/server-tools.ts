/**
 * The catalogue of server tools, and the only place that names their versions: what is refused, declared, listed by
 * `/v1/models`, documented and read back from conversations follows from it. A further version of a
 * tool is a further string in `messages` or `responses`; versions of one tool behave alike.
 */
interface ServerToolRow {
  /** Its field in a policy, in capabilities and among the declarations of a request. */
  readonly key: "webSearch" | "webFetch" | "xSearch";
  /** The `type` by which Messages clients declare it, oldest first. */
  readonly messages: readonly string[];
  /** The `type` by which Responses clients declare it, the plain name first; a tool without one comes with web_search. */
  readonly responses: readonly string[];
  /** The field of a Chat request that declares it; null: Chat has no way, or it comes with web_search. */
  readonly chatField: string | null;
  /** Messages: the block that holds its result. */
  readonly resultBlock: "web_search_tool_result" | "web_fetch_tool_result";
  /** Responses: its item, and how such an item's id begins. */
  readonly item: "web_search_call" | "x_search_call";
  readonly itemPrefix: string;
}

export const serverTools = {
  web_search: {
    key: "webSearch",
    messages: ["web_search_20250305", "web_search_20260209", "web_search_20260318"],
    responses: ["web_search", "web_search_preview", "web_search_2025_08_26"],
    chatField: "web_search_options",
    resultBlock: "web_search_tool_result",
    item: "web_search_call",
    itemPrefix: "ws",
  },
  web_fetch: {
    key: "webFetch",
    messages: ["web_fetch_20250910", "web_fetch_20260209", "web_fetch_20260309", "web_fetch_20260318"],
    responses: [],
    chatField: null,
    resultBlock: "web_fetch_tool_result",
    // A page is opened by a search's action `open_page`.
    item: "web_search_call",
    itemPrefix: "ws",
  },
  x_search: {
    key: "xSearch",
    messages: ["x_search_20261005"],
    responses: ["x_search"],
    chatField: null,
    resultBlock: "web_search_tool_result",
    item: "x_search_call",
    itemPrefix: "xs",
  },
} as const satisfies Readonly<Record<string, ServerToolRow>>;

export type ServerToolName = keyof typeof serverTools;
