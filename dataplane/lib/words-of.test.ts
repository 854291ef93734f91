import { expect, test } from "vitest";
import { wordsOf } from "./words-of.ts";

const refused = (address: string) => new Error(`connect ECONNREFUSED ${address}`);

test.each([
  ["its message", new Error("no such file"), "no such file"],
  ["what is thrown otherwise", "text", "text"],
  [
    "each address that was tried, once",
    new AggregateError([refused("::1:5432"), refused("127.0.0.1:5432"), refused("127.0.0.1:5432")]),
    "connect ECONNREFUSED ::1:5432, connect ECONNREFUSED 127.0.0.1:5432",
  ],
  [
    "the same behind an error that has no words of its own",
    new Error("ConnectionError", { cause: new AggregateError([refused("127.0.0.1:5432")]) }),
    "connect ECONNREFUSED 127.0.0.1:5432",
  ],
  [
    "what to do about a database without our schema",
    new Error('relation "ledger" does not exist', {
      cause: Object.assign(new Error('relation "ledger" does not exist'), { code: "42P01" }),
    }),
    'relation "ledger" does not exist: this database has not the schema of this release; run `migrate` first',
  ],
])("%s", (_, error, words) => {
  expect(wordsOf(error)).toBe(words);
});
