/** Observes a folder of manifests; reads again only the files that changed. */
import { isUtf8 } from "node:buffer";
import { readFile } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { type Declared, type Fault, reference } from "../plan/objects.ts";
import type { Observation } from "../reconcile.ts";
import { findManifests, type FoundFile, MAX_FILE_BYTES } from "./files.ts";
import type { Identities, Named } from "./identities.ts";
import { readKeyFiles } from "./key-files.ts";
import {
  fileFault,
  type FileFault,
  type Manifest,
  parseFile,
  type ParsedFile,
  type ParseOptions,
  type FilePosition,
  type SecretDocument,
} from "./parse.ts";

export interface LocatedFault extends FileFault {
  readonly file: string;
}

export interface FolderObservation extends Observation {
  readonly faults: readonly LocatedFault[];
  /** File and position of each object. */
  readonly origins: ReadonlyMap<Declared, Origin>;
}

export interface Origin {
  readonly file: string;
  readonly position: FilePosition;
}

interface CachedFile {
  readonly signature: string;
  readonly parsed: ParsedFile;
}

export interface FolderSourceOptions extends ParseOptions {
  readonly folder: string;
  readonly dataFolder: string;
  readonly identities: Identities;
  readonly now: () => number;
}

export class FolderSource {
  readonly #folder: string;
  readonly #dataFolder: string;
  readonly #identities: Identities;
  readonly #now: () => number;
  readonly #parsing: ParseOptions;
  #files = new Map<string, CachedFile>();

  constructor(options: FolderSourceOptions) {
    this.#folder = options.folder;
    this.#dataFolder = options.dataFolder;
    this.#identities = options.identities;
    this.#now = options.now;
    this.#parsing = options;
  }

  /** How many files the last observation read. */
  get fileCount(): number {
    return this.#files.size;
  }

  /** @throws when the folder itself cannot be listed. */
  async observe(): Promise<FolderObservation> {
    await this.#readFiles();
    const faults: LocatedFault[] = [];
    const origins = new Map<Declared, Origin>();
    const objects = this.#declared(faults, origins);
    await this.#identities.save();
    return { objects, secrets: await this.#secrets(faults), faults, origins };
  }

  async #readFiles(): Promise<void> {
    const files = new Map<string, CachedFile>();
    for (const found of findManifests(this.#folder, { except: this.#dataFolder })) {
      const cached = this.#files.get(found.path);
      files.set(found.path, cached?.signature === found.signature ? cached : await this.#read(found, cached));
    }
    this.#files = files;
  }

  async #read(found: FoundFile, before: CachedFile | undefined): Promise<CachedFile> {
    const { path, signature } = found;
    const parsed = await parseFound(found, this.#parsing);
    // Secrets have no last published entry to fall back to: those that the file last declared stay.
    const kept = isBroken(parsed) ? (before?.parsed.secrets ?? this.#secretsBelow(path)) : [];
    return { signature, parsed: { ...parsed, secrets: mergeSecrets(kept, parsed.secrets) } };
  }

  /** Returns the Secrets last declared in a folder that cannot be looked at any more. */
  #secretsBelow(folder: string): readonly SecretDocument[] {
    const inside = [...this.#files].filter(([path]) => path.startsWith(`${folder}${sep}`));
    return inside.flatMap(([, { parsed }]) => parsed.secrets);
  }

  /** Returns every object of every file, and of faulty files also those that were there before and cannot be found now. */
  #declared(faults: LocatedFault[], origins: Map<Declared, Origin>): Declared[] {
    const seen = new Map<string, string>();
    const objects: Declared[] = [];
    const nowSeconds = Math.floor(this.#now() / 1000);
    for (const [file, { parsed }] of this.#files) {
      // One by one, as below: a call takes only some ten thousand arguments.
      for (const fault of parsed.faults) faults.push({ ...fault, file });
      for (const manifest of parsed.manifests) {
        const key = `${manifest.kind} ${reference(manifest)}`;
        const first = seen.get(key);
        if (first !== undefined) {
          faults.push({ ...duplicate(manifest, first), file });
          continue;
        }
        seen.set(key, file);
        const { uid, generation, createdAt } = this.#identities.of(
          manifest,
          relative(this.#folder, file),
          nowSeconds,
        );
        const object = { ...named(manifest), ...manifestPart(manifest), uid, generation, createdAt };
        objects.push(object);
        origins.set(object, { file, position: manifest.position });
      }
    }
    for (const object of this.#missingFromFaultyFiles(seen)) objects.push(object);
    this.#identities.keepOnly(objects);
    return objects;
  }

  #missingFromFaultyFiles(seen: ReadonlyMap<string, string>): Declared[] {
    // Relative paths: identities outlive the process, and the folder may be named otherwise next time.
    const faulty = new Set(
      [...this.#files]
        .filter(([, { parsed }]) => isBroken(parsed))
        .map(([path]) => relative(this.#folder, path)),
    );
    return this.#identities.lastSeenIn(faulty).flatMap(({ named: object, identity }): Declared[] => {
      if (seen.has(`${object.kind} ${reference(object)}`)) return [];
      const file = join(this.#folder, identity.file);
      const first = this.#files.get(file)?.parsed.faults.find(({ hidesObject }) => hidesObject);
      const field = first === undefined || first.path === "" ? "" : `${first.path}: `;
      const message = `${file}:${first?.line ?? 1} ${field}${first?.message ?? "cannot be read"}`;
      const fault: Fault = { reason: "Unreadable", path: "", message };
      const { uid, generation, createdAt } = identity;
      // Another generation: the text that cannot be read is not what was published.
      return [
        {
          ...object,
          uid,
          generation: generation + 1,
          createdAt,
          creationTimestamp: null,
          spec: null,
          faults: [fault],
        },
      ];
    });
  }

  async #secrets(faults: LocatedFault[]): Promise<Map<string, Readonly<Record<string, string>>>> {
    const keys = await readKeyFiles(this.#dataFolder, ({ file, namespace, secret: name, code }) => {
      const fault = { ...fileFault(1, `cannot be read: ${code}`), hidesObject: false };
      faults.push({ ...fault, file, kind: "Secret", namespace, name });
    });
    const secrets = new Map<string, Readonly<Record<string, string>>>(keys);
    const seen = new Map<string, string>();
    for (const [file, { parsed }] of this.#files)
      for (const secret of parsed.secrets) {
        const key = reference(secret);
        const first = seen.get(key);
        if (first !== undefined) {
          faults.push({ ...duplicate({ kind: "Secret", ...secret }, first), file });
          continue;
        }
        seen.set(key, file);
        secrets.set(key, withGenerated(secret.data, keys.get(key)));
      }
    return secrets;
  }
}

/** Adds the generated keys of a Secret to what a manifest gives it. An empty value is a missing one (plan/credentials.ts). */
function withGenerated(
  data: SecretDocument["data"],
  generated: Readonly<Record<string, string>> | undefined,
): Readonly<Record<string, string>> {
  if (generated === undefined) return data;
  return {
    ...data,
    ...generated,
    ...Object.fromEntries(Object.entries(data).filter(([, value]) => value !== "")),
  };
}

async function parseFound({ path, size, fault }: FoundFile, options: ParseOptions): Promise<ParsedFile> {
  if (fault !== null) return unreadable(1, `cannot be read: ${fault}`);
  if (size > MAX_FILE_BYTES) return unreadable(1, `is larger than ${MAX_FILE_BYTES / 1024 / 1024} MiB`);
  return await readFile(path).then(
    (bytes) => parseBytes(bytes, options),
    (error: NodeJS.ErrnoException) => unreadable(1, `cannot be read: ${error.code ?? error.message}`),
  );
}

const unreadable = (line: number, message: string): ParsedFile => ({
  manifests: [],
  secrets: [],
  faults: [fileFault(line, message)],
});

/** Parses UTF-8 only: another encoding read as UTF-8 would have its letters replaced, in credentials too. */
const parseBytes = (bytes: Buffer, options: ParseOptions): ParsedFile =>
  isUtf8(bytes)
    ? parseFile(bytes.toString("utf8"), options)
    : unreadable(lineOutsideUtf8(bytes), "is not UTF-8 text");

function lineOutsideUtf8(bytes: Buffer): number {
  let line = 1;
  for (let end = bytes.indexOf("\n"), from = 0; end >= 0 && isUtf8(bytes.subarray(from, end)); line += 1) {
    from = end + 1;
    end = bytes.indexOf("\n", from);
  }
  return line;
}

/** Whether the file may hold objects that could not be read. */
const isBroken = (parsed: ParsedFile) => parsed.faults.some(({ hidesObject }) => hidesObject);

function mergeSecrets(kept: readonly SecretDocument[], read: readonly SecretDocument[]): SecretDocument[] {
  const present = new Set(read.map(reference));
  return [...read, ...kept.filter((secret) => !present.has(reference(secret)))];
}

const named = ({ kind, namespace, name }: Named) => ({ kind, namespace, name });
const manifestPart = ({ spec, faults, creationTimestamp }: Manifest) => ({ spec, faults, creationTimestamp });

const duplicate = (
  { kind, namespace, name, line }: Pick<FileFault, "kind" | "namespace" | "name" | "line">,
  first: string,
): FileFault => ({
  line,
  kind,
  namespace,
  name,
  path: "metadata.name",
  reason: "Duplicate",
  message: `${kind} ${reference({ namespace, name })} is declared in ${first} too; the first one counts`,
  hidesObject: false,
});
