/**
 * The legal Responses stream (dialects.md §C3, service.md "Streams").
 *
 *   start: response.created, response.in_progress ─> items ─> completed | incomplete ─> over
 *   each item: output_item.added ─> its own events ─> output_item.done      anywhere: error ─> over
 */
import { isDeepStrictEqual } from "node:util";
import { Faults, fieldsOf, framesOf, isCount, isId, isJsonObject, isText, json } from "./sse.ts";
import type { Fields, Frame } from "./sse.ts";

interface OpenPart {
  readonly index: number;
  text: string;
  annotations: unknown[];
  state: "deltas" | "annotated" | "text done";
}

interface OpenItem {
  readonly added: Fields;
  /** Finished content or summary parts. */
  readonly parts: unknown[];
  part: OpenPart | null;
  json: string;
  jsonDone: boolean;
  /** `in_progress`, `searching`, `completed` of a web_search_call, in that order. */
  readonly steps: string[];
}

/** What the published schema requires of a response. */
const requiredFields =
  "id object created_at status error incomplete_details instructions metadata model output parallel_tool_calls temperature top_p tool_choice tools".split(
    " ",
  );

type State = "start" | "created" | "items" | "over";

/** What is wrong with a stream; empty when it is legal. */
export function responsesFaults(stream: string, end: "response" | "error" | "either" = "response"): string[] {
  const grammar = new ResponsesGrammar();
  for (const frame of framesOf(stream)) grammar.step(frame);
  return grammar.end(end);
}

class ResponsesGrammar {
  readonly #faults = new Faults();
  #state: State = "start";
  #sequence = 0;
  #head: Fields = {};
  readonly #open = new Map<number, OpenItem>();
  readonly #done: unknown[] = [];
  #added = 0;
  readonly #ids = new Set<string>();
  #failed = false;

  step(frame: Frame): void {
    const data = fieldsOf(json(frame.data));
    this.#check(frame.event !== "" && frame.event === data["type"], `event "${frame.event}" is not its type`);
    this.#check(data["sequence_number"] === this.#sequence, `sequence_number is not ${this.#sequence}`);
    this.#sequence += 1;
    this.#check(this.#state !== "over", `${frame.event} after the end`);
    const type = frame.event.replace(/^response\./, "");
    if (frame.event === "error") return this.#error(data);
    if (type === "created" || type === "in_progress") return this.#begin(type, fieldsOf(data["response"]));
    this.#check(this.#state === "items", `${type} in state "${this.#state}"`);
    if (type === "completed" || type === "incomplete" || type === "failed")
      return this.#terminal(type, fieldsOf(data["response"]));
    if (type === "output_item.added") return this.#itemAdded(data);
    this.#itemEvent(type, data);
  }

  end(expected: "response" | "error" | "either"): string[] {
    this.#check(this.#state === "over", `the stream stops in state "${this.#state}"`);
    if (expected !== "either")
      this.#check(this.#failed === (expected === "error"), `does not end in ${expected}`);
    return this.#faults.list;
  }

  #check(holds: boolean, fault: string): void {
    this.#faults.check(holds, fault);
  }

  #begin(type: string, response: Fields): void {
    this.#check(
      this.#state === (type === "created" ? "start" : "created"),
      `${type} in state "${this.#state}"`,
    );
    this.#state = type === "created" ? "created" : "items";
    this.#response(response);
    this.#check(
      response["status"] === "in_progress" && response["usage"] === null,
      "does not begin in_progress",
    );
    this.#check(JSON.stringify(response["output"]) === "[]", "output is not [] (O6, Python crash)");
    this.#head = response;
  }

  #response(response: Fields): void {
    for (const field of requiredFields) this.#check(field in response, `response without ${field}`);
  }

  #itemAdded(data: Fields): void {
    const item = fieldsOf(data["item"]);
    this.#check(data["output_index"] === this.#added, `output_index is not ${this.#added}`);
    this.#check(isId(item["id"]) && isId(item["type"]), "an item without id or type");
    this.#check(!this.#ids.has(String(item["id"])), "an id that was there already");
    this.#ids.add(String(item["id"]));
    if (item["type"] === "message")
      this.#check(
        item["role"] === "assistant" && JSON.stringify(item["content"]) === "[]",
        "message not empty",
      );
    if (item["type"] === "function_call")
      this.#check(isId(item["call_id"]) && isId(item["name"]) && item["arguments"] === "", "call not empty");
    if (item["type"] === "reasoning") this.#check(JSON.stringify(item["summary"]) === "[]", "summary not []");
    if (String(item["type"]).endsWith("search_call"))
      this.#check(
        item["status"] === "in_progress" && !("sources" in fieldsOf(item["action"])),
        "a search that is not in progress, or has sources already",
      );
    this.#open.set(this.#added, {
      added: item,
      parts: [],
      part: null,
      json: "",
      jsonDone: false,
      steps: [],
    });
    this.#added += 1;
  }

  #itemEvent(type: string, data: Fields): void {
    const output = data["output_index"] as number;
    const item = this.#open.get(output);
    this.#check(item !== undefined, `${type} of an item that is not open`);
    if (item === undefined) return;
    if (type === "output_item.done") return this.#itemDone(output, item, fieldsOf(data["item"]));
    this.#check(data["item_id"] === item.added["id"], `${type} with another item_id`);
    const kind = type.split(".")[0] ?? "";
    if (kind === "web_search_call") return void item.steps.push(type.split(".")[1] ?? "");
    if (kind === "function_call_arguments") return this.#arguments(type, item, data);
    if (kind === "content_part" || kind === "output_text") {
      this.#check(item.added["type"] === "message", `${type} in a ${String(item.added["type"])}`);
      return this.#part(type, item, data, "content_index");
    }
    if (kind === "reasoning_summary_part" || kind === "reasoning_summary_text") {
      this.#check(item.added["type"] === "reasoning", `${type} in a ${String(item.added["type"])}`);
      return this.#part(type, item, data, "summary_index");
    }
    this.#check(false, `unknown event ${type} (JS throws)`);
  }

  #part(type: string, item: OpenItem, data: Fields, indexField: string): void {
    const index = data[indexField];
    const step = type.slice(type.indexOf(".") + 1);
    const isPart = type.startsWith("content_part") || type.startsWith("reasoning_summary_part");
    if (isPart && step === "added") {
      const part = fieldsOf(data["part"]);
      this.#check(item.part === null && index === item.parts.length, `${type} out of order`);
      this.#check(part["text"] === "", `${type} is not empty`);
      if (part["type"] === "output_text")
        this.#check(Array.isArray(part["annotations"]), "part.annotations missing (O6, O7 crash)");
      item.part = { index: item.parts.length, text: "", annotations: [], state: "deltas" };
      return;
    }
    const part = item.part;
    this.#check(part !== null && part.index === index, `${type} without its part (JS throws)`);
    if (part === null) return;
    if (isPart) {
      const whole = fieldsOf(data["part"]);
      this.#check(part.state === "text done" && whole["text"] === part.text, `${type} is not the whole part`);
      if ("annotations" in whole)
        this.#check(isDeepStrictEqual(whole["annotations"], part.annotations), "annotations differ");
      item.parts.push(whole);
      item.part = null;
    } else if (step === "delta") {
      this.#check(part.state === "deltas" && isText(data["delta"]), `${type} out of order`);
      if (type.startsWith("output_text"))
        this.#check(Array.isArray(data["logprobs"]), "delta without logprobs");
      part.text += String(data["delta"]);
    } else if (step === "annotation.added") {
      this.#check(part.state !== "text done", "an annotation after the text's end");
      this.#check(data["annotation_index"] === part.annotations.length, "annotation_index leaves a gap");
      part.annotations.push(data["annotation"]);
      part.state = "annotated";
    } else if (step === "done") {
      this.#check(part.state !== "text done" && data["text"] === part.text, `${type} is not the whole text`);
      part.state = "text done";
    } else this.#check(false, `unknown event ${type} (JS throws)`);
  }

  #arguments(type: string, item: OpenItem, data: Fields): void {
    this.#check(item.added["type"] === "function_call" && !item.jsonDone, `${type} out of order`);
    if (type.endsWith(".delta")) item.json += String(data["delta"]);
    else {
      this.#check(data["arguments"] === item.json, "arguments.done is not the sum of its deltas");
      item.jsonDone = true;
    }
  }

  #itemDone(output: number, item: OpenItem, done: Fields): void {
    this.#open.delete(output);
    this.#done[output] = done;
    for (const field of ["id", "type", "call_id", "name"])
      this.#check(done[field] === item.added[field], `${field} changes (O7 throws)`);
    this.#check(item.part === null, "an item closes before its part");
    if (done["type"] === "message")
      this.#check(isDeepStrictEqual(done["content"], item.parts), "content is not the sum of its parts");
    if (done["type"] === "reasoning")
      this.#check(isDeepStrictEqual(done["summary"], item.parts), "summary is not the sum of its parts");
    if (done["type"] === "function_call") {
      this.#check(
        item.jsonDone && done["arguments"] === item.json,
        "arguments are not the sum of their deltas",
      );
      this.#check(isJsonObject(done["arguments"]), "arguments are no JSON object");
    }
    if (done["type"] === "web_search_call") {
      const steps = ["in_progress", "searching", ...(done["status"] === "failed" ? [] : ["completed"])];
      this.#check(isDeepStrictEqual(item.steps, steps), `a search went ${item.steps.join(", ")}`);
    }
  }

  #terminal(type: string, response: Fields): void {
    this.#state = "over";
    this.#response(response);
    this.#check(response["status"] === type, `status is not ${type}`);
    this.#check(this.#open.size === 0, "an item is still open");
    this.#check(isDeepStrictEqual(response["output"], this.#done), "output is not the sum of the items");
    this.#check(response["id"] === this.#head["id"], "another response id");
    const usage = fieldsOf(response["usage"]);
    for (const field of ["input_tokens", "output_tokens", "total_tokens"])
      this.#check(isCount(usage[field]), `usage without ${field}`);
    if (type === "incomplete")
      this.#check(isId(fieldsOf(response["incomplete_details"])["reason"]), "incomplete without a reason");
  }

  #error(data: Fields): void {
    const nested = fieldsOf(data["error"]);
    this.#check(isId(data["message"]) && "code" in data && "param" in data, "an error that is not flat");
    this.#check(isId(nested["message"]) && isId(nested["type"]), "an error that is not nested (Python)");
    this.#failed = true;
    this.#state = "over";
  }
}
