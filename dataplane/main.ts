/**
 * The data plane's program. The modules for serving are loaded only when it serves (serve-forever.ts): with them a command, such
 * as the one of each pod's init container, would take twice its time. The commands are in commands.ts.
 *   main.ts           serves
 *   main.ts migrate   brings the database's schema up to date
 *   main.ts grant     adds credit: --organization ID --name NAME --amount CREDITS
 *   main.ts release-organization ID   lets another namespace have an id that nobody declares any more
 *   main.ts adopt     accepts a restored database, and charges again what it lost and Redis still knows
 *   main.ts reconcile   compares all records of money and storage: exit 0 exact, 1 broken (a line each), 2 it could not compare
 *   main.ts why       prints all that is known of a request: ID [--json]
 *   main.ts audit-log prints who changed which key: [--organization ID] [--key ID] [--since DATE] [--limit N]
 */
import { commands } from "./commands.ts";
import { readEnvironment } from "./environment.ts";
import { endAtSignals } from "./lib/signals.ts";
import { wordsOf } from "./lib/words-of.ts";

endAtSignals();
const [command, ...rest] = process.argv.slice(2);
try {
  if (command === undefined) {
    const { serveForever } = await import("./serve-forever.ts");
    await serveForever(readEnvironment(process.env));
  } else {
    const run = commands.get(command);
    if (run === undefined)
      throw new Error(`unknown command ${command}; known: ${[...commands.keys()].join(", ")}`);
    await run(rest, process.env);
  }
} catch (error) {
  process.stderr.write(`gapura: ${wordsOf(error)}\n`);
  process.exit(command === "reconcile" ? 2 : 1);
}
