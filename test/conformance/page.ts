/** The table of checks in docs/conformance.md. */
import { subjects, type Check } from "./check.ts";
import { checks } from "./table.ts";

const begins = "<!-- begin: checks (npm run generate) -->";
const ends = "<!-- end: checks -->";

const needs = {
  scripted: "our scripted upstream",
  upstream: "our scripted upstream and `--upstream`",
  admin: "`--admin-key`",
} as const;

const row = (check: Check): string => {
  const dialects = check.dialects?.join(", ") ?? "all";
  const condition = check.needs === undefined ? "–" : needs[check.needs];
  return `| \`${check.name}\` | ${check.subject} | ${dialects} | ${check.rule} | ${check.says} | ${condition} |`;
};

/** @throws Error when the page lost the marks around the table. */
export function withChecks(page: string): string {
  const [start, end] = [page.indexOf(begins), page.indexOf(ends)];
  if (start < 0 || end < start) throw new Error(`docs/conformance.md has no place for the table: ${begins}`);
  const rows = subjects.flatMap((subject) => checks.filter((check) => check.subject === subject).map(row));
  const table = [
    "| Check | Subject | Dialects | Rule | What has to hold | Needs |",
    "|---|---|---|---|---|---|",
    ...rows,
  ];
  return `${page.slice(0, start)}${begins}\n\n${table.join("\n")}\n\n${page.slice(end)}`;
}
