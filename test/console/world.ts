/** The product with its demo models, started once for all tests of the console (vitest's global set-up). */
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import { inject } from "vitest";
import type { TestProject } from "vitest/node";
import { startProduct, temporaryFolder } from "../integration/product.ts";

export interface ConsoleWorld {
  readonly url: string;
  readonly admin: string;
  readonly inference: string;
  readonly databaseUrl: string;
}

declare module "vitest" {
  export interface ProvidedContext {
    console: ConsoleWorld;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = temporaryFolder();
  const data = join(folder.path, "data");
  const manifests = resolve(import.meta.dirname, "../../hack/demo");
  const product = await startProduct({ manifests, data });
  const read = (...path: string[]) => fs.readFileSync(join(data, ...path), "utf8").trim();
  const { databaseUrl } = JSON.parse(read("stores.json")) as { databaseUrl: string };
  project.provide("console", {
    url: product.url,
    admin: read("secrets", "default", "demo-admin", "admin-key"),
    inference: read("secrets", "default", "demo-key", "api-key"),
    databaseUrl,
  });
  return async () => {
    await product.stop();
    folder[Symbol.dispose]();
  };
}

export const theWorld = (): ConsoleWorld => inject("console");

/** One request with a key; the answer as JSON. */
export async function api(
  key: string,
  method: string,
  path: string,
  body?: unknown,
): Promise<Record<string, unknown>> {
  const answer = await fetch(`${theWorld().url}${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return (await answer.json()) as Record<string, unknown>;
}

/** One small request to each of the demo's models. */
export async function ask(times = 1): Promise<void> {
  for (let time = 0; time < times; time += 1)
    for (const model of ["demo-messages", "demo-chat", "demo-responses"])
      await api(theWorld().inference, "POST", "/v1/chat/completions", {
        model,
        messages: [{ role: "user", content: `Hello, number ${time}` }],
      });
}
