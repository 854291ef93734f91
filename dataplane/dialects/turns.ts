/**
 * Builds the hub's conversation out of Chat messages or Responses items: a call's results stand in the user turn
 * right after the call, all of them first, in one message, as Messages wants them; and checks that no call is
 * without a result and no result without a call (rule 2.7).
 */
import { ApiError } from "../lib/api-error.ts";
import { aliasOfId, aliasOfName } from "./alias.ts";
import { fieldError, type PathStyle } from "./cursor.ts";
import type { ContentBlockParam, MessageParam, ToolResultBlock, ToolUseBlock } from "./messages/types.ts";

/** The wording that Claude Code looks for (dialects.md §D1). */
export function missingResults(path: string, ids: readonly string[]): ApiError {
  return new ApiError(
    "invalid_request",
    `${path}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${ids.join(", ")}. ` +
      "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
    { param: path },
  );
}

/** Replaces odd names and ids by aliases and remembers whose they are. */
export class Aliases {
  /** Alias → the client's own. */
  readonly originals = new Map<string, string>();

  name(original: string): string {
    return this.#remember(aliasOfName(original), original);
  }

  id(original: string): string {
    return this.#remember(aliasOfId(original), original);
  }

  #remember(alias: string, original: string): string {
    if (alias !== original) this.originals.set(alias, original);
    return alias;
  }
}

interface Call {
  readonly turn: MessageParam;
  /** The id in the hub. */
  readonly id: string;
  readonly clientId: string;
  readonly path: string;
  answered: boolean;
}

export class Turns {
  readonly #messages: MessageParam[] = [];
  readonly #leading: string[] = [];
  /** By the client's own id: the latest call of that id. Some providers begin again at `call_0` each turn. */
  readonly #calls = new Map<string, Call>();
  readonly #unanswered = new Set<Call>();
  readonly #idsGiven = new Map<string, number>();
  readonly #style: PathStyle;
  readonly #aliases: Aliases;

  constructor(style: PathStyle, aliases: Aliases) {
    this.#style = style;
    this.#aliases = aliases;
  }

  /** A system or developer message: hoisted while it leads, in place afterwards. */
  instructions(text: string): void {
    if (this.#messages.length === 0) this.#leading.push(text);
    else this.#messages.push({ role: "system", content: text });
  }

  user(content: string | ContentBlockParam[]): void {
    const last = this.#messages.at(-1);
    // What a user says right after tool results belongs into the same message.
    if (last?.role === "user" && Array.isArray(last.content) && last.content.at(-1)?.type === "tool_result") {
      last.content.push(
        ...(typeof content === "string" ? [{ type: "text" as const, text: content }] : content),
      );
    } else this.#messages.push({ role: "user", content });
  }

  /** Begins an assistant turn. */
  assistant(content: string | ContentBlockParam[]): void {
    this.#messages.push({ role: "assistant", content });
  }

  /** Adds to the assistant turn that is last, or begins one. */
  continueAssistant(...blocks: ContentBlockParam[]): void {
    const last = this.#messages.at(-1);
    if (last?.role === "assistant" && Array.isArray(last.content)) last.content.push(...blocks);
    else this.assistant(blocks);
  }

  /** A tool call at the end of the last assistant turn. `path`: of the call, for a refusal. */
  call(clientId: string, name: string, input: ToolUseBlock["input"], path: string): void {
    if (this.#calls.get(clientId)?.answered === false)
      throw fieldError(this.#style, path, `the tool call id ${clientId} is used twice`);
    const uses = (this.#idsGiven.get(clientId) ?? 0) + 1;
    this.#idsGiven.set(clientId, uses);
    // Messages upstreams refuse an id that occurs twice in a conversation.
    const id = uses === 1 ? this.#aliases.id(clientId) : aliasOfId(`${clientId} ${uses}`);
    this.continueAssistant({ type: "tool_use", id, name, input });
    const turn = this.#messages.at(-1);
    if (turn === undefined) return;
    const call = { turn, id, clientId, path, answered: false };
    this.#calls.set(clientId, call);
    this.#unanswered.add(call);
  }

  /** A tool call's result. `path`: of the field that names the call. */
  result(clientId: string, content: ToolResultBlock["content"], path: string): void {
    const call = this.#calls.get(clientId);
    if (call === undefined)
      throw fieldError(this.#style, path, `there is no tool call with the id ${clientId} before this result`);
    if (call.answered) throw fieldError(this.#style, path, `the tool call ${clientId} already has a result`);
    call.answered = true;
    this.#unanswered.delete(call);
    const block: ToolResultBlock = {
      type: "tool_result",
      tool_use_id: call.id,
      ...(content !== undefined && { content }),
    };
    this.#insertResult(call.turn, block);
  }

  #insertResult(calling: MessageParam, block: ToolResultBlock): void {
    const index = this.#messages.lastIndexOf(calling) + 1;
    const next = this.#messages[index];
    if (next?.role !== "user") {
      this.#messages.splice(index, 0, { role: "user", content: [block] });
      return;
    }
    if (typeof next.content === "string") next.content = [{ type: "text", text: next.content }];
    const firstOther = next.content.findIndex(({ type }) => type !== "tool_result");
    next.content.splice(firstOther < 0 ? next.content.length : firstOther, 0, block);
  }

  /** @throws ApiError when a call has no result. */
  finish(): { readonly system: string | undefined; readonly messages: MessageParam[] } {
    const [first] = this.#unanswered;
    if (first !== undefined)
      throw missingResults(
        first.path,
        Array.from(this.#unanswered, ({ clientId }) => clientId),
      );
    return {
      system: this.#leading.length === 0 ? undefined : this.#leading.join("\n"),
      messages: this.#messages,
    };
  }
}

/**
 * The same check for a conversation that already is in Messages form, where neighbouring turns of one role count
 * as one and a system turn between a call and its results is neither. @throws ApiError naming the message.
 */
export function checkToolResults(messages: readonly MessageParam[]): void {
  const open = new Set<string>();
  let callsAt = 0;
  messages.forEach((message, index) => {
    if (message.role === "system") return;
    const blocks = typeof message.content === "string" ? [] : message.content;
    if (message.role === "user") {
      for (const [place, block] of blocks.entries())
        if (block.type === "tool_result" && !open.delete(block.tool_use_id))
          throw unexpectedResult(`messages.${index}.content.${place}`, block.tool_use_id);
      return;
    }
    const calls = blocks.flatMap((block) => (block.type === "tool_use" ? [block.id] : []));
    // Two assistant turns in a row are one; anything else has closed the calls before it.
    if (open.size > 0 && messages[index - 1]?.role !== "assistant")
      throw missingResults(`messages.${callsAt}`, [...open]);
    for (const id of calls) open.add(id);
    callsAt = index;
  });
  if (open.size > 0) throw missingResults(`messages.${callsAt}`, [...open]);
}

const unexpectedResult = (path: string, id: string): ApiError =>
  fieldError(
    "messages",
    path,
    `unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${id}. Each \`tool_result\` block must have ` +
      "a corresponding `tool_use` block in the previous message.",
    "invalid_request",
  );
