/** The server tools as functions that models are given. */
import type { ServerToolName } from "../dialects/server-tools.ts";

/** Each server tool as the function that the model is given. */
export const toolFunctions: Record<
  ServerToolName,
  {
    readonly name: ServerToolName;
    readonly description: string;
    readonly input_schema: Readonly<Record<string, unknown>>;
  }
> = {
  web_search: {
    name: "web_search",
    description:
      "Searches the web and returns titles, URLs and excerpts of the best pages. Use it for recent or uncertain facts.",
    input_schema: {
      type: "object",
      properties: { query: { type: "string", description: "What to search for, at most 400 characters." } },
      required: ["query"],
      additionalProperties: false,
    },
  },
  web_fetch: {
    name: "web_fetch",
    description:
      "Opens one web page and returns its text. Only URLs that the user gave or that an earlier result holds can be opened.",
    input_schema: {
      type: "object",
      properties: {
        url: { type: "string", description: "The whole URL, http or https, at most 250 characters." },
      },
      required: ["url"],
      additionalProperties: false,
    },
  },
  x_search: {
    name: "x_search",
    description: "Searches recent posts on X and returns them with their authors.",
    input_schema: {
      type: "object",
      properties: { query: { type: "string", description: "What to search for, at most 400 characters." } },
      required: ["query"],
      additionalProperties: false,
    },
  },
};
