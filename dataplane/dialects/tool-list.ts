/** Collects a Chat or Responses client's function tools and what its choice among them means in the hub. */
import type { Cursor } from "./cursor.ts";
import type { FunctionTool, JsonObject, MessagesRequest, ToolChoice } from "./messages/types.ts";
import { emptySchema } from "./schemas.ts";
import type { Aliases } from "./conversation-builder.ts";

/** A tool by the client's name for it, and the object that holds this as its `name`. */
interface NamedTool {
  readonly name: string;
  readonly at: Cursor;
}

interface Declaration {
  readonly description: string | undefined;
  readonly parameters: JsonObject | undefined;
  readonly strict: boolean | undefined;
}

export class ToolList {
  readonly #tools = new Map<string, FunctionTool>();
  readonly #aliases: Aliases;
  readonly #places: WeakMap<object, string>;

  /** @param places gets the path of each tool. */
  constructor(aliases: Aliases, places: WeakMap<object, string>) {
    this.#aliases = aliases;
    this.#places = places;
  }

  /** @returns the name in the hub. @throws ApiError when the name is taken. */
  add(clientName: string, { description, parameters, strict }: Declaration, at: Cursor): string {
    const name = this.#aliases.name(clientName);
    if (this.#tools.has(name)) at.fail("name", `there are two tools named ${clientName.slice(0, 100)}`);
    const tool: FunctionTool = {
      name,
      ...(description !== undefined && { description }),
      // `{}` means no parameters to OpenAI; Messages upstreams refuse a schema without a type.
      input_schema:
        parameters === undefined || Object.keys(parameters).length === 0 ? emptySchema() : parameters,
      ...(strict !== undefined && { strict }),
    };
    this.#tools.set(name, tool);
    this.#places.set(tool, at.path);
    return name;
  }

  /** One tool by the client's name for it. @throws ApiError when it is not declared. */
  one(clientName: string, at: Cursor, field: string): ToolChoice {
    return { type: "tool", name: this.#declared(clientName, at, field) };
  }

  /** Keeps only these tools. */
  keep(named: readonly NamedTool[]): void {
    const kept = new Set(named.map(({ name, at }) => this.#declared(name, at, "name")));
    for (const name of this.#tools.keys()) if (!kept.has(name)) this.#tools.delete(name);
  }

  #declared(clientName: string, at: Cursor, field: string): string {
    const name = this.#aliases.name(clientName);
    return this.#tools.has(name)
      ? name
      : at.fail(field, `there is no tool named ${clientName.slice(0, 100)} in 'tools'`);
  }

  /** @throws ApiError when a call is demanded and there is nothing to call. */
  finish(
    root: Cursor,
    choice: ToolChoice | undefined,
    serverTools: boolean,
  ): Pick<MessagesRequest, "tools" | "tool_choice"> {
    // Chat's old `functions` form has room for one call in an answer.
    const oneAtATime = root.has("functions") && !root.has("tools");
    const parallel = oneAtATime ? false : root.boolean("parallel_tool_calls");
    const tools = [...this.#tools.values()];
    if (tools.length === 0 && !serverTools) {
      if (choice?.type === "any") failWithoutTools(root);
      return {};
    }
    const disable = parallel === false ? { disable_parallel_tool_use: true } : {};
    const full: ToolChoice | undefined =
      choice === undefined
        ? parallel === false
          ? { type: "auto", ...disable }
          : undefined
        : choice.type === "none"
          ? choice
          : { ...choice, ...disable };
    return { ...(tools.length > 0 && { tools }), ...(full !== undefined && { tool_choice: full }) };
  }
}

/** @throws always: a call is demanded and there is nothing to call, which each vendor refuses. */
export const failWithoutTools = (root: Cursor): never =>
  root.fail("tool_choice", "a tool call is required, but there are no tools");

/** A choice in one word. */
export const choiceOfMode = (mode: "none" | "auto" | "required"): ToolChoice =>
  mode === "required" ? { type: "any" } : { type: mode };

/** `allowed_tools` (dialects.md §D1): the tools are filtered, its mode is the choice. */
export function readAllowedTools(
  allowed: Cursor,
  list: ToolList,
  named: (tool: Cursor) => NamedTool,
  isFunction: (tool: Cursor) => boolean = () => true,
): ToolChoice {
  const mode = allowed.oneOf("mode", ["auto", "required"]) ?? allowed.missing("mode");
  const tools = (allowed.objects("tools") ?? allowed.missing("tools")).filter(isFunction);
  list.keep(tools.map(named));
  return choiceOfMode(mode);
}
