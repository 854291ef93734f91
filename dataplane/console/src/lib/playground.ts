/** Writes a question of the playground as a request of each dialect, and reads its streamed answer. Uses no DOM. */
export const dialects = ["messages", "chat", "responses"] as const;
export type PlayDialect = (typeof dialects)[number];

/** An earlier exchange of the same conversation. */
export interface Turn {
  readonly text: string;
  /** `data:` URLs. */
  readonly images: readonly string[];
  readonly answer: string;
}

export interface Question {
  readonly dialect: PlayDialect;
  readonly model: string;
  readonly system: string;
  /** The oldest first. */
  readonly earlier: readonly Turn[];
  readonly text: string;
  /** `data:` URLs. */
  readonly images: readonly string[];
  readonly webSearch: boolean;
  readonly openPages: boolean;
  readonly posts: boolean;
}

const paths: Readonly<Record<PlayDialect, string>> = {
  messages: "/v1/messages",
  chat: "/v1/chat/completions",
  responses: "/v1/responses",
};
/** The `max_tokens` that Messages requires; a lower limit of the route still applies. */
const MAX_TOKENS = 4096;

export function requestOf(question: Question): { readonly path: string; readonly body: object } {
  const bodyOf = { messages: messagesBody, chat: chatBody, responses: responsesBody }[question.dialect];
  return { path: paths[question.dialect], body: bodyOf(question) };
}

const systemOf = (system: string, name: string) => (system.trim() === "" ? {} : { [name]: system });

/** Returns the conversation, this question included, as a list of the dialect's messages. */
function conversation(
  { earlier, text, images }: Question,
  contentOf: (words: string, pictures: readonly string[]) => unknown,
): object[] {
  return [
    ...earlier.flatMap((turn) => [
      { role: "user", content: contentOf(turn.text, turn.images) },
      { role: "assistant", content: turn.answer },
    ]),
    { role: "user", content: contentOf(text, images) },
  ];
}

function messagesContent(text: string, images: readonly string[]): unknown {
  const pictures = images.map((url) => {
    const [, type = "", data = ""] = /^data:([^;]+);base64,(.*)$/s.exec(url) ?? [];
    return { type: "image", source: { type: "base64", media_type: type, data } };
  });
  return pictures.length === 0 ? text : [...pictures, { type: "text", text }];
}

function messagesBody(question: Question): object {
  const { model, system, webSearch, openPages, posts } = question;
  const tools = [
    ...(webSearch ? [{ type: "web_search_20260318", name: "web_search" }] : []),
    ...(openPages ? [{ type: "web_fetch_20260318", name: "web_fetch" }] : []),
    ...(posts ? [{ type: "x_search_20261005", name: "x_search" }] : []),
  ];
  return {
    model,
    max_tokens: MAX_TOKENS,
    stream: true,
    ...systemOf(system, "system"),
    messages: conversation(question, messagesContent),
    ...(tools.length === 0 ? {} : { tools }),
  };
}

function chatContent(text: string, images: readonly string[]): unknown {
  const pictures = images.map((url) => ({ type: "image_url", image_url: { url } }));
  return pictures.length === 0 ? text : [{ type: "text", text }, ...pictures];
}

function chatBody(question: Question): object {
  const { model, system, webSearch } = question;
  return {
    model,
    stream: true,
    stream_options: { include_usage: true },
    messages: [
      ...(system.trim() === "" ? [] : [{ role: "system", content: system }]),
      ...conversation(question, chatContent),
    ],
    ...(webSearch ? { web_search_options: {} } : {}),
  };
}

function responsesContent(text: string, images: readonly string[]): unknown {
  const pictures = images.map((url) => ({ type: "input_image", image_url: url }));
  return pictures.length === 0 ? text : [{ type: "input_text", text }, ...pictures];
}

function responsesBody(question: Question): object {
  const { model, system, earlier, text, images, webSearch, posts } = question;
  const isPlain = earlier.length === 0 && images.length === 0;
  const input = isPlain ? text : conversation(question, responsesContent);
  const tools = [...(webSearch ? [{ type: "web_search" }] : []), ...(posts ? [{ type: "x_search" }] : [])];
  return {
    model,
    stream: true,
    ...systemOf(system, "instructions"),
    input,
    ...(tools.length === 0 ? {} : { tools }),
  };
}

/** Returns the same request as a shell command; the key stays a variable. */
export function asCurl(question: Question, base: string): string {
  const { path, body } = requestOf(question);
  const text = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return `curl -N ${base}${path} \\\n  -H "authorization: Bearer $GAPURA_KEY" \\\n  -H "content-type: application/json" \\\n  -d '${text}'`;
}

export interface Citation {
  readonly url: string;
  readonly title: string;
}
/** The answer so far. */
export interface Play {
  readonly text: string;
  /** What a server tool did, one line each. */
  readonly steps: readonly string[];
  readonly citations: readonly Citation[];
  readonly inputTokens: number | null;
  readonly outputTokens: number | null;
  /** In the stream's own words. */
  readonly error: string | null;
}
export const nothingYet: Play = {
  text: "",
  steps: [],
  citations: [],
  inputTokens: null,
  outputTokens: null,
  error: null,
};

/** Returns the `data` of each complete event, and the rest of the text. */
export function readEvents(buffered: string): { readonly events: string[]; readonly rest: string } {
  const blocks = buffered.replaceAll("\r\n", "\n").split("\n\n");
  const rest = blocks.pop() ?? "";
  const events = blocks.flatMap((block) => {
    const data = block
      .split("\n")
      .filter((line) => line.startsWith("data:"))
      .map((line) => line.slice(5).trimStart());
    return data.length === 0 ? [] : [data.join("\n")];
  });
  return { events, rest };
}

/** An event of any of the three dialects: its fields tell which one it is. */
interface WireEvent {
  readonly type?: string;
  readonly error?: { readonly message?: string } | null;
  readonly message?: { readonly usage?: Usage } | string;
  readonly usage?: Usage | null;
  readonly content_block?: { readonly type: string; readonly name?: string; readonly content?: unknown };
  readonly delta?: unknown;
  readonly item?: { readonly type: string; readonly status?: string; readonly action?: Action };
  readonly annotation?: { readonly url?: string; readonly title?: string };
  readonly response?: {
    readonly usage?: Usage | null;
    readonly error?: { readonly message?: string } | null;
  };
  readonly choices?: readonly { readonly delta?: ChatDelta }[];
}
interface Usage {
  readonly input_tokens?: number;
  readonly output_tokens?: number;
  readonly prompt_tokens?: number;
  readonly completion_tokens?: number;
}
interface Action {
  readonly type?: string;
  readonly query?: string;
  readonly url?: string;
}
interface ChatDelta {
  readonly content?: string | null;
  readonly annotations?: readonly {
    readonly url_citation?: { readonly url: string; readonly title?: string };
  }[];
}
interface MessagesDelta {
  readonly type?: string;
  readonly text?: string;
  readonly partial_json?: string;
  readonly citation?: { readonly url?: string; readonly title?: string | null };
}

/** Returns the play after one more event. Text that is not JSON changes nothing. */
export function advance(play: Play, data: string): Play {
  let event: WireEvent;
  try {
    event = JSON.parse(data) as WireEvent;
  } catch {
    return play;
  }
  const told = withUsage(play, usageOf(event));
  const failure = event.error ?? (event.type === "response.failed" ? event.response?.error : null);
  if (failure !== null && failure !== undefined) return { ...told, error: failure.message ?? "" };
  if (event.type === "error")
    return { ...told, error: typeof event.message === "string" ? event.message : "" };
  if (event.choices !== undefined) return withChat(told, event.choices[0]?.delta ?? {});
  switch (event.type) {
    case "content_block_delta":
      return withMessages(told, event.delta as MessagesDelta);
    case "content_block_start":
      return withBlock(told, event.content_block);
    case "response.output_text.delta":
      return { ...told, text: told.text + String(event.delta) };
    case "response.output_item.done":
      return withItem(told, event.item);
    case "response.output_text.annotation.added":
      return withCitation(told, event.annotation?.url, event.annotation?.title);
    default:
      return told;
  }
}

function usageOf({ message, response, usage }: WireEvent): Usage | null {
  if (typeof message === "object") return message.usage ?? null;
  return response?.usage ?? usage ?? null;
}

function withUsage(play: Play, usage: Usage | null): Play {
  if (usage === null) return play;
  return {
    ...play,
    inputTokens: usage.input_tokens ?? usage.prompt_tokens ?? play.inputTokens,
    outputTokens: usage.output_tokens ?? usage.completion_tokens ?? play.outputTokens,
  };
}

function withChat(play: Play, { content, annotations }: ChatDelta): Play {
  const told = content === undefined || content === null ? play : { ...play, text: play.text + content };
  return (annotations ?? []).reduce(
    (next, { url_citation: citation }) => withCitation(next, citation?.url, citation?.title),
    told,
  );
}

function withMessages(play: Play, { type, text, partial_json: json, citation }: MessagesDelta): Play {
  if (type === "text_delta") return { ...play, text: play.text + (text ?? "") };
  if (type === "citations_delta") return withCitation(play, citation?.url, citation?.title ?? undefined);
  // The input of a server tool comes whole; it completes the step that began before.
  const last = play.steps.at(-1);
  if (type !== "input_json_delta" || last === undefined || !last.endsWith(":")) return play;
  const { query, url } = parseAction(json ?? "");
  return { ...play, steps: [...play.steps.slice(0, -1), `${last} ${query ?? url ?? ""}`] };
}

function parseAction(json: string): Action {
  try {
    return JSON.parse(json) as Action;
  } catch {
    return {};
  }
}

function withBlock(play: Play, block: WireEvent["content_block"]): Play {
  if (block?.type === "server_tool_use") return { ...play, steps: [...play.steps, `${block.name ?? ""}:`] };
  const { content } = block ?? {};
  const code =
    typeof content === "object" && content !== null && !Array.isArray(content)
      ? (content as { error_code?: string }).error_code
      : undefined;
  return code === undefined ? play : { ...play, steps: [...play.steps, code] };
}

function withItem(play: Play, item: WireEvent["item"]): Play {
  if (item?.action === undefined) return play;
  const what = item.action.type === "open_page" ? "open_page" : item.type.replace(/_call$/, "");
  const failed = item.status === "failed" ? " (failed)" : "";
  return {
    ...play,
    steps: [...play.steps, `${what}: ${item.action.query ?? item.action.url ?? ""}${failed}`],
  };
}

function withCitation(play: Play, url: string | undefined, title: string | undefined): Play {
  if (url === undefined || play.citations.some((known) => known.url === url)) return play;
  return { ...play, citations: [...play.citations, { url, title: title ?? url }] };
}
