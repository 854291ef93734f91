/** What `npm start` prints when everything serves: where the keys are, and requests to try. */
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { join, relative } from "node:path";
import { allowedRoutes } from "../dataplane/config/find-route.ts";
import type { Limits, OrganizationEntry, Route } from "../dataplane/config/schema.ts";
import type { Snapshot } from "../dataplane/config/snapshot.ts";

/** Where the keys are, and three requests to try; the keys themselves are never shown. */
export function howToCall(address: string, served: Snapshot, data: string, now: number): string[] {
  const files = generatedKeys(join(data, "secrets"));
  const { routes, organizations } = served.routing;
  const keys = organizations.flatMap((organization) => [
    ...organization.apiKeys.map((key) => ({ ...key, organization, what: "key" })),
    ...organization.adminKeys.map((key) => ({ ...key, organization, what: "admin key" })),
  ]);
  const places = keys.map(({ what, name, organization, sha256 }) => {
    const file = files.get(sha256);
    return `${what} ${name} of ${organization.id}: ${file === undefined ? "in a Secret of your manifests" : shown(file)}`;
  });
  if (routes.length === 0) return [...places, "no model is declared yet"];
  if (organizations.length === 0) return ["no organization is served yet, so there is no key to ask with"];
  const usable = organizations
    .filter(({ suspended }) => !suspended)
    .toSorted((a, b) => Number(hasGrants(b)) - Number(hasGrants(a)))
    .flatMap((organization) => organization.apiKeys.map((key) => ({ organization, key })))
    .filter(({ key: { sha256, expiresAt = Infinity } }) => files.has(sha256) && expiresAt > now);
  for (const { organization, key } of usable) {
    const open = routesOf(served, organization, key);
    const file = quoted(shown(files.get(key.sha256) ?? ""));
    if (open.length > 0) return [...places, ...curlLines(address, `$(cat ${file})`, open)];
  }
  if (usable.length > 0) return [...places, "no model is declared yet that one of these keys may use"];
  return [
    ...places,
    "export GAPURA_KEY=... with one of your keys, then try:",
    ...curlLines(address, "$GAPURA_KEY", routes),
  ];
}

/** Whether an organization's manifest gives it credit; without any its requests get 402. */
const hasGrants = ({ grants }: OrganizationEntry): boolean =>
  grants.reduce((sum, { amountMicros }) => sum + BigInt(amountMicros), 0n) > 0n;

/** The routes that a key may use, in the order in which they are served. */
function routesOf(
  served: Snapshot,
  { id, keyDefaults, projectLimits }: OrganizationEntry,
  key: OrganizationEntry["apiKeys"][number],
): Route[] {
  const own: Limits = { ...keyDefaults, ...key.limits };
  const project: Limits = projectLimits?.[key.project] ?? {};
  const user = { organizationId: id, limits: [{ limits: own }, { limits: project }] };
  const open = new Set(allowedRoutes(served, user).map(({ model }) => model));
  return served.routing.routes.filter(({ model }) => open.has(model));
}

function curlLines(address: string, key: string, routes: readonly Route[]): string[] {
  const modelFor = (dialect: "messages" | "chat" | "responses") =>
    (routes.find(({ upstreams }) => upstreams[0]?.dialect === dialect) ?? routes[0])?.model;
  const curl = (path: string, header: string, body: object) =>
    `curl -s ${address}${path} -H "${header}" -H "content-type: application/json" -d ${quoted(JSON.stringify(body))}`;
  const question = [{ role: "user", content: "Hello!" }];
  return [
    curl("/v1/messages", `x-api-key: ${key}`, {
      model: modelFor("messages"),
      max_tokens: 200,
      messages: question,
    }),
    curl("/v1/chat/completions", `authorization: Bearer ${key}`, {
      model: modelFor("chat"),
      messages: question,
    }),
    curl("/v1/responses", `authorization: Bearer ${key}`, { model: modelFor("responses"), input: "Hello!" }),
  ];
}

/** The operator's generated keys: digest → file. */
function generatedKeys(folder: string): Map<string, string> {
  const found = new Map<string, string>();
  if (!fs.existsSync(folder)) return found;
  for (const entry of fs.readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const key = fs.readFileSync(path, "utf8").trim();
    found.set(createHash("sha256").update(key).digest("hex"), path);
  }
  return found;
}

/** A path as the user can type it in their folder. */
export function shown(path: string): string {
  const short = relative(process.env["INIT_CWD"] ?? process.cwd(), path);
  return short.startsWith("..") || short === "" ? path : short;
}

function quoted(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
