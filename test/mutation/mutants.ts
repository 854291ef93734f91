/** Small changes to a file's code, each of which a test should notice. */
import { parseAst } from "vitest/node";

export interface Mutant {
  /** Offsets in UTF-16 units of the file. */
  readonly start: number;
  readonly end: number;
  readonly replacement: string;
}

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

const isNode = (value: unknown): value is Node =>
  typeof value === "object" && value !== null && typeof (value as Node).type === "string";

const operators: Readonly<Record<string, string>> = {
  "<": "<=",
  "<=": "<",
  ">": ">=",
  ">=": ">",
  "===": "!==",
  "!==": "===",
  "+": "-",
  "-": "+",
  "*": "/",
  "/": "*",
  "%": "*",
  "&&": "||",
  "||": "&&",
  "<<": ">>",
  ">>": "<<",
  "&": "|",
  "|": "&",
  "+=": "-=",
  "-=": "+=",
};

const COMMENT = /\/\*[\s\S]*?\*\/|\/\/.*/g;

/** What is lost without anyone being able to see it in an answer. */
const UNSEEN = /^(metrics|log|logger)\b/;

/**
 * Of TypeScript code: operators turned, conditions fixed to true and to false, numbers one more, booleans turned, and calls
 * that stand for themselves left out. Types and imports are left alone.
 */
export function mutantsOf(code: string): Mutant[] {
  const found: Mutant[] = [];
  const replace = ({ start, end }: Pick<Node, "start" | "end">, replacement: string) =>
    found.push({ start, end, replacement });
  const fix = (node: unknown) => {
    if (!isNode(node)) return;
    replace(node, "true");
    replace(node, "false");
  };
  const turn = ({ left, right, operator }: Node) => {
    const other = operators[String(operator)];
    if (other === undefined || !isNode(left) || !isNode(right)) return;
    const between = code.slice(left.end, right.start).replaceAll(COMMENT, (text) => " ".repeat(text.length));
    const at = left.end + between.indexOf(String(operator));
    replace({ start: at, end: at + String(operator).length }, other);
  };
  const visit = (node: Node): void => {
    if (isLeftAlone(node)) return;
    if (["BinaryExpression", "LogicalExpression", "AssignmentExpression"].includes(node.type)) turn(node);
    if (["IfStatement", "ConditionalExpression"].includes(node.type)) fix(node["test"]);
    if (node.type === "Literal") mutateLiteral(node, replace);
    const { expression } = node;
    if (node.type === "ExpressionStatement" && isNode(expression) && isCall(expression))
      if (!UNSEEN.test(code.slice(node.start, node.end))) replace(node, ";");
    for (const inner of Object.values(node).flat()) if (isNode(inner)) visit(inner);
  };
  visit(parseAst(code, { lang: "ts" }) as unknown as Node);
  return found;
}

/** Types, imports and exports of others. `as`, `satisfies` and `!` hold code. */
function isLeftAlone({ type, source }: Node): boolean {
  if (["TSAsExpression", "TSSatisfiesExpression", "TSNonNullExpression"].includes(type)) return false;
  return (
    type.startsWith("TS") || type === "ImportDeclaration" || (type.startsWith("Export") && isNode(source))
  );
}

function isCall(node: Node): boolean {
  const inner = node.type === "AwaitExpression" ? node["argument"] : node;
  return isNode(inner) && inner.type === "CallExpression";
}

function mutateLiteral(node: Node, replace: (node: Node, text: string) => void): void {
  const { value } = node;
  if (typeof value === "boolean") replace(node, String(!value));
  if (typeof value === "number") replace(node, String(value + 1));
  if (typeof value === "bigint") replace(node, `${value + 1n}n`);
}

/** The code with the change. */
export const withMutant = (code: string, { start, end, replacement }: Mutant): string =>
  code.slice(0, start) + replacement + code.slice(end);

/** `FILE:LINE: BEFORE -> AFTER`, in one line. */
export function describeMutant(file: string, code: string, { start, end, replacement }: Mutant): string {
  const line = code.slice(0, start).split("\n").length;
  const context = code.slice(start, end).replaceAll(/\s+/g, " ").slice(0, 80);
  const whole = code.split("\n")[line - 1]?.trim().slice(0, 120);
  return `${file}:${line}: ${context} -> ${replacement === ";" ? "(nothing)" : replacement}   in: ${whole}`;
}
