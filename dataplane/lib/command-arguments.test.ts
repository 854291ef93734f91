import { expect, test } from "vitest";
import { parseGrant } from "../billing/ledger/grant-command.ts";
import { parseAuditQuery } from "../identity/audit-log-command.ts";
import { parseWhy } from "../requests/why-command.ts";

test.each([
  ["grant", parseGrant, "usage: grant --organization"],
  ["why", parseWhy, "usage: why REQUEST_ID"],
  ["audit-log", parseAuditQuery, "usage: audit-log ["],
])(
  "whoever asks %s for help, or names an option that it lacks, is told how it is called",
  (_, parse, usage) => {
    for (const option of ["--help", "--colour"]) {
      expect(() => parse([option])).toThrow(option);
      expect(() => parse([option])).toThrow(usage);
    }
  },
);
