/** The flags of `npm start` (hack/start.ts). */
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { TENANCY_USAGE, tenancyFlags, tenancyOfFlags } from "../operator/plan/tenancy.ts";

const root = resolve(import.meta.dirname, "..");

export interface StartOptions {
  readonly manifests: string;
  /** 0: whichever port is free. */
  readonly port: number;
  readonly opsPort: number;
  readonly host: string;
  readonly data: string;
  /** Whether to build and serve the console. */
  readonly console: boolean;
  /** Flags for the operator. */
  readonly tenancy: readonly string[];
}

function readFlags(args: readonly string[], say: (line: string) => void) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        manifests: { type: "string", default: join(root, "hack", "demo") },
        port: { type: "string", default: "8080" },
        "ops-port": { type: "string", default: "9090" },
        host: { type: "string", default: "127.0.0.1" },
        data: { type: "string", default: join(root, ".gapura") },
        "no-console": { type: "boolean", default: false },
        ...tenancyFlags,
      },
    }).values;
  } catch (error) {
    say(error instanceof Error ? error.message : String(error));
    say(
      `usage: npm start -- [--manifests DIR] [--port N] [--ops-port N] [--host ADDRESS] [--data DIR] [--no-console] ${TENANCY_USAGE}`,
    );
    process.exit(2);
  }
}

/** Ends the process with 1 where the operator would end. */
function tenancyOf(values: ReturnType<typeof readFlags>, say: (line: string) => void): string[] {
  try {
    tenancyOfFlags(values);
  } catch (error) {
    say(error instanceof Error ? error.message : String(error));
    process.exit(1);
  }
  const flags = Object.keys(tenancyFlags) as (keyof typeof tenancyFlags)[];
  return flags.flatMap((flag) => (values[flag] === undefined ? [] : [`--${flag}=${values[flag]}`]));
}

/** Ends the process with 2 when a flag is wrong. */
export function readOptions(args: readonly string[], say: (line: string) => void): StartOptions {
  const values = readFlags(args, say);
  const port = (name: string, value: string) => {
    if (/^\d{1,5}$/.test(value) && Number(value) <= 65_535) return Number(value);
    say(`--${name} must be a port, 0 for any free one; it is ${value}`);
    process.exit(2);
  };
  // An empty value comes from a script's variable that is not set: it would mean the current folder, or every address.
  for (const name of ["manifests", "data", "host"] as const)
    if (values[name].trim() === "") {
      say(`--${name} is empty`);
      process.exit(2);
    }
  const ports = { port: port("port", values.port), opsPort: port("ops-port", values["ops-port"]) };
  if (ports.port !== 0 && ports.port === ports.opsPort) {
    say(`--ops-port must be another port than --port; both are ${ports.port}`);
    process.exit(2);
  }
  // npm runs us in the repository's folder; paths are relative to where the user is.
  const from = process.env["INIT_CWD"] ?? process.cwd();
  const manifests = resolve(from, values.manifests);
  const found = fs.statSync(manifests, { throwIfNoEntry: false });
  if (found?.isDirectory() !== true) {
    say(
      `--manifests ${values.manifests}: ${found === undefined ? "there is no such folder" : "is no folder"}`,
    );
    process.exit(2);
  }
  const data = resolve(from, values.data);
  // What the stores write there would be looked at as manifests, all the time.
  if (fs.existsSync(data) && fs.realpathSync(data) === fs.realpathSync(manifests)) {
    say(`--data ${values.data} is the folder of the manifests: choose another one, which may lie in it`);
    process.exit(2);
  }
  return {
    manifests,
    ...ports,
    host: values.host,
    data,
    console: !values["no-console"],
    tenancy: tenancyOf(values, say),
  };
}
