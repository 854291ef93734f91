/** Parses one manifest file into what it declares. Pure: text in, documents and faults out. */
import { type Document, LineCounter, parseAllDocuments } from "yaml";
import { API_VERSION, dataKey, GROUP } from "../api/fields.ts";
import { isKind, type Kind, KINDS } from "../api/kinds.ts";
import { type Fault, pathText } from "../plan/objects.ts";
import { notText } from "../plan/read-spec.ts";
import {
  faultsAround,
  isMapping,
  type Mapping,
  missing,
  type PlacedFault,
  readMetadata,
} from "./metadata.ts";
import {
  aliasBeyond,
  endlessAt,
  MAX_ALIASED_VALUES,
  MAX_ANCHORS_AND_ALIASES,
  repeatedKey,
  unresolvedAlias,
} from "./yaml-bounds.ts";
import { Places } from "./yaml-places.ts";
import { otherForKubectl } from "./yaml-words.ts";

/** A declared object as it stands in a file; it has no uid and no generation yet. */
export interface Manifest {
  readonly kind: Kind;
  readonly namespace: string;
  readonly name: string;
  /** Unix seconds. */
  readonly creationTimestamp: number | null;
  readonly spec: unknown;
  readonly faults: readonly Fault[];
  readonly position: FilePosition;
  /** Line on which it begins. */
  readonly line: number;
}

/** Where an object stands in its file. */
export interface FilePosition {
  /** From 0. */
  readonly document: number;
  /** Index in the document's List, then in each List nested in that; empty: the document itself. */
  readonly items: readonly number[];
}

export interface SecretDocument {
  readonly namespace: string;
  readonly name: string;
  readonly data: Readonly<Record<string, string>>;
  readonly line: number;
}

/** A fault of the file or of a document in it, before there is an object that could have a status. */
export interface FileFault {
  readonly line: number;
  /** Kind, namespace and name of the object that the fault is about, each empty when not known. */
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly path: string;
  readonly reason: "Unreadable" | "Invalid" | "Duplicate";
  readonly message: string;
  /** Whether there may be an object that could not be read because of this fault. */
  readonly hidesObject: boolean;
}

type Subject = Pick<FileFault, "kind" | "namespace" | "name">;
const nobody: Subject = { kind: "", namespace: "", name: "" };

export interface ParsedFile {
  readonly manifests: readonly Manifest[];
  readonly secrets: readonly SecretDocument[];
  readonly faults: readonly FileFault[];
}

/** Number of steps of a path that are shown. */
const MAX_STEPS = 32;

export interface ParseOptions {
  /** Whether what kubectl would read otherwise is a fault. */
  readonly forKubectl?: boolean;
}

/** Reads all documents of a file; what is wrong with one keeps no other from being read. */
export function parseFile(text: string, { forKubectl = false }: ParseOptions = {}): ParsedFile {
  const collected: Collected = { manifests: [], secrets: [], faults: [] };
  if (text.length === 0) {
    collected.faults.push(fileFault(1, "the file is empty; delete it to remove what it declared"));
    return collected;
  }
  const { documents, lines } = readDocuments(text);
  for (const [number, document] of documents.entries()) {
    const line = lines.linePos(document.range[0]).line;
    const [error] = document.errors;
    if (error !== undefined) {
      const at = error.pos[0] < 0 ? line : lines.linePos(error.pos[0]).line;
      collected.faults.push(fileFault(at, `is not valid YAML: ${yamlMessage(error.message)}`));
      continue;
    }
    try {
      const repeated = repeatedKey(document);
      if (repeated !== null) {
        const at = lines.linePos(repeated.range?.[0] ?? 0).line;
        collected.faults.push(fileFault(at, "is not valid YAML: Map keys must be unique"));
        continue;
      }
      const beyond = aliasBeyond(document);
      if (beyond !== null) {
        const message = `it has more than ${MAX_ANCHORS_AND_ALIASES} anchors and aliases, or these stand for more than ${MAX_ALIASED_VALUES} values`;
        collected.faults.push(fileFault(lines.linePos(beyond).line, message));
        continue;
      }
      // Bounded above. The library would count uses of an anchor, and a PriceTable may use a small one a thousand times.
      const value: unknown = document.toJS({ maxAliasCount: -1 });
      if (value === null || value === undefined) continue;
      const places = new Places(document, lines);
      const path: PropertyKey[] = [];
      const endless = endlessAt(value, path, new Set());
      if (endless !== null) {
        collected.faults.push({ ...fileFault(places.lineAt(path), endless), path: shortPath(path) });
        continue;
      }
      const place: Place = {
        document: number,
        items: [],
        places,
        otherwise: (items) => (forKubectl ? otherForKubectl(places.item(items)) : []),
      };
      collect(value, place, collected);
    } catch (cause) {
      const alias = unresolvedAlias(document)?.range?.[0];
      const at = alias === undefined ? line : lines.linePos(alias).line;
      collected.faults.push(
        fileFault(at, `cannot be read: ${cause instanceof Error ? cause.message : "unknown"}`),
      );
    }
  }
  return collected;
}

const shortPath = (path: readonly PropertyKey[]) => pathText(path.slice(0, MAX_STEPS));

/** The first line of the parser's message. */
const yamlMessage = (message: string) => (message.split("\n")[0] ?? "").replace(/quote$/, " quote");

interface Collected {
  readonly manifests: Manifest[];
  readonly secrets: SecretDocument[];
  readonly faults: FileFault[];
}

function readDocuments(text: string): { documents: Document.Parsed[]; lines: LineCounter } {
  const lines = new LineCounter();
  const options = {
    lineCounter: lines,
    merge: true,
    // Keys are compared by `repeatedKey`.
    uniqueKeys: false,
    // Would copy the line of each fault, and a file may be one long line with many.
    prettyErrors: false,
    logLevel: "silent",
  } as const;
  const documents = parseAllDocuments(text, options);
  return { documents: Array.isArray(documents) ? documents : [], lines };
}

/** Makes a fault of the file as a whole. */
export const fileFault = (line: number, message: string): FileFault => ({
  line,
  ...nobody,
  path: "",
  reason: "Unreadable",
  message,
  hidesObject: true,
});

/** A position, and the places of its document. */
interface Place extends FilePosition {
  readonly places: Places;
  /** Finds what kubectl would read otherwise in an item of the document. */
  readonly otherwise: (items: readonly number[]) => readonly PlacedFault[];
}

function collect(value: unknown, place: Place, into: Collected): void {
  const { places, otherwise, ...position } = place;
  const line = (path: string) => places.lineOf(position.items, path);
  const add = (path: string, message: string, subject: Subject, hidesObject: boolean) =>
    into.faults.push({ line: line(path), ...subject, path, reason: "Invalid", message, hidesObject });
  const refuse = (path: string, message: string, subject = nobody) => add(path, message, subject, true);
  if (!isMapping(value)) {
    refuse("", "a document must be an object with apiVersion, kind and metadata");
    return;
  }
  const { apiVersion, kind } = value;
  if (typeof kind !== "string" || kind === "") {
    refuse("kind", missing(kind) ?? notText(kind));
    return;
  }
  if (typeof apiVersion !== "string" || apiVersion === "") {
    refuse("apiVersion", missing(apiVersion) ?? notText(apiVersion), { ...nobody, kind });
    return;
  }
  if (kind === "List" && Array.isArray(value["items"])) {
    for (const [item, inner] of value["items"].entries())
      collect(inner, { ...place, items: [...place.items, item] }, into);
    return;
  }
  const ours = isKind(kind) || apiVersion.startsWith(`${GROUP}/`);
  const plainSecret = kind === "Secret" && apiVersion === "v1";
  // Other kinds of a cluster (ConfigMaps too) may be in the folder and are ignored.
  if (!ours && !plainSecret) return;
  const metadata = readMetadata(value["metadata"]);
  if (metadata.name === null || metadata.namespace === null) {
    refuse(metadata.path, metadata.message, { ...nobody, kind });
    return;
  }
  const named = { namespace: metadata.namespace, name: metadata.name };
  const subject = { kind, ...named };
  for (const { path, message } of otherwise(position.items)) add(path, message, subject, false);
  if (plainSecret) {
    // The good values of a faulty Secret count: an object that refers to a bad one has a fault of its own.
    const tell = (path: string, text: string) => add(path, text, subject, false);
    for (const { path, message } of faultsAround(value, SECRET_FIELDS)) tell(path, message);
    into.secrets.push({ ...named, line: line(""), data: readSecret(value, tell) });
  } else if (!isKind(kind)) refuse("kind", `must be one of ${KINDS.join(", ")}`, subject);
  else if (apiVersion !== API_VERSION) refuse("apiVersion", `must be ${API_VERSION}`, subject);
  else
    into.manifests.push({
      kind,
      ...named,
      creationTimestamp: metadata.creationTimestamp,
      spec: value["spec"],
      faults: faultsAround(value, OWN_FIELDS).map((fault) => ({ reason: "Invalid", ...fault })),
      position,
      line: line(""),
    });
}

const OWN_FIELDS: ReadonlySet<string> = new Set(["apiVersion", "kind", "metadata", "spec", "status"]);
const SECRET_FIELDS: ReadonlySet<string> = new Set([
  "apiVersion",
  "kind",
  "metadata",
  "type",
  "data",
  "stringData",
  "immutable",
]);
const secretKey = dataKey();

/** The values of a Secret; a value never appears in a fault. */
function readSecret(value: Mapping, refuse: (path: string, message: string) => void): Record<string, string> {
  const data: Record<string, string> = {};
  const take = (
    field: "data" | "stringData",
    read: (text: string) => string | null,
    refusal: (value: unknown) => string,
  ) => {
    const entries = value[field];
    if (entries === undefined || entries === null) return;
    if (!isMapping(entries)) {
      refuse(field, "must be an object");
      return;
    }
    for (const [key, text] of Object.entries(entries)) {
      const fault = secretKey.safeParse(key).error?.issues[0];
      if (fault !== undefined) {
        refuse(pathText([field, key]), fault.message);
        continue;
      }
      const content = typeof text === "string" ? read(text) : null;
      if (content === null || key === "__proto__") refuse(pathText([field, key]), refusal(text));
      else data[key] = content;
    }
  };
  take("data", decodeBase64, () => "must be a string in base64");
  // As in a cluster, stringData wins.
  take("stringData", (text) => text, notText);
  return data;
}

function decodeBase64(text: string): string | null {
  const compact = text.replaceAll(/\s/g, "");
  if (compact.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(compact)) return null;
  return Buffer.from(compact, "base64").toString("utf8");
}

/** Finds the line of a fault: that of its field, or of the innermost node around it that is in the text. */
export type LineOf = (position: FilePosition, path: string) => number;

/** Parses the text again, once for all faults in it; only `validate` calls this, and only for files with faults. */
export function linesOf(text: string): LineOf {
  const { documents, lines } = readDocuments(text);
  const places = documents.map((document) => new Places(document, lines));
  return ({ document, items }, path) => places[document]?.lineOf(items, path) ?? 1;
}
