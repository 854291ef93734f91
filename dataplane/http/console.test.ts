import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync, gzipSync, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import Fastify, { type FastifyInstance } from "fastify";
import { consoleRoutes, readConsole } from "./console.ts";
import type { HttpServices } from "./route.ts";

const folder = fs.mkdtempSync(join(tmpdir(), "gapura-console-"));
const script = `console.log("${"x".repeat(2000)}")`;
let app: FastifyInstance;

beforeAll(async () => {
  fs.mkdirSync(join(folder, "assets"));
  fs.writeFileSync(join(folder, "index.html"), "<!doctype html><title>Gapura</title>");
  fs.writeFileSync(join(folder, "assets", "main-abc.js"), script);
  fs.writeFileSync(join(folder, "assets", "main-abc.js.gz"), gzipSync(script));
  fs.writeFileSync(join(folder, "assets", "main-abc.js.zst"), zstdCompressSync(script));
  fs.writeFileSync(join(folder, ".built-from"), "digest");
  app = Fastify({ routerOptions: { ignoreTrailingSlash: true } });
  consoleRoutes(await readConsole(folder))(app, {} as HttpServices);
});
afterAll(async () => {
  await app.close();
  fs.rmSync(folder, { recursive: true });
});

const get = async (url: string, headers: Record<string, string> = {}) => await app.inject({ url, headers });

test("every address of a view answers the page, under the strict policy", async () => {
  for (const url of ["/console/", "/console/keys", "/console/usage?from=2026-11-01", "/console/index.html"]) {
    const answer = await get(url);
    expect([url, answer.statusCode, answer.headers["content-type"]]).toEqual([
      url,
      200,
      "text/html; charset=utf-8",
    ]);
    expect(answer.body).toContain("<title>Gapura</title>");
    expect(answer.headers["cache-control"]).toBe("no-cache");
    expect(answer.headers["x-content-type-options"]).toBe("nosniff");
    expect(answer.headers["referrer-policy"]).toBe("no-referrer");
    const policy = String(answer.headers["content-security-policy"]);
    for (const part of [
      "script-src 'self'",
      "frame-ancestors 'none'",
      "base-uri 'none'",
      "form-action 'self'",
    ])
      expect(policy).toContain(part);
    expect(policy).toContain("require-trusted-types-for 'script'");
    expect(policy).not.toMatch(/unsafe|https?:|\*/);
  }
});

test("/console leads to /console/", async () => {
  const answer = await get("/console");
  expect([answer.statusCode, answer.headers["location"]]).toEqual([308, "/console/"]);
});

test("assets never change, and come in the best coding that the client takes", async () => {
  const url = "/console/assets/main-abc.js";
  const plain = await get(url);
  expect([plain.body, plain.headers["content-encoding"]]).toEqual([script, undefined]);
  expect(plain.headers["cache-control"]).toContain("immutable");
  const gzip = await get(url, { "accept-encoding": "gzip, br, zstd;q=0" });
  expect([gzip.headers["content-encoding"], String(gunzipSync(gzip.rawPayload))]).toEqual(["gzip", script]);
  const zstd = await get(url, { "accept-encoding": "gzip, deflate, br, zstd" });
  expect([zstd.headers["content-encoding"], String(zstdDecompressSync(zstd.rawPayload))]).toEqual([
    "zstd",
    script,
  ]);
  expect(new Set([plain, gzip, zstd].map(({ headers }) => headers["etag"])).size).toBe(3);
  expect(zstd.headers["vary"]).toBe("accept-encoding");
});

test("who has it already gets 304 without a body", async () => {
  const first = await get("/console/");
  const again = await get("/console/", { "if-none-match": `W/${String(first.headers["etag"])}, "other"` });
  expect([again.statusCode, again.body]).toEqual([304, ""]);
});

test("an asset that is not there is 404, and nothing outside of the folder is read", async () => {
  expect((await get("/console/assets/gone.js")).json()).toMatchObject({ code: "not_found" });
  expect((await get("/console/.built-from")).body).toContain("<title>");
  expect((await get("/console/..%2f..%2fpackage.json")).body).toContain("<title>");
});

test("without a build there is none to serve", async () => {
  await expect(readConsole(join(folder, "nowhere"))).rejects.toThrow("the console is not built");
});
