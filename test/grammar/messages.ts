/**
 * The legal Messages stream (dialects.md §C1). Each check names what an SDK does without it.
 *
 *   start: message_start ─> between: content_block_start ─> in block: delta* content_block_stop ─> between
 *   between ─> message_delta ─> ending: message_stop ─> over        anywhere: error ─> over
 */
import { Faults, fieldsOf, framesOf, isCount, isId, isJsonObject, isText, json } from "./sse.ts";
import type { Fields, Frame } from "./sse.ts";

type State = "start" | "between" | "in block" | "ending" | "over";

const deltaOf: Record<string, readonly string[]> = {
  text: ["text_delta", "citations_delta"],
  thinking: ["thinking_delta", "signature_delta"],
  tool_use: ["input_json_delta"],
  server_tool_use: ["input_json_delta"],
  redacted_thinking: [],
  web_search_tool_result: [],
  web_fetch_tool_result: [],
};

/** What is wrong with a stream; empty when it is legal. `end`: how it has to end. */
export function messagesFaults(stream: string, end: "message" | "error" | "either" = "message"): string[] {
  const grammar = new MessagesGrammar();
  for (const frame of framesOf(stream)) grammar.step(frame);
  return grammar.end(end);
}

class MessagesGrammar {
  readonly #faults = new Faults();
  #state: State = "start";
  #index = 0;
  #block: Fields = {};
  #json = "";
  #signed = false;
  #failed = false;

  step(frame: Frame): void {
    const { check } = this.#checks();
    const data = fieldsOf(json(frame.data));
    check(
      frame.event !== "" && frame.event === data["type"],
      `event "${frame.event}" is not its data's type`,
    );
    check(this.#state !== "over", `${frame.event} after the end`);
    switch (frame.event) {
      case "message_start":
        check(this.#state === "start", "a second message_start (JS throws)");
        this.#message(fieldsOf(data["message"]));
        this.#state = "between";
        return;
      case "content_block_start":
        check(this.#state === "between", `a block starts in state "${this.#state}"`);
        check(
          data["index"] === this.#index,
          `index ${String(data["index"])}, not ${this.#index} (JS loses text)`,
        );
        this.#blockStart(fieldsOf(data["content_block"]));
        return;
      case "content_block_delta":
        check(this.#state === "in block" && data["index"] === this.#index, "a delta outside its block");
        this.#delta(fieldsOf(data["delta"]));
        return;
      case "content_block_stop":
        check(this.#state === "in block" && data["index"] === this.#index, "a stop outside its block");
        this.#blockStop();
        return;
      case "message_delta":
        check(this.#state === "between", `message_delta in state "${this.#state}"`);
        this.#messageDelta(data);
        this.#state = "ending";
        return;
      case "message_stop":
        check(this.#state === "ending", "message_stop without message_delta (stop_reason null)");
        this.#state = "over";
        return;
      case "ping":
        check(this.#state !== "start", "ping before message_start");
        return;
      case "error": {
        const error = fieldsOf(data["error"]);
        check(isId(error["type"]) && isId(error["message"]), "an error without type or message");
        this.#failed = true;
        this.#state = "over";
        return;
      }
      default:
        check(false, `unknown event ${frame.event} (AI rejects)`);
    }
  }

  end(expected: "message" | "error" | "either"): string[] {
    const { check } = this.#checks();
    check(this.#state === "over", `the stream stops in state "${this.#state}"`);
    if (expected !== "either") check(this.#failed === (expected === "error"), `does not end in ${expected}`);
    return this.#faults.list;
  }

  #checks() {
    return { check: (holds: boolean, fault: string) => this.#faults.check(holds, fault) };
  }

  #message(message: Fields): void {
    const { check } = this.#checks();
    check(isId(message["id"]) && isId(message["model"]), "message without id or model");
    check(message["type"] === "message" && message["role"] === "assistant", "message without type or role");
    check(Array.isArray(message["content"]) && message["content"].length === 0, "message.content is not []");
    check(message["stop_reason"] === null && message["stop_sequence"] === null, "stop fields are not null");
    const usage = fieldsOf(message["usage"]);
    check(isCount(usage["input_tokens"]) && isCount(usage["output_tokens"]), "usage without numbers (crash)");
  }

  #blockStart(block: Fields): void {
    const { check } = this.#checks();
    const type = String(block["type"]);
    check(type in deltaOf, `unknown block ${type} (AI rejects)`);
    if (type === "text") check(block["text"] === "", "a text block does not start empty");
    if (type === "thinking")
      check(block["thinking"] === "" && isText(block["signature"]), 'thinking starts "undefined"');
    if (type === "tool_use" || type === "server_tool_use") {
      check(isId(block["id"]) && isId(block["name"]), "a tool call without id or name");
      check(JSON.stringify(block["input"]) === "{}", "a tool call does not start with {}");
    }
    if (type === "redacted_thinking") check(isId(block["data"]), "redacted thinking without data");
    if (type.endsWith("_tool_result"))
      check(isId(block["tool_use_id"]) && typeof block["content"] === "object", "a result that is not whole");
    this.#block = block;
    this.#json = "";
    this.#signed = false;
    this.#state = "in block";
  }

  #delta(delta: Fields): void {
    const { check } = this.#checks();
    const kind = String(delta["type"]);
    check(
      (deltaOf[String(this.#block["type"])] ?? []).includes(kind),
      `${kind} in a ${String(this.#block["type"])} block`,
    );
    check(!this.#signed, "a delta after the signature");
    if (kind === "text_delta") check(isText(delta["text"]), "text_delta without text");
    if (kind === "thinking_delta") check(isText(delta["thinking"]), "thinking_delta without thinking");
    if (kind === "signature_delta") {
      check(isId(delta["signature"]), "signature_delta without signature");
      this.#signed = true;
    }
    if (kind === "input_json_delta") {
      check(isText(delta["partial_json"]), "input_json_delta without partial_json");
      this.#json += String(delta["partial_json"]);
    }
  }

  #blockStop(): void {
    const { check } = this.#checks();
    const type = this.#block["type"];
    if (type === "tool_use" || type === "server_tool_use")
      check(isJsonObject(this.#json), `arguments are no JSON object: ${this.#json}`);
    this.#state = "between";
    this.#index += 1;
  }

  #messageDelta(data: Fields): void {
    const { check } = this.#checks();
    const delta = fieldsOf(data["delta"]);
    check(isId(delta["stop_reason"]) && "stop_sequence" in delta, "message_delta without stop fields");
    check(
      isCount(fieldsOf(data["usage"])["output_tokens"]),
      "message_delta without usage.output_tokens (crash)",
    );
  }
}
