import { dialectPath } from "../../../dataplane/dialects/dialect.ts";
import { ratio, type Table } from "../figures.ts";
import { measure, type Measured, type Subject } from "../measure.ts";
import type { Mode } from "../payloads.ts";
import { micros, type Bench, type Outcome } from "./part.ts";

interface Kind {
  readonly label: string;
  readonly mode: Mode;
  /** Where it is asked when it is not relayed. */
  readonly path?: string;
}

const KINDS: readonly Kind[] = [
  { label: "Chat JSON, relayed", mode: "json" },
  { label: "Messages JSON, relayed", mode: "whole" },
  { label: "Responses JSON, relayed", mode: "response" },
  { label: "Messages client, Chat upstream, JSON", mode: "json", path: dialectPath.messages },
  { label: "Chat client, Messages upstream, JSON", mode: "whole", path: dialectPath.chat },
  { label: "200 Chat events at once", mode: "burst" },
  { label: "200 Messages events at once", mode: "messages" },
  { label: "200 Chat events in one packet", mode: "packed" },
];
const WIDTHS = [1, 8, 32, 128];
/** At which a kind is compared with a process that serves nothing else. */
const ALONE_WIDTH = 32;

/**
 * All kinds in turns in one process, as users' traffic is: code that one kind alone lets the compiler specialize serves
 * several here. Beside the bare relay, and beside a process of its own for each kind.
 */
export async function mixed({ world, contestants, quick, rounds, say }: Bench): Promise<Outcome> {
  const { bare, gapura } = contestants;
  const together: Subject[] = KINDS.map((kind) => ({ ...kind, contestant: gapura }));
  const relayed: Subject[] = KINDS.filter(({ path }) => path === undefined).map(({ label, mode }) => ({
    label,
    mode,
    contestant: bare,
  }));
  const rows: string[][] = KINDS.map(({ label }) => [label]);
  for (const width of quick ? [ALONE_WIDTH] : WIDTHS) {
    const bareMeasured = await measure(relayed, { ...rounds, width });
    const measured = await measure(together, { ...rounds, width });
    for (const [at, { label, cpuMicros }] of measured.entries()) {
      const base = cpuAt(bareMeasured, label);
      rows[at]?.push(micros(cpuMicros), Number.isNaN(base) ? "" : ratio(cpuMicros, base));
    }
    say(`${width} at once`);
  }
  const columns = (quick ? [ALONE_WIDTH] : WIDTHS).flatMap((width) => [`µs at ${width}`, "bare relay"]);
  const tables: Table[] = [{ title: "All kinds in one process", columns: ["", ...columns], rows }];
  if (!quick) tables.push(await besideAlone(world, together, { ...rounds, width: ALONE_WIDTH }, say));
  return { tables };
}

async function besideAlone(
  world: Bench["world"],
  together: readonly Subject[],
  rounds: Bench["rounds"],
  say: Bench["say"],
): Promise<Table> {
  const rows: string[][] = [];
  for (const subject of together) {
    const alone = await world.gapura();
    const measured = await measure(
      [
        { ...subject, label: "together" },
        { ...subject, label: "alone", contestant: alone },
      ],
      rounds,
    );
    await alone.stop();
    const [one, other] = [cpuAt(measured, "together"), cpuAt(measured, "alone")];
    say(`${subject.label}: ${ratio(one, other)} of alone`);
    rows.push([subject.label, micros(one), micros(other), ratio(one, other)]);
  }
  return {
    title: `Beside a process that serves this kind alone, ${ALONE_WIDTH} at once (goal: 1.15 ×)`,
    columns: ["", "µs together", "µs alone", "to alone"],
    rows,
  };
}

const cpuAt = (measured: readonly Measured[], label: string) =>
  measured.find((one) => one.label === label)?.cpuMicros ?? Number.NaN;
