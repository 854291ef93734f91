/** The instruction that the loop adds to a system prompt (service.md "Citations in Responses and Chat"). Pure. */
import { INSTRUCTION_MARK } from "../dialects/instructions.ts";
import type { MessagesRequest } from "../dialects/messages/types.ts";

const INSTRUCTION =
  `${INSTRUCTION_MARK} When your answer uses something that a tool returned, cite it with a markdown link ` +
  "of the form [title](url), with the exact URL that the tool gave.";

/** Adds the instruction to cite by links, once. */
export function withInstruction(system: MessagesRequest["system"]): NonNullable<MessagesRequest["system"]> {
  if (system === undefined || system === "") return INSTRUCTION;
  if (typeof system === "string")
    return system.includes(INSTRUCTION_MARK) ? system : `${system}\n\n${INSTRUCTION}`;
  if (system.some((block) => block.text.includes(INSTRUCTION_MARK))) return system;
  return [...system, { type: "text", text: INSTRUCTION }];
}
