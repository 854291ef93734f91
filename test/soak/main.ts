/**
 * `npm run soak -- [--hours N] [--faults M] [--seed S] [--prefix K] [--go-on] [--no-shrink]`: the whole product under mixed
 * load and faults (docs/reliability.md). The plan of faults follows from the seed and the flags and is printed; `--prefix K`
 * makes only the first K. A failing run prints its seed and looks for the shortest prefix that still fails; ends with 1.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { flagsOrEnd } from "../../hack/flags-or-end.ts";
import { shortestFailing } from "./plan.ts";
import { soak, type SoakOptions } from "./soak.ts";
import { canMount, type SoakWorld } from "./world.ts";

/** What quiet points take, spread over the faults between two. */
const QUIET_MS = 35_000;
const FAULTS_A_QUIET = 12;
const LEAST_EVERY_MS = 2_000;
/** Set in the process that has file systems of its own. */
const OWN_DISKS = "GAPURA_SOAK_OWN_DISKS";

const ENDS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

const USAGE =
  "usage: npm run soak -- [--hours N] [--faults M] [--seed S] [--prefix K] [--go-on] [--no-shrink]";

const { values } = flagsOrEnd(USAGE, {
  options: {
    hours: { type: "string", default: "0.2" },
    faults: { type: "string", default: "40" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    prefix: { type: "string" },
    "go-on": { type: "boolean", default: false },
    "no-shrink": { type: "boolean", default: false },
  },
});
const [hours, faults, seed] = [Number(values.hours), Number(values.faults), Number(values.seed)];
const prefix = Number(values.prefix ?? faults);
if (![hours, faults, seed, prefix].every((value) => Number.isFinite(value) && value > 0)) {
  console.error(USAGE);
  process.exit(2);
}

if (process.env[OWN_DISKS] === undefined) {
  const disks = canMount();
  const [command = "", ...args] = [
    ...(disks ? ["unshare", "--mount", "--propagation", "private"] : []),
    process.execPath,
    ...process.execArgv,
    ...process.argv.slice(1),
  ];
  const child = spawn(command, args, {
    stdio: "inherit",
    env: { ...process.env, [OWN_DISKS]: String(disks) },
  });
  for (const signal of ENDS) process.on(signal, () => child.kill(signal));
  const [code] = (await once(child, "exit")) as [number | null];
  process.exit(code ?? 1);
}

// Whoever ends us ends what we have started.
let world: SoakWorld | null = null;
for (const signal of ENDS)
  process.once(signal, () => void Promise.resolve(world?.close(true)).finally(() => process.exit(130)));

const options: SoakOptions = {
  seed,
  faults,
  prefix,
  everyMs: Math.max(LEAST_EVERY_MS, (hours * 3_600_000) / faults - QUIET_MS / FAULTS_A_QUIET),
  withinMs: values.prefix === undefined ? hours * 3_600_000 : Infinity,
  faultsAQuiet: FAULTS_A_QUIET,
  disks: process.env[OWN_DISKS] === "true",
  goOn: values["go-on"],
  say: (line) => console.error(`soak: ${line}`),
  opened: (opened) => (world = opened),
};
console.error(
  `soak: seed ${seed}, ${faults} faults in ${hours} hours${options.disks ? "" : ", no disks of its own"}`,
);
const report = await soak(options);
console.log(JSON.stringify(report, null, 1));
if (report.breaches.length > 0) {
  console.error(
    `soak: failed with --seed ${seed} --hours ${hours} --faults ${faults} --prefix ${report.made}`,
  );
  if (!values["no-shrink"]) console.error(`soak: ${await shrink(report.made)}`);
  process.exit(1);
}

async function shrink(failing: number): Promise<string> {
  const shortest = await shortestFailing(failing, async (length) => {
    const { breaches } = await soak({ ...options, prefix: length, withinMs: Infinity, goOn: false });
    return breaches.length > 0;
  });
  return `the shortest prefix that failed: --seed ${seed} --hours ${hours} --faults ${faults} --prefix ${shortest}`;
}
