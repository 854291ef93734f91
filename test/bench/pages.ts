/**
 * Pages per second and latency of the extraction pool, over pages of three sizes:
 * `node hack/ensure.mjs test/bench/pages.ts [SECONDS]`.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { defaultPoolLimits, ExtractionPool } from "../../dataplane/tools/web-fetch/extract/pool.ts";

const seconds = Number(process.argv[2] ?? 5);
const source = readFileSync(join(import.meta.dirname, "../golden/pages/news-article/source.html"), "utf8");
const paragraph = `<p>${"Rivers carry more than water, and people who live beside them know it. ".repeat(6)}</p>`;
const sized = (bytes: number) =>
  Buffer.from(
    `<title>T</title><main><h1>H</h1>${paragraph.repeat(Math.ceil(bytes / paragraph.length))}</main>`,
  );
const pages: Readonly<Record<string, Buffer>> = {
  "article 3 kB": Buffer.from(source),
  "page 100 kB": sized(100_000),
  "page 1 MB": sized(1_000_000),
  "plain 5 MB": sized(5_000_000),
};

const pool = new ExtractionPool(defaultPoolLimits);
pool.warm();
const { signal } = new AbortController();
const read = (bytes: Buffer) =>
  pool.extract(
    { kind: "html", charset: null, url: "https://example.com/", bytes },
    { organizationId: "org_bench", timeoutMs: 60_000 },
    signal,
  );
await Promise.all(Array.from({ length: 10 }, () => read(Buffer.from(source))));

for (const [name, bytes] of Object.entries(pages)) {
  const times: number[] = [];
  const end = performance.now() + seconds * 1000;
  const reader = async () => {
    while (performance.now() < end) {
      const started = performance.now();
      const outcome = await read(bytes);
      if (outcome.kind !== "extracted") throw new Error(outcome.reason);
      times.push(performance.now() - started);
    }
  };
  const started = performance.now();
  await Promise.all(Array.from({ length: defaultPoolLimits.children }, reader));
  const elapsed = (performance.now() - started) / 1000;
  times.sort((a, b) => a - b);
  const at = (share: number) => (times[Math.floor((times.length - 1) * share)] ?? 0).toFixed(1);
  console.log(
    `${name.padEnd(14)} ${(times.length / elapsed).toFixed(1).padStart(7)} pages/s   p50 ${at(0.5)} ms   p99 ${at(0.99)} ms`,
  );
}
await pool.close();
