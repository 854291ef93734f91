/**
 * Builds the hub's conversation out of Chat messages or Responses items: a call's results stand in the user turn
 * right after the call, all of them first, in one message, as Messages wants them; and checks that no call is
 * without a result and no result without a call (rule 2.7).
 */
import { ApiError } from "../lib/api-error.ts";
import { aliasOfId, aliasOfName } from "./alias.ts";
import { behindBlankLine } from "./blank-line.ts";
import { fieldError, type PathStyle } from "./cursor.ts";
import type { ContentBlockParam, MessageParam, ToolResultBlock, ToolUseBlock } from "./messages/types.ts";

/** Most characters of a client's own id that a refusal repeats, and most ids. */
const SHOWN_CHARACTERS = 100;
const SHOWN_IDS = 20;
const shown = (id: string): string => id.slice(0, SHOWN_CHARACTERS);

/** The wording that Claude Code looks for (dialects.md §D1). */
function missingResults(path: string, ids: readonly string[]): ApiError {
  return new ApiError(
    "invalid_request",
    `${path}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${ids.slice(0, SHOWN_IDS).map(shown).join(", ")}. ` +
      "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
    { param: path },
  );
}

/** Replaces names and ids that not every dialect accepts by aliases, and remembers the originals. */
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

/** A turn and the results of its calls, which are written right after it, wherever the client sent them. */
interface Turn {
  readonly message: MessageParam;
  readonly results: ToolResultBlock[];
  /** Whether something was left out after the turn's last block. */
  hasGap: boolean;
}

interface Call {
  readonly turn: Turn;
  /** The id in the hub. */
  readonly id: string;
  readonly clientId: string;
  readonly path: string;
  answered: boolean;
}

export class ConversationBuilder {
  readonly #turns: Turn[] = [];
  readonly #leading: string[] = [];
  /** The latest call of each client id. Some providers begin again at `call_0` each turn. */
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
    if (this.#turns.length === 0) this.#leading.push(text);
    else this.#begin({ role: "system", content: text });
  }

  user(content: string | ContentBlockParam[]): void {
    this.#begin({ role: "user", content });
  }

  /** Begins an assistant turn. */
  assistant(content: ContentBlockParam[]): void {
    this.#begin({ role: "assistant", content });
  }

  /** Adds a block to the open assistant turn, or begins one. */
  continueAssistant(block: ContentBlockParam): void {
    const open = this.#openTurn;
    if (open === null) return this.assistant([block]);
    const { turn, content } = open;
    if (block.type !== "text" || !turn.hasGap) {
      content.push(block);
      return;
    }
    turn.hasGap = false;
    const before = content.findLast((said) => said.type === "text");
    content.push({ ...block, text: behindBlankLine(before?.text, block.text) });
  }

  /** Notes that something was left out here: a blank line parts the texts around it. */
  leaveOut(): void {
    const open = this.#openTurn;
    if (open !== null) open.turn.hasGap = true;
  }

  /** The last turn, if it is an assistant's without results. */
  get #openTurn(): { readonly turn: Turn; readonly content: ContentBlockParam[] } | null {
    const turn = this.#turns.at(-1);
    if (turn?.message.role !== "assistant" || turn.results.length > 0) return null;
    const { content } = turn.message;
    return typeof content === "string" ? null : { turn, content };
  }

  /** Adds a tool call to the last assistant turn. `path`: of the call, for a refusal. */
  call(clientId: string, name: string, input: ToolUseBlock["input"], path: string): void {
    if (this.#calls.get(clientId)?.answered === false)
      throw fieldError(this.#style, path, `the tool call id ${shown(clientId)} is used twice`);
    const uses = (this.#idsGiven.get(clientId) ?? 0) + 1;
    this.#idsGiven.set(clientId, uses);
    // Messages upstreams refuse an id that occurs twice in a conversation.
    const id = uses === 1 ? this.#aliases.id(clientId) : aliasOfId(`${clientId} ${uses}`);
    this.continueAssistant({ type: "tool_use", id, name, input });
    const turn = this.#turns.at(-1);
    if (turn === undefined) return;
    const call = { turn, id, clientId, path, answered: false };
    this.#calls.set(clientId, call);
    this.#unanswered.add(call);
  }

  /** Adds a tool call's result. `path`: of the field that names the call. */
  result(clientId: string, content: ToolResultBlock["content"], path: string): void {
    const call = this.#calls.get(clientId);
    const id = shown(clientId);
    if (call === undefined)
      throw fieldError(this.#style, path, `there is no tool call with the id ${id} before this result`);
    if (call.answered) throw fieldError(this.#style, path, `the tool call ${id} already has a result`);
    call.answered = true;
    this.#unanswered.delete(call);
    call.turn.results.push({
      type: "tool_result",
      tool_use_id: call.id,
      ...(content !== undefined && { content }),
    });
  }

  #begin(message: MessageParam): void {
    this.#turns.push({ message, results: [], hasGap: false });
  }

  /** @throws ApiError when a call has no result. */
  finish(): { readonly system: string | undefined; readonly messages: MessageParam[] } {
    const [first] = this.#unanswered;
    if (first !== undefined)
      throw missingResults(
        first.path,
        Array.from(this.#unanswered, ({ clientId }) => clientId),
      );
    const messages: MessageParam[] = [];
    let results: readonly ToolResultBlock[] = [];
    for (const turn of this.#turns) {
      const { role, content } = turn.message;
      // What a user says right after tool results belongs into the same message.
      if (results.length > 0 && role === "user")
        messages.push({ role, content: [...results, ...blocksOf(content)] });
      else {
        if (results.length > 0) messages.push({ role: "user", content: [...results] });
        messages.push(turn.message);
      }
      results = turn.results;
    }
    if (results.length > 0) messages.push({ role: "user", content: [...results] });
    return { system: this.#leading.length === 0 ? undefined : this.#leading.join("\n"), messages };
  }
}

const blocksOf = (content: MessageParam["content"]): readonly ContentBlockParam[] =>
  typeof content === "string" ? [{ type: "text", text: content }] : content;

/**
 * Checks the same for a conversation in Messages form, where neighbouring turns of one role count as one and a system
 * turn between a call and its results is skipped. Two calls without results may not share an id.
 * @param owed ids of calls that may be without a result, one call each.
 * @throws ApiError naming the message.
 */
export function checkToolResults(messages: readonly MessageParam[], owed: Iterable<string> = []): void {
  const open = new Set<string>();
  const excused = new Set(owed);
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
    // Two assistant turns in a row count as one; before any other one the calls must have their results.
    if (open.size > 0 && messages[index - 1]?.role !== "assistant")
      throw missingResults(`messages.${callsAt}`, [...open]);
    for (const [place, block] of blocks.entries()) {
      if (block.type !== "tool_use" || excused.delete(block.id)) continue;
      if (open.has(block.id)) throw usedTwice(`messages.${index}.content.${place}`, block.id);
      open.add(block.id);
    }
    callsAt = index;
  });
  if (open.size > 0) throw missingResults(`messages.${callsAt}`, [...open]);
}

const usedTwice = (path: string, id: string): ApiError =>
  fieldError(
    "messages",
    path,
    `\`tool_use\` ids must be unique: ${shown(id)} is used twice`,
    "invalid_request",
  );

const unexpectedResult = (path: string, id: string): ApiError =>
  fieldError(
    "messages",
    path,
    `unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${shown(id)}. Each \`tool_result\` block must have ` +
      "a corresponding `tool_use` block in the previous message.",
    "invalid_request",
  );
