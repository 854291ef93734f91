/** A small snapshot for tests, and its publication as files, the way the operator does it. */
import { createHash } from "node:crypto";
import { mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import {
  SCHEMA_VERSION,
  type Slot,
  type Credentials,
  type OrganizationEntry,
  type Route,
  type Routing,
  type SnapshotIndex,
  type Source,
  type Upstream,
} from "../../dataplane/config/schema.ts";
import { Snapshot } from "../../dataplane/config/snapshot.ts";

export const sha256 = (data: string | Buffer): string => createHash("sha256").update(data).digest("hex");

/** Keys of the sample organizations; nothing but these tests knows them. */
export const sampleKeys = {
  inference: `sk-svc-${"a".repeat(40)}`,
  admin: `sk-adm-svc-${"b".repeat(40)}`,
  narrow: `sk-svc-${"c".repeat(40)}`,
  suspended: `sk-svc-${"d".repeat(40)}`,
} as const;

export const sampleSource = (kind: Source["kind"], name: string): Source => ({
  kind,
  namespace: "default",
  name,
  uid: `uid-${kind}-${name}`,
  generation: 1,
});

export const sampleUpstream = (overrides: Partial<Upstream> = {}): Upstream => ({
  name: "primary",
  dialect: "messages",
  url: "http://127.0.0.1:9/v1/messages",
  countTokensUrl: null,
  model: "upstream-model",
  priority: 0,
  weight: 100,
  credential: null,
  headers: {},
  dedicatedTo: null,
  ...overrides,
});

export const sampleRoute = (model: string, overrides: Partial<Route> = {}): Route => ({
  source: sampleSource("ModelRoute", model),
  model,
  aliases: [],
  displayName: model,
  ownedBy: "gapura",
  createdAt: 1_790_000_000,
  capabilities: {
    toolCalling: true,
    imageInput: true,
    pdfInput: false,
    thinking: true,
    countTokens: true,
    documentCitations: false,
    samplingParameters: true,
  },
  limits: { contextTokens: 200_000, maxOutputTokens: 64_000 },
  upstreams: [sampleUpstream()],
  affinity: "prompt",
  timeouts: { connectMs: 5000, firstByteMs: null, streamIdleMs: 120_000, requestMs: 600_000 },
  retries: { attempts: 2, retryOn: ["connect", "rate_limited", "server_error", "first_byte_timeout"] },
  toolPolicy: null,
  prices: {
    source: sampleSource("PriceTable", "default"),
    input: "96",
    output: "480",
    cacheRead: "9.6",
    cacheWrite5m: "120",
    cacheWrite1h: "192",
    tools: { webSearch: "320", webFetch: "0", xSearchPost: "160", xSearchProfile: "320" },
  },
  ...overrides,
});

export const sampleOrganization = (
  id: string,
  overrides: Partial<OrganizationEntry> = {},
): OrganizationEntry => ({
  source: sampleSource("Organization", id),
  id,
  displayName: id,
  suspended: false,
  grants: [{ name: "start", amountMicros: "1000000000" }],
  allowedModels: ["*"],
  toolCallsPerMinute: null,
  storage: sampleStorage,
  rateLimits: { requestsPerMinute: null, tokensPerMinute: null, concurrentRequests: null },
  projects: ["default"],
  apiKeys: [],
  adminKeys: [],
  ...overrides,
});

const key = (name: string, value: string) => ({ name, sha256: sha256(value), hint: value.slice(0, 14) });

/** Three models, one organization that may use all of them, one that may use little, one that is suspended. */
export function sampleRouting(serial: number, overrides: Partial<Routing> = {}): Routing {
  return {
    schemaVersion: SCHEMA_VERSION,
    serial,
    routes: [
      sampleRoute("alpha", { aliases: ["alpha-latest"], displayName: "Alpha" }),
      sampleRoute("beta", { createdAt: 1_790_000_100, ownedBy: "acme" }),
      sampleRoute("vendor/gamma", { createdAt: 1_790_000_200 }),
    ],
    policies: {},
    organizations: [
      sampleOrganization("org_acme", {
        apiKeys: [{ ...key("ci", sampleKeys.inference), project: "default" }],
        adminKeys: [key("root", sampleKeys.admin)],
      }),
      sampleOrganization("org_narrow", {
        allowedModels: ["al*"],
        apiKeys: [{ ...key("ci", sampleKeys.narrow), project: "default" }],
      }),
      sampleOrganization("org_suspended", {
        suspended: true,
        apiKeys: [{ ...key("ci", sampleKeys.suspended), project: "default" }],
      }),
    ],
    objects: [sampleSource("ModelRoute", "alpha")],
    ...overrides,
  };
}

/** The defaults of `Organization.spec.storage`. */
export const sampleStorage = { maxBytes: 10 * 2 ** 30, maxFiles: 100_000 };

export const sampleCredentials = (serial: number, values: Record<string, string> = {}): Credentials => ({
  serial,
  values,
});

export function sampleSnapshot(
  routing: Routing = sampleRouting(1),
  credentials: Record<string, string> = {},
): Snapshot {
  const index = indexOf("a", routing, [], []);
  return new Snapshot(index, routing, sampleCredentials(routing.serial, credentials));
}

function indexOf(slot: Slot, routing: Routing, pieces: Buffer[], credentials: Buffer[]): SnapshotIndex {
  const { serial: _serial, ...rest } = routing;
  return {
    schemaVersion: routing.schemaVersion,
    serial: routing.serial,
    hash: sha256(JSON.stringify(rest)),
    routing: pieces.map((piece, n) => ({ file: `${slot}-${n}.gz`, sha256: sha256(piece) })),
    credentials: credentials.map((piece, n) => ({
      file: `${slot}-credentials-${n}.gz`,
      sha256: sha256(piece),
    })),
  };
}

/** The files of a slot: names and contents, the index last. */
export function slotFiles(
  slot: Slot,
  routing: Routing,
  credentials: Credentials = sampleCredentials(routing.serial),
  pieceBytes = 700 * 1024,
): [string, Buffer][] {
  const pieces = cut(gzipSync(JSON.stringify(routing)), pieceBytes);
  const secret = cut(gzipSync(JSON.stringify(credentials)), pieceBytes);
  const index = indexOf(slot, routing, pieces, secret);
  return [
    ...pieces.map((piece, n): [string, Buffer] => [`${slot}-${n}.gz`, piece]),
    ...secret.map((piece, n): [string, Buffer] => [`${slot}-credentials-${n}.gz`, piece]),
    [`${slot}-index.json`, Buffer.from(JSON.stringify(index))],
  ];
}

function cut(bytes: Buffer, pieceBytes: number): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += pieceBytes) pieces.push(bytes.subarray(at, at + pieceBytes));
  return pieces;
}

/** Writes files as the folder operator does: each under another name first, then renamed. */
export async function writeFiles(directory: string, files: readonly [string, Buffer][]): Promise<void> {
  await mkdir(directory, { recursive: true });
  for (const [name, bytes] of files) {
    await writeFile(join(directory, `.${name}.tmp`), bytes);
    await rename(join(directory, `.${name}.tmp`), join(directory, name));
  }
}
