/** `main.ts audit-log`: prints the audit log, one JSON object a line, newest first. */
import type { DatabasePool } from "slonik";
import { requireOrganization } from "../billing/ledger/accounts.ts";
import { commandArguments } from "../lib/command-arguments.ts";
import { parseMoment } from "../lib/moment.ts";
import { readAuditLog, type AuditQuery } from "./audit-log.ts";

const usage = "usage: audit-log [--organization ID] [--key ID] [--since DATE] [--limit N]";
const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 100_000;

/** @throws Error that says what is wrong with the arguments. */
export function parseAuditQuery(args: readonly string[]): AuditQuery {
  const { values } = commandArguments(usage, {
    args: [...args],
    options: {
      organization: { type: "string" },
      key: { type: "string" },
      since: { type: "string" },
      limit: { type: "string" },
    },
  });
  const since = values.since === undefined ? null : parseMoment(values.since);
  if (since === null && values.since !== undefined) throw new Error(`--since is no date; ${usage}`);
  const limit = Number(values.limit ?? DEFAULT_LIMIT);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT) {
    throw new Error(`--limit is an integer from 1 to ${MAX_LIMIT}; ${usage}`);
  }
  return { organizationId: values.organization ?? null, keyId: values.key ?? null, since, limit };
}

/** Returns the lines to print. @throws Error for an organization that there never was: no line would pass for no change. */
export async function printAuditLog(pool: DatabasePool, query: AuditQuery): Promise<string[]> {
  if (query.organizationId !== null) await requireOrganization(pool, query.organizationId);
  const entries = await readAuditLog(pool, query);
  return entries.map(({ at, ...entry }) => JSON.stringify({ at: new Date(at).toISOString(), ...entry }));
}
