/**
 * The legal Chat stream (dialects.md §C2, service.md "Streams").
 *
 *   start: role chunk ─> deltas ─> [annotations] ─> finish_reason ─> [usage chunk] ─> [DONE] ─> over
 *   anywhere before the finish: error chunk ─> over, without [DONE]
 */
import { Faults, fieldsOf, framesOf, isCount, isId, isJsonObject, isText, json } from "./sse.ts";
import type { Fields, Frame } from "./sse.ts";

type State = "start" | "deltas" | "annotated" | "finished" | "used" | "over";

const finishReasons = ["stop", "length", "tool_calls", "content_filter", "function_call"];

/** What is wrong with a stream; empty when it is legal. */
export function chatFaults(
  stream: string,
  options: { end?: "done" | "error" | "either"; includeUsage?: boolean } = {},
): string[] {
  const grammar = new ChatGrammar(options.includeUsage ?? false);
  for (const frame of framesOf(stream)) grammar.step(frame);
  return grammar.end(options.end ?? "done");
}

class ChatGrammar {
  readonly #faults = new Faults();
  readonly #includeUsage: boolean;
  #state: State = "start";
  #same: string | null = null;
  readonly #arguments: string[] = [];
  #failed = false;

  constructor(includeUsage: boolean) {
    this.#includeUsage = includeUsage;
  }

  step(frame: Frame): void {
    this.#check(frame.event === "", `an event with a name: ${frame.event}`);
    this.#check(this.#state !== "over", "data after the end");
    if (frame.data === "[DONE]") return this.#done();
    const chunk = fieldsOf(json(frame.data));
    if ("error" in chunk) return this.#error(fieldsOf(chunk["error"]));
    this.#head(chunk);
    const choices = chunk["choices"];
    this.#check(Array.isArray(choices), "choices is not an array (not iterable)");
    if (Array.isArray(choices) && choices.length > 0) {
      if (this.#includeUsage) this.#check(chunk["usage"] === null, "usage is not null before its chunk");
      this.#check(choices.length === 1, "more than one choice");
      this.#choice(fieldsOf(choices[0]));
    } else this.#usage(fieldsOf(chunk["usage"]));
  }

  end(expected: "done" | "error" | "either"): string[] {
    this.#check(this.#state === "over", `the stream stops in state "${this.#state}"`);
    if (expected !== "either")
      this.#check(this.#failed === (expected === "error"), `does not end in ${expected}`);
    return this.#faults.list;
  }

  #check(holds: boolean, fault: string): void {
    this.#faults.check(holds, fault);
  }

  #head(chunk: Fields): void {
    this.#check(chunk["object"] === "chat.completion.chunk", "object is not chat.completion.chunk");
    this.#check(
      isId(chunk["id"]) && isId(chunk["model"]) && isCount(chunk["created"]),
      "a chunk without head",
    );
    const head = JSON.stringify([chunk["id"], chunk["model"], chunk["created"]]);
    this.#same ??= head;
    this.#check(this.#same === head, "id, model or created changes");
  }

  #choice(choice: Fields): void {
    this.#check(choice["index"] === 0, "no choices[].index (throws)");
    this.#check(
      "logprobs" in choice && "finish_reason" in choice,
      "a choice without logprobs or finish_reason",
    );
    const delta = fieldsOf(choice["delta"]);
    if (this.#state === "start") {
      this.#check(delta["role"] === "assistant", 'the first chunk has no role ("missing role")');
      this.#state = "deltas";
    } else this.#check(!("role" in delta), "the role comes again");
    if (choice["finish_reason"] !== null) return this.#finish(choice, delta);
    this.#check(this.#state === "deltas", `a delta in state "${this.#state}"`);
    this.#check(Object.keys(delta).length > 0, "an empty delta");
    for (const field of ["content", "reasoning_content"])
      if (field in delta) this.#check(isText(delta[field]), `${field} is not text`);
    if ("annotations" in delta) this.#annotations(delta["annotations"]);
    if ("function_call" in delta) this.#functionCall(fieldsOf(delta["function_call"]));
    if ("tool_calls" in delta) this.#toolCalls(delta["tool_calls"]);
  }

  #annotations(annotations: unknown): void {
    this.#check(Array.isArray(annotations) && annotations.length > 0, "no annotations in their chunk");
    this.#state = "annotated";
  }

  #toolCalls(calls: unknown): void {
    this.#check(Array.isArray(calls) && calls.length > 0, "tool_calls is empty");
    for (const value of Array.isArray(calls) ? (calls as unknown[]) : []) {
      const call = fieldsOf(value);
      const called = fieldsOf(call["function"]);
      const index = call["index"];
      this.#check(isCount(index), "a tool call without index (O7 throws)");
      if (index === this.#arguments.length) {
        this.#check(call["type"] === "function", "the first delta of a call has no type (throws)");
        this.#check(isId(call["id"]) && isId(called["name"]), "the first delta of a call has no id or name");
        this.#arguments.push("");
      } else this.#check(!("id" in call) && !("name" in called), "a call begins twice");
      this.#check(isText(called["arguments"]), "a tool call delta without arguments");
      this.#check(index === this.#arguments.length - 1, "tool calls interleave or leave an index out");
      this.#arguments.push((this.#arguments.pop() ?? "") + String(called["arguments"]));
    }
  }

  /** The form before tools: one call, its name first. */
  #functionCall(called: Fields): void {
    this.#check(isText(called["arguments"]), "a function_call delta without arguments");
    this.#check("name" in called === (this.#arguments.length === 0), "function_call names itself too often");
    this.#arguments.push((this.#arguments.pop() ?? "") + String(called["arguments"]));
  }

  #finish(choice: Fields, delta: Fields): void {
    this.#check(this.#state === "deltas" || this.#state === "annotated", "a second finish_reason");
    const reason = String(choice["finish_reason"]);
    this.#check(finishReasons.includes(reason), `unknown finish_reason ${reason}`);
    this.#check(Object.keys(delta).length === 0, "the last chunk has a delta");
    this.#check(!reason.endsWith("_call") || this.#arguments.length === 1, "function_call without one");
    this.#check(reason !== "tool_calls" || this.#arguments.length > 0, "tool_calls without any");
    for (const args of this.#arguments)
      this.#check(isJsonObject(args), `arguments are no JSON object: ${args}`);
    this.#state = "finished";
  }

  #usage(usage: Fields): void {
    this.#check(this.#includeUsage, "a usage chunk that nobody asked for");
    this.#check(this.#state === "finished", "usage before finish_reason");
    for (const field of ["prompt_tokens", "completion_tokens", "total_tokens"])
      this.#check(isCount(usage[field]), `usage without ${field}`);
    this.#state = "used";
  }

  #done(): void {
    this.#check(
      this.#state === (this.#includeUsage ? "used" : "finished"),
      `[DONE] in state "${this.#state}"`,
    );
    this.#state = "over";
  }

  #error(error: Fields): void {
    this.#check(isId(error["message"]) && isId(error["type"]), "an error without message or type");
    this.#check("code" in error && "param" in error, "an error without code or param");
    this.#failed = true;
    this.#state = "over";
  }
}
