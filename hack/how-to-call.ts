/** What `npm start` prints when everything serves: where the keys are, and requests to try. */
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { join, relative } from "node:path";
import type { Routing } from "../dataplane/config/schema.ts";

/** Where the keys are, and three requests to try; the keys themselves are never shown. */
export function printHowToCall(address: string, routing: Routing, data: string): void {
  const files = generatedKeys(join(data, "secrets"));
  const keys = routing.organizations.flatMap((organization) => [
    ...organization.apiKeys.map((key) => ({ ...key, organization, what: "key" })),
    ...organization.adminKeys.map((key) => ({ ...key, organization, what: "admin key" })),
  ]);
  for (const { what, name, organization, sha256 } of keys) {
    const file = files.get(sha256);
    const place = file === undefined ? "in a Secret of your manifests" : shown(file);
    console.log(`${what} ${name} of ${organization.id}: ${place}`);
  }
  const usable = keys.filter(
    ({ what, organization, sha256 }) => what === "key" && !organization.suspended && files.has(sha256),
  );
  const chosen = usable.find(({ organization }) => hasGrants(organization)) ?? usable[0];
  const file = chosen === undefined ? undefined : files.get(chosen.sha256);
  const key = file === undefined ? "$GAPURA_KEY" : `$(cat ${quoted(shown(file))})`;
  if (file === undefined) console.log("export GAPURA_KEY=... with one of your keys, then try:");
  for (const line of curlLines(address, key, routing)) console.log(line);
}

/** Whether its manifest gives it credit; without any it is answered 402. */
const hasGrants = ({ grants }: Routing["organizations"][number]): boolean =>
  grants.reduce((sum, { amountMicros }) => sum + BigInt(amountMicros), 0n) > 0n;

function curlLines(address: string, key: string, { routes }: Routing): string[] {
  const modelFor = (dialect: "messages" | "chat" | "responses") =>
    (routes.find(({ upstreams }) => upstreams[0]?.dialect === dialect) ?? routes[0])?.model;
  const curl = (path: string, header: string, body: object) =>
    `curl -s ${address}${path} -H "${header}" -H "content-type: application/json" -d ${quoted(JSON.stringify(body))}`;
  const question = [{ role: "user", content: "Hello!" }];
  const [messages, chat, responses] = [modelFor("messages"), modelFor("chat"), modelFor("responses")];
  if (messages === undefined) return ["no model is declared yet"];
  return [
    curl("/v1/messages", `x-api-key: ${key}`, { model: messages, max_tokens: 200, messages: question }),
    curl("/v1/chat/completions", `authorization: Bearer ${key}`, { model: chat, messages: question }),
    curl("/v1/responses", `authorization: Bearer ${key}`, { model: responses, input: "Hello!" }),
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

/** A path as the user can type it from where they stand. */
export function shown(path: string): string {
  const short = relative(process.env["INIT_CWD"] ?? process.cwd(), path);
  return short.startsWith("..") || short === "" ? path : short;
}

function quoted(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
