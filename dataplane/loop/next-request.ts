/** Makes the request of a loop's next call from the one that the loop began with. Pure. */
import type { Dialect } from "../dialects/dialect.ts";
import type {
  JsonValue,
  MessageParam,
  MessagesRequest,
  ToolChoice,
  ToolResultBlock,
} from "../dialects/messages/types.ts";
import { addResults } from "./add-results.ts";
import { withInstruction } from "./instruction.ts";
import type { IterationReader } from "./iteration-reader.ts";

/** A turn of the model and the results of its calls; the turn is empty where the calls are in the conversation already. */
export interface AddedTurn {
  readonly turn: IterationReader["blocks"];
  readonly results: readonly ToolResultBlock[];
}

/** What the next call adds. Plain data: the request itself may be in another thread. */
export interface NextCall {
  readonly added: readonly AddedTurn[];
  readonly maxTokens: number;
  readonly toolChoice: ToolChoice | undefined;
  /** Whether the model is instructed to cite by links. */
  readonly instructed: boolean;
}

/** A Messages upstream cites by itself; any other must write links for a Messages client to get citations. */
export const isInstructed = (client: Dialect, target: Dialect | undefined): boolean =>
  client !== "messages" || (target !== undefined && target !== "messages");

/** Writes the request with the conversation so far. */
export function nextRequest(first: MessagesRequest, next: NextCall): MessagesRequest {
  const { tool_choice: _choice, ...rest } = first;
  const { added, maxTokens, toolChoice, instructed } = next;
  return {
    ...rest,
    messages: added.reduce(withTurn, [...first.messages]),
    max_tokens: maxTokens,
    ...(toolChoice === undefined ? {} : { tool_choice: toolChoice }),
    ...(instructed ? { system: withInstruction(first.system) } : {}),
  };
}

function withTurn(before: MessageParam[], { turn, results }: AddedTurn): MessageParam[] {
  const messages = before as unknown as JsonValue[];
  if (turn.length > 0) messages.push({ role: "assistant", content: turn as unknown as JsonValue[] });
  return (results.length > 0 ? addResults(messages, results) : messages) as unknown as MessageParam[];
}
