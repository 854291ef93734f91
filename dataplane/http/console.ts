/**
 * The console: a static page under `/console/` (rules 11.1, 11.5) that calls only the public API. Built by
 * dataplane/console/build.ts, read once, answered from memory. Only a sign-in page's policy depends on an organization.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import { createHash } from "node:crypto";
import * as fs from "node:fs/promises";
import { extname, join, relative, sep } from "node:path";
import { ApiError } from "../lib/api-error.ts";
import { signInOrigins } from "./console-sign-in.ts";
import { pathOf } from "./error-style.ts";
import type { Routes } from "./route.ts";

const types: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};
/** Content codings, the best first. */
const codings = [
  { name: "zstd", suffix: ".zst" },
  { name: "gzip", suffix: ".gz" },
] as const;
type Coding = (typeof codings)[number]["name"];

/** Policy under which text that became markup by mistake can neither run nor call anybody but us and these origins. */
const policyWith = (origins: readonly string[]) =>
  [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data: blob:",
    `connect-src ${["'self'", ...origins].join(" ")}`,
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; ");
const policy = policyWith([]);

interface ConsoleFile {
  readonly type: string;
  readonly etag: string;
  readonly bytes: Buffer;
  readonly coded: Readonly<Partial<Record<Coding, Buffer>>>;
}
/** Files by their path after `/console/`. */
export type ConsoleFiles = ReadonlyMap<string, ConsoleFile>;

const INDEX = "index.html";
/** Files that the bundler named by their content, which never changes under its name. */
const IMMUTABLE = "assets/";
/** Prefix of sign-in pages, before an organization's id. A person who has signed in stays on the page loaded there. */
const SIGN_IN = "sign-in/";
const SIGN_IN_PAGE = new RegExp(`^${SIGN_IN}([^/]+)/*$`);

/** Reads the built console. @throws Error when it was not built. */
export async function readConsole(folder: string): Promise<ConsoleFiles> {
  const entries = await fs.readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  const files = new Map<string, ConsoleFile>();
  for (const path of paths) {
    const type = types[extname(path)];
    if (type === undefined) continue;
    const bytes = await fs.readFile(path);
    const coded: Partial<Record<Coding, Buffer>> = {};
    for (const { name, suffix } of codings)
      if (paths.includes(path + suffix)) coded[name] = await fs.readFile(path + suffix);
    const etag = createHash("sha256").update(bytes).digest("base64url").slice(0, 22);
    files.set(relative(folder, path).split(sep).join("/"), { type, etag, bytes, coded });
  }
  if (!files.has(INDEX)) throw new Error(`the console is not built: ${folder} has no ${INDEX}`);
  return files;
}

export const consoleRoutes =
  (files: ConsoleFiles): Routes =>
  (app, services) => {
    /** The policy of a page. Only an organization's sign-in page may call that organization's provider. */
    const policyOf = (name: string): string => {
      // The page reads its address without slashes at the end as well (console/src/router.ts).
      const named = SIGN_IN_PAGE.exec(name)?.[1];
      const organization = named === undefined ? null : decoded(named);
      return organization === null ? policy : policyWith(signInOrigins(services.snapshot(), organization));
    };
    const open = { config: { access: "none" } } as const;
    const answer = (request: FastifyRequest, reply: FastifyReply) => {
      const path = pathOf(request.url);
      const name = path.slice("/console/".length);
      reply.headers({
        "content-security-policy": policyOf(name),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
      });
      // Links inside of the page are relative to `/console/`.
      if (path === "/console") return reply.redirect("/console/", 308);
      // A view's address opens the page, which shows that view; only assets can be missing.
      const file = files.get(name) ?? (name.startsWith(IMMUTABLE) ? undefined : files.get(INDEX));
      if (file === undefined) throw new ApiError("not_found", `The console has no ${path.slice(0, 200)}.`);
      // The policy follows the organization's declaration: a cached page would have an older one.
      if (name.startsWith(SIGN_IN))
        return reply.header("cache-control", "no-store").type(file.type).send(file.bytes);
      return send(request, reply, file, name.startsWith(IMMUTABLE));
    };
    app.get("/console", open, answer);
    app.get("/console/*", open, answer);
  };

function send(request: FastifyRequest, reply: FastifyReply, file: ConsoleFile, immutable: boolean) {
  const coding = codings.find(
    ({ name }) => file.coded[name] !== undefined && accepts(request.headers["accept-encoding"], name),
  )?.name;
  const etag = `"${file.etag}${coding === undefined ? "" : `-${coding}`}"`;
  reply.headers({
    etag,
    vary: "accept-encoding",
    "cache-control": immutable ? "public, max-age=31536000, immutable" : "no-cache",
  });
  const known = request.headers["if-none-match"]?.split(",").map((tag) => tag.trim().replace(/^W\//, ""));
  if (known?.some((tag) => tag === etag || tag === "*") === true) return reply.code(304).send();
  if (coding !== undefined) reply.header("content-encoding", coding);
  return reply.type(file.type).send((coding === undefined ? undefined : file.coded[coding]) ?? file.bytes);
}

/** Whether the header names the coding, and not with `q=0`. */
function accepts(header: string | string[] | undefined, coding: Coding): boolean {
  return String(header ?? "")
    .split(",")
    .some((entry) => {
      const [name = "", ...parameters] = entry.split(";").map((part) => part.trim().toLowerCase());
      return name === coding && !parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter));
    });
}

/** Null: undecodable. */
function decoded(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch {
    return null;
  }
}
