/** Functions and the choice among them for Chat and Responses, which differ only in how one of them is written. */
import type { Carry } from "./codecs.ts";
import type { DropListener } from "./drop-listener.ts";
import type { FunctionTool, JsonObject, MessagesRequest, ToolChoice } from "./messages/types.ts";
import { completeSchema, strictSchema } from "./schemas.ts";
import { functionTools } from "./upstream-checks.ts";

export interface FunctionForms {
  /** A declaration. */
  tool(tool: FunctionTool): JsonObject;
  /** The choice of this function. */
  choice(name: string): JsonObject;
}

/** @throws ApiError `unsupported_tool` for a typed tool. */
export function writeTools(
  request: MessagesRequest,
  carry: Carry,
  notes: DropListener,
  forms: FunctionForms,
): JsonObject {
  const tools = functionTools(request, carry, notes);
  if (tools.length === 0) return {};
  const { tool_choice } = request;
  return {
    tools: tools.map((tool) => forms.tool(complete(withStrict(tool, carry, notes)))),
    ...(tool_choice && writeChoice(tool_choice, forms)),
  };
}

function complete(tool: FunctionTool): FunctionTool {
  const schema = completeSchema(tool.input_schema);
  return schema === tool.input_schema ? tool : { ...tool, input_schema: schema };
}

/** Messages keeps `strict` for schemas too with which OpenAI's strict mode would refuse the request. */
function withStrict(tool: FunctionTool, carry: Carry, notes: DropListener): FunctionTool {
  if (carry.dialect !== "messages" || tool.strict !== true) return tool;
  const schema = strictSchema(tool.input_schema, "tools.input_schema", notes);
  if (schema !== null) return { ...tool, input_schema: schema };
  notes.dropped("tools.strict");
  return { ...tool, strict: false };
}

function writeChoice(choice: ToolChoice, forms: FunctionForms): JsonObject {
  if (choice.type === "none") return { tool_choice: "none" };
  const parallel =
    choice.disable_parallel_tool_use === undefined
      ? {}
      : { parallel_tool_calls: !choice.disable_parallel_tool_use };
  if (choice.type === "tool") return { tool_choice: forms.choice(choice.name), ...parallel };
  return { tool_choice: choice.type === "any" ? "required" : "auto", ...parallel };
}
