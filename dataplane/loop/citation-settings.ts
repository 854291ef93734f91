/**
 * A Messages upstream takes a request only if all of its documents are to be cited or none, and all of its search
 * results or none (the vendor's pages on citations and on search results). The client's own blocks stay as it set them;
 * those of our tools follow. Pure.
 */
import { isServerToolName } from "../dialects/find-server-tool.ts";
import type {
  ContentBlockParam,
  DocumentBlock,
  MessageParam,
  SearchResultBlock,
} from "../dialects/messages/types.ts";
import type { ServerToolName } from "../dialects/server-tools.ts";

type Cited = DocumentBlock | SearchResultBlock;

const isCited = (block: ContentBlockParam): block is Cited =>
  block.type === "document" || block.type === "search_result";
const isEnabled = ({ citations }: Cited): boolean => citations?.enabled === true;

/** Whether anything in the conversation lets the model cite documents. */
export const hasCitedDocument = (messages: readonly MessageParam[]): boolean => {
  const cites = (block: ContentBlockParam): boolean =>
    block.type === "document"
      ? isEnabled(block)
      : block.type === "tool_result" && Array.isArray(block.content) && block.content.some(cites);
  return messages.some(({ content }) => typeof content !== "string" && content.some(cites));
};

/** Sets pages and hits of the tools in `ours` as the client set its own documents and search results. */
export function agreeOnCitations(
  messages: readonly MessageParam[],
  ours: ReadonlySet<ServerToolName>,
): MessageParam[] {
  const calls = new Set<string>();
  const theirs: Record<Cited["type"], Set<boolean>> = { document: new Set(), search_result: new Set() };
  const look = (block: ContentBlockParam) => {
    if (isCited(block)) theirs[block.type].add(isEnabled(block));
    else if (block.type === "tool_use" && isServerToolName(block.name) && ours.has(block.name))
      calls.add(block.id);
    else if (block.type === "tool_result" && Array.isArray(block.content) && !calls.has(block.tool_use_id))
      block.content.forEach(look);
  };
  for (const { content } of messages) if (typeof content !== "string") content.forEach(look);
  // Where the client's own disagree, the upstream refuses the request.
  const set = (type: Cited["type"]) => (theirs[type].size === 1 ? theirs[type].has(true) : null);
  const wanted = { document: set("document"), search_result: set("search_result") };
  if (calls.size === 0 || (wanted.document === null && wanted.search_result === null)) return [...messages];

  const follow = (block: ContentBlockParam): ContentBlockParam => {
    if (!isCited(block)) return block;
    const enabled = wanted[block.type];
    return enabled === null || enabled === isEnabled(block) ? block : changed(block, enabled);
  };
  return messages.map((message) =>
    typeof message.content === "string"
      ? message
      : {
          ...message,
          content: message.content.map((block) =>
            block.type === "tool_result" && Array.isArray(block.content) && calls.has(block.tool_use_id)
              ? { ...block, content: block.content.map(follow) }
              : block,
          ),
        },
  );
}

/** A page that nobody asked to be cited becomes plain text among documents that are. */
function changed(block: Cited, enabled: boolean): ContentBlockParam {
  if (enabled && block.type === "document" && block.source.type === "text")
    return { type: "text", text: [block.title ?? "", block.source.data].filter(Boolean).join("\n") };
  return { ...block, citations: { enabled } };
}
