/** The table of server tools in docs/tools.md, made from the catalogue. */
import { serverToolNames } from "./find-server-tool.ts";
import { serverTools } from "./server-tools.ts";

const begins = "<!-- begin: server tools (npm run generate) -->";
const ends = "<!-- end: server tools -->";

const codes = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(", ");

function row(name: (typeof serverToolNames)[number]): string {
  const { messages, responses, chatField } = serverTools[name];
  // A tool without a Responses declaration comes with the tool that has the same item.
  const [carrier] = serverToolNames.filter(
    (other) => other !== name && serverTools[other].item === serverTools[name].item,
  );
  const comesWith = responses.length === 0 && carrier !== undefined ? serverTools[carrier] : undefined;
  const inResponses =
    comesWith === undefined ? codes(responses) : `with \`${comesWith.responses[0]}\` (action \`open_page\`)`;
  const field = comesWith?.chatField ?? null;
  const inChat = chatField !== null ? codes([chatField]) : field !== null ? `with \`${field}\`` : "–";
  return `| \`${name}\` | ${codes(messages)} | ${inResponses} | ${inChat} |`;
}

/** Writes the table into the page. @throws Error when the page lost the marks around the table. */
export function withServerTools(page: string): string {
  const [start, end] = [page.indexOf(begins), page.indexOf(ends)];
  if (start < 0 || end < start) throw new Error(`docs/tools.md has no place for the table: ${begins}`);
  const table = [
    "| Tool | Messages | Responses | Chat Completions |",
    "|---|---|---|---|",
    ...serverToolNames.map(row),
  ].join("\n");
  return `${page.slice(0, start)}${begins}\n\n${table}\n\n${page.slice(end)}`;
}
