/** `main.ts grant`: adds credit by hand, through the same once-only table as declared grants (design.md §7). */
import type { DatabasePool } from "slonik";
import { commandArguments } from "../../lib/command-arguments.ts";
import { creditsText, isOutOfBounds, microsOf, type Micros } from "../credits.ts";
import { applyGrant, requireOrganization } from "./accounts.ts";

export interface GrantRequest {
  readonly organizationId: string;
  readonly name: string;
  readonly amount: Micros;
}

const usage = "usage: grant --organization ID --name NAME --amount CREDITS";

/** Reads the command's arguments. @throws Error that says what is wrong with them. */
export function parseGrant(args: readonly string[]): GrantRequest {
  // parseArgs takes the value `-5` for an option unless it is joined to its name.
  const joined = args.flatMap((arg, index) => {
    if (arg === "--amount" && args[index + 1] !== undefined) return [`--amount=${args[index + 1]}`];
    return args[index - 1] === "--amount" ? [] : [arg];
  });
  const { values } = commandArguments(usage, {
    args: joined,
    options: {
      organization: { type: "string" },
      name: { type: "string" },
      amount: { type: "string" },
    },
  });
  const { organization, name, amount } = values;
  if (organization === undefined || name === undefined || amount === undefined) throw new Error(usage);
  if (name === "" || name.length > 253 || name.includes("\0"))
    throw new Error("--name has 1 to 253 characters");
  const micros = microsOf(amount);
  if (micros === null || micros === 0n) {
    throw new Error("--amount is a number of credits with at most six decimals, such as 100000 or -0.5");
  }
  if (isOutOfBounds(micros)) throw new Error("--amount lies within 9,000,000,000 credits either way");
  return { organizationId: organization, name, amount: micros };
}

/** Applies a grant and returns what to print. @throws Error when nothing was, and will not be, applied. */
export async function grant(
  pool: DatabasePool,
  { organizationId, name, amount }: GrantRequest,
): Promise<string> {
  const outcome = await pool.transaction(async (transaction) => {
    await requireOrganization(transaction, organizationId);
    return await applyGrant(transaction, { organizationId, name, amount, source: "command" });
  });
  switch (outcome.kind) {
    case "applied":
      return `granted ${creditsText(amount)} credits to ${organizationId}; its balance is ${creditsText(outcome.account.balance)}`;
    case "repeated":
      return `the grant ${name} of ${organizationId} was applied before; nothing changed`;
    case "unchanged":
      throw new Error(
        `the grant ${name} of ${organizationId} was applied before with ${creditsText(outcome.appliedMicros)} credits; take another name`,
      );
    case "refused":
      throw new Error(
        `a balance must lie within 9,000,000,000 credits either way; ${organizationId} has ${creditsText(outcome.balance)}`,
      );
  }
}
