/** Words for what is wrong with a body of the admin API. Pure. */
import type { z } from "zod";

const forms: Readonly<Record<string, string>> = {
  string: "a string",
  boolean: "true or false",
  int: "an integer",
  number: "a number",
  array: "a list",
  object: "an object",
};

/** True for zod's own bounds of exact integers: the field's own bounds come after them and say what it may be. */
const isOfAllIntegers = (issue: z.core.$ZodIssue): boolean =>
  (issue.code === "too_small" || issue.code === "too_big") && issue.origin === "int";

/** The first issue of a body that says what is wanted. */
export const firstIssue = (issues: readonly z.core.$ZodIssue[]): z.core.$ZodIssue | undefined =>
  issues.find((issue) => !isOfAllIntegers(issue)) ?? issues[0];

/** What is wrong with a field, in our own words that follow its path; never its value. Parse with `reportInput`. */
export function issueWords(issue: z.core.$ZodIssue): string {
  if (issue.input === undefined && issue.code !== "custom") return "is required";
  switch (issue.code) {
    case "unrecognized_keys":
      return "is not a known field";
    case "invalid_type":
      return `must be ${forms[issue.expected] ?? issue.expected}`;
    case "invalid_value":
      return `must be one of ${issue.values.map(String).join(", ")}`;
    case "too_small":
      return `must ${bound(issue.origin, "least", issue.minimum)}`;
    case "too_big":
      return `must ${bound(issue.origin, "most", issue.maximum)}`;
    case "invalid_format":
    case "custom":
      // Every pattern and rule of ours says in words what it wants.
      return issue.message;
    default:
      return "is not valid";
  }
}

function bound(origin: string, side: "least" | "most", value: number | bigint): string {
  const count = `at ${side} ${value}`;
  if (origin === "string") return `have ${count} character${value === 1 ? "" : "s"}`;
  if (origin === "array") return `have ${count} ${value === 1 ? "entry" : "entries"}`;
  return `be ${count}`;
}
