/**
 * `npm run validate -- DIR [--format json]` and the flags of a tenancy: everything that the operator would refuse or miss in a folder, for CI.
 * Exit 0: nothing; 1: one line per fault `file:line kind/name path: reason`; 2: it could not be done. Notes of statuses that
 * are no faults, such as on an alias that another route has, go to stderr in the same form.
 */
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { Identities } from "./folder/identities.ts";
import { newKey } from "./new-key.ts";
import { type LineOf, linesOf } from "./folder/parse.ts";
import { FolderSource } from "./folder/source.ts";
import { compile } from "./plan/compile.ts";
import type { Secrets, WantedKey } from "./plan/objects.ts";
import { TENANCY_USAGE, type Tenancy, tenancyFlags, tenancyOfFlags, TRUSTED } from "./plan/tenancy.ts";

export interface FoundFault {
  readonly file: string;
  readonly line: number;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly path: string;
  readonly reason: string;
  readonly message: string;
}

export interface Validation {
  readonly faults: readonly FoundFault[];
  /** Notes of statuses that are no faults. */
  readonly notes: readonly FoundFault[];
  readonly objects: number;
  readonly files: number;
}

/** @throws when the folder cannot be listed. */
export async function validateFolder(folder: string, tenancy: Tenancy = TRUSTED): Promise<Validation> {
  const source = new FolderSource({
    folder,
    // No generated keys are read: `withKeys` adds all that would be generated.
    dataFolder: "/nonexistent",
    identities: Identities.temporary(),
    now: () => 0,
    forKubectl: true,
  });
  const { objects, secrets, faults, origins } = await source.observe();
  const first = compile({ objects, secrets, published: null, tenancy });
  const { verdicts } =
    first.wanted.length === 0
      ? first
      : compile({ objects, secrets: withKeys(secrets, first.wanted), published: null, tenancy });

  const found: FoundFault[] = faults.map(({ hidesObject: _, ...fault }) => fault);
  const noted: FoundFault[] = [];
  const files = new Map<string, LineOf>();
  for (const { object, accepted, resolved, notes } of verdicts) {
    const origin = origins.get(object);
    if (origin === undefined) continue;
    const place = async (path: string, reason: string, message: string): Promise<FoundFault> => {
      const lineOf = files.get(origin.file) ?? linesOf(await readFile(origin.file, "utf8"));
      files.set(origin.file, lineOf);
      const { kind, namespace, name } = object;
      const line = lineOf(origin.position, path);
      return { file: origin.file, line, kind, namespace, name, path, reason, message };
    };
    for (const { path, reason, message } of [...accepted, ...resolved])
      found.push(await place(path, reason, message));
    for (const message of notes) noted.push(await place("", "Note", message));
  }
  found.sort(byPlace);
  noted.sort(byPlace);
  return { faults: found, notes: noted, objects: objects.length, files: source.fileCount };
}

const byPlace = (one: FoundFault, other: FoundFault): number =>
  one.file < other.file ? -1 : one.file > other.file ? 1 : one.line - other.line;

/** Adds a value for each key that would be generated: that it is missing is no fault. */
function withKeys(secrets: Secrets, wanted: readonly WantedKey[]): Secrets {
  const all = new Map(secrets);
  for (const { namespace, secret, key, form } of wanted) {
    const name = `${namespace}/${secret}`;
    all.set(name, { ...all.get(name), [key]: newKey(form) });
  }
  return all;
}

/** One line for a fault: `FILE:LINE KIND/NAME PATH: REASON: MESSAGE`. */
export function faultLine({ file, line, kind, name, path, reason, message }: FoundFault): string {
  const subject = kind === "" ? [] : [`${kind}/${name === "" ? "?" : name}`];
  const where = path === "" ? [] : [`${path}:`];
  return [`${file}:${line}`, ...subject, ...where, `${reason}:`, message].join(" ");
}

const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`;

const USAGE = `usage: npm run validate -- DIR [--format text|json] ${TENANCY_USAGE}`;

/** @throws Error that also has the usage. */
function readFlags() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: { format: { type: "string", default: "text" }, ...tenancyFlags },
    });
  } catch (error) {
    throw new Error(`${error instanceof Error ? error.message : String(error)}\n${USAGE}`, { cause: error });
  }
}

async function main(): Promise<number> {
  // npm runs us in the repository's folder; paths are given and printed relative to the user's.
  process.chdir(process.env["INIT_CWD"] ?? process.cwd());
  const { values, positionals } = readFlags();
  const [folder] = positionals;
  if (folder === undefined || positionals.length > 1 || !["text", "json"].includes(values.format)) {
    console.error(USAGE);
    return 2;
  }
  if (!existsSync(folder)) throw new Error(`there is no ${folder}`);
  const { faults, notes, objects, files } = await validateFolder(folder, tenancyOfFlags(values));
  if (files === 0 && faults.length === 0)
    throw new Error(`there is no .yaml, .yml or .json file in ${folder}`);
  if (values.format === "json") console.log(JSON.stringify({ objects, files, faults, notes }, null, 2));
  else {
    for (const note of notes) console.error(faultLine(note));
    for (const fault of faults) console.log(faultLine(fault));
  }
  if (values.format === "text" && faults.length === 0)
    console.log(
      `${counted(objects, "object")} in ${counted(files, "file")} ${objects === 1 ? "is" : "are"} valid`,
    );
  return faults.length === 0 ? 0 : 1;
}

if (import.meta.main)
  process.exitCode = await main().catch((error: unknown) => {
    console.error(`validate: ${error instanceof Error ? error.message : String(error)}`);
    return 2;
  });
