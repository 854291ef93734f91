import { readFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  defaultPoolLimits,
  ExtractionPool,
  type Extraction,
  type PageTurn,
  type PoolLimits,
} from "../../dataplane/tools/web-fetch/extract/pool.ts";
import { leastOf, LoopTurns } from "../fakes/loop-turns.ts";

const never = new AbortController().signal;
const pools: ExtractionPool[] = [];
afterEach(async () => {
  for (const pool of pools.splice(0)) await pool.close();
});

function newPool(limits: Partial<PoolLimits> = {}): ExtractionPool {
  const pool = new ExtractionPool({ ...defaultPoolLimits, ...limits });
  pools.push(pool);
  return pool;
}

const anyone = { organizationId: "org_a", timeoutMs: 60_000 };

function read(
  pool: ExtractionPool,
  html: string | Buffer,
  signal = never,
  turn: Partial<PageTurn> = {},
): Promise<Extraction> {
  const bytes = Buffer.isBuffer(html) ? html : Buffer.from(html);
  const page = { kind: "html", charset: null, url: "https://example.com/dir/page", bytes } as const;
  return pool.extract(page, { ...anyone, ...turn }, signal);
}

/**
 * Reads a page again, twice at most, while it is late: children run behind everything else, and a busy machine may leave them no
 * time. What takes too long by itself is late each time.
 */
async function readInTime(pool: ExtractionPool, html: string | Buffer): Promise<Extraction> {
  for (let run = 1; ; run += 1) {
    const outcome = await read(pool, html);
    if (run === 3 || outcome.kind !== "failed" || outcome.reason !== "late") return outcome;
  }
}

const alive = (pid: number) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

/** Formatting elements that are never closed are opened again in each paragraph: two million elements. */
const reopened = `${Array.from({ length: 150 }, (_, id) => `<b id=${id}>`).join("")}${"<p>x".repeat(13_000)}`;
const simple = "<title>T</title><p>Hello <a href=x>link</a>";
const simpleText = "Hello [link](https://example.com/dir/x)";

/** Takes the time that there is for a DOM, whatever it is. */
const slow = reopened;

/** One pool for all hostile pages: each finds it as the one before left it. */
const shared = new ExtractionPool({ ...defaultPoolLimits, domTimeoutMs: 1_500, killAfterMs: 6_000 });
// What the first page would wait for: children that start, and code that is loaded and compiled here.
beforeAll(async () => {
  await read(shared, simple);
});
afterAll(() => shared.close());

describe("no page blocks the event loop for more than 50 ms or takes the data plane's memory", () => {
  test.each<[string, string | Buffer, string]>([
    ["20,000 nested elements", "<div>".repeat(20_000) + "deep", "plain"],
    ["depth at the limit", "<div>".repeat(159) + "deep", "any"],
    ["depth beyond it", "<div>".repeat(165) + "deep", "plain"],
    ["nested tables at the limit", "<table>".repeat(159) + "deep", "any"],
    ["nested lists with items", "<ul><li>".repeat(159) + "deep", "any"],
    ["a wide page that is deep everywhere", `${"<div>".repeat(150)}${"<b>x</b>".repeat(20_000)}`, "plain"],
    ["10 MB of attributes on one element", `<p ${"a=b ".repeat(2_500_000)}>x`, "plain"],
    ["10 MB of attributes on many", `<p ${"a=b ".repeat(100)}>x`.repeat(25_000), "plain"],
    ["one attribute of 10 MB", `<p title="${"a".repeat(10_000_000)}">x`, "plain"],
    [
      "an entity bomb in a DTD",
      `<!DOCTYPE x [<!ENTITY a "${"b".repeat(100)}"><!ENTITY c "${"&a;".repeat(100)}">]><p>${"&c;".repeat(10_000)}`,
      "markdown",
    ],
    ["a million entities", "&lt;".repeat(1_000_000), "plain"],
    ["formatting elements opened anew", reopened, "plain"],
    ["misnested links and tables", "<a><table><tr><a><td><b>".repeat(120) + "<p>x".repeat(5_000), "any"],
    ["10 MB of <", "<".repeat(10_000_000), "plain"],
    ["10 MB of open quotes", "<a href='".repeat(1_000_000), "plain"],
    ["10 MB of unclosed comments", "<!--".repeat(2_500_000), "plain"],
    ["10 MB of unclosed navigation", "<nav>".repeat(2_000_000), "plain"],
    ["10 MB of blanks between tags", "<b> </b> ".repeat(1_100_000), "plain"],
    ["10 MB of links", "<a href=/x>y</a> ".repeat(600_000), "plain"],
    ["10 MB of end tags", "</div>".repeat(1_600_000), "plain"],
    ["unclosed scripts", "<script>".repeat(200_000), "any"],
    ["2 MB of prose", "<p>word word word word word word word word.</p>".repeat(40_000), "any"],
    ["random bytes", Buffer.from(Array.from({ length: 200_000 }, (_, index) => (index * 7919) % 256)), "any"],
    ["NULs", Buffer.alloc(1_000_000), "any"],
    ["an empty page", "", "any"],
    ["style bombs", `<style>${"a{b:c}".repeat(200_000)}</style><p>x`, "markdown"],
    ["inline style bombs", `<p style="${"a:b;".repeat(100_000)}">x`, "markdown"],
    ["selects and options", `<select>${"<option>x".repeat(20_000)}</select><p>x`, "any"],
    [
      "frames and refreshes",
      '<meta http-equiv=refresh content="0;url=http://127.0.0.1/"><iframe src="file:///etc/passwd"></iframe><img src="http://127.0.0.1/x"><link rel=stylesheet href="http://127.0.0.1/c"><p>x',
      "markdown",
    ],
    ["a hostile base", '<base href="file:///etc/"><a href="passwd">p</a>', "markdown"],
  ])(
    "%s",
    async (_, html, mode) => {
      const bytes = Buffer.isBuffer(html) ? html : Buffer.from(html);
      const before = process.memoryUsage.rss();
      const longest = await leastOf(50, async () => {
        const turns = new LoopTurns();
        const outcome = await readInTime(shared, bytes);
        expect(outcome).toMatchObject(mode === "any" ? { kind: "extracted" } : { kind: "extracted", mode });
        return turns.stop();
      });
      expect(longest).toBeLessThan(50);
      expect(process.memoryUsage.rss() - before).toBeLessThan(300 * 1024 * 1024);
      expect(await read(shared, simple)).toMatchObject({ text: simpleText });
      for (const pid of shared.pids) expect(rssOf(pid)).toBeLessThan(900 * 1024 * 1024);
    },
    90_000,
  );
});

/** Resident bytes of a process, from /proc. */
function rssOf(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) * 1024;
}

describe("the pool", () => {
  test("a page that takes its child's memory is read without a DOM by another, and the pool is whole again", async () => {
    const pool = newPool({ children: 1, heapMiB: 48, domTimeoutMs: 20_000, killAfterMs: 25_000 });
    expect(await read(pool, simple)).toMatchObject({ mode: "markdown" });
    const [first] = pool.pids;
    expect(await read(pool, reopened)).toMatchObject({ kind: "extracted", mode: "plain" });
    expect(pool.pids).not.toContain(first);
    expect(await read(pool, simple)).toMatchObject({ mode: "markdown", title: "T", text: simpleText });
  }, 90_000);

  test("a child that hangs is killed and replaced", async () => {
    // The kill comes before the child's own interrupt.
    const pool = newPool({ children: 1, domTimeoutMs: 20_000, killAfterMs: 2_000 });
    await read(pool, simple);
    const [first] = pool.pids;
    expect(await readInTime(pool, reopened)).toMatchObject({ kind: "extracted", mode: "plain" });
    expect(pool.pids).toHaveLength(1);
    expect(first !== undefined && alive(first)).toBe(false);
  }, 60_000);

  test("where children have no time the page is late, not broken", async () => {
    const pool = newPool({ children: 1, killAfterMs: 1 });
    expect(await read(pool, simple)).toEqual({ kind: "failed", reason: "late" });
  });

  test("a child killed from outside costs nobody a page", async () => {
    const pool = newPool({ children: 1 });
    pool.warm();
    const reading = read(pool, simple);
    for (const pid of pool.pids) process.kill(pid, "SIGKILL");
    expect(await reading).toMatchObject({ text: "Hello [link](https://example.com/dir/x)" });
  });

  test("a child ignores the signals of its process group, runs behind everything else, and ends with its input", async () => {
    const pool = newPool({ children: 1 });
    await read(pool, simple);
    const [pid = 0] = pool.pids;
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.kill(pid, signal);
    expect(await read(pool, simple)).toMatchObject({ kind: "extracted" });
    expect(pool.pids).toEqual([pid]);
    const niceness = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ")[16];
    expect(Number(niceness)).toBeGreaterThanOrEqual(10);
  });

  test("closing ends every child and everything that waits", async () => {
    const pool = newPool({ children: 2 });
    pool.warm();
    const { pids } = pool;
    expect(pids).toHaveLength(2);
    const reading = [read(pool, reopened), read(pool, reopened), read(pool, simple)];
    await pool.close();
    for (const outcome of await Promise.all(reading)) {
      expect(outcome).toEqual({ kind: "failed", reason: "aborted" });
    }
    expect(pids.filter(alive)).toEqual([]);
    expect(await read(pool, simple)).toEqual({ kind: "failed", reason: "aborted" });
  });

  test("more pages than may wait are turned away, and a caller that gives up leaves the queue", async () => {
    const pool = newPool({ children: 1, queued: 2 });
    const controller = new AbortController();
    const first = read(pool, simple);
    const waiting = [read(pool, simple), read(pool, simple, controller.signal)];
    expect(await read(pool, simple)).toEqual({ kind: "failed", reason: "busy" });
    controller.abort();
    expect(await waiting[1]).toEqual({ kind: "failed", reason: "aborted" });
    expect((await Promise.all([first, waiting[0]])).map((outcome) => outcome?.kind)).toEqual([
      "extracted",
      "extracted",
    ]);
  });

  test("rule 7.6: another organization's page waits for one of thirty pages, not for all of them", async () => {
    const pool = newPool({ children: 2, domTimeoutMs: 1_500, killAfterMs: 6_000 });
    await read(pool, simple);
    let flooded = 0;
    const flood = Array.from({ length: 30 }, () =>
      read(pool, slow).then(() => {
        flooded += 1;
      }),
    );
    for (let page = 0; page < 3; page += 1) {
      const before = flooded;
      const outcome = await read(pool, simple, never, { organizationId: "org_b" });
      expect(outcome).toMatchObject({ text: simpleText });
      // One that ran already, and one that ended at the same moment beside it.
      expect(flooded - before).toBeLessThanOrEqual(2);
    }
    await pool.close();
    await Promise.all(flood);
  }, 60_000);

  test("more pages of one organization than may wait are turned away, another's are not", async () => {
    const pool = newPool({ children: 1, queuedOfOne: 2 });
    const pages = Array.from({ length: 5 }, () => read(pool, simple));
    const other = read(pool, simple, never, { organizationId: "org_b" });
    const reasons = (await Promise.all(pages)).map((page) => (page.kind === "failed" ? page.reason : "read"));
    expect(reasons).toEqual(["read", "read", "read", "busy", "busy"]);
    expect(await other).toMatchObject({ kind: "extracted" });
  });

  test("a page's own time runs while it is read, not while it waits; its wait has a limit of its own", async () => {
    const pool = newPool({ children: 1, domTimeoutMs: 1_500, killAfterMs: 6_000 });
    await read(pool, simple);
    const long = read(pool, slow);
    const patient = read(pool, simple, never, { organizationId: "org_b", timeoutMs: 1_000 });
    expect(await read(pool, slow, never, { timeoutMs: 50 })).toEqual({ kind: "failed", reason: "late" });
    expect(await long).toMatchObject({ kind: "extracted" });
    expect(await patient).toMatchObject({ kind: "extracted" });
    const hurried = newPool({ children: 1, waitMs: 50, domTimeoutMs: 1_500, killAfterMs: 6_000 });
    const first = read(hurried, slow);
    expect(await read(hurried, simple)).toEqual({ kind: "failed", reason: "busy" });
    await first;
  }, 30_000);

  test("a child that has grown is replaced after its page", async () => {
    const pool = newPool({ children: 1, retireRss: 1 });
    await read(pool, simple);
    const [first] = pool.pids;
    expect(await read(pool, simple)).toMatchObject({ kind: "extracted" });
    expect(pool.pids).not.toContain(first);
  });

  test("many pages at once are all read", async () => {
    const pool = newPool({ children: 2 });
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, (_, index) => read(pool, `<p>Page number ${index} and more.</p>`)),
    );
    expect(outcomes.map((outcome) => outcome.kind === "extracted" && outcome.text)).toEqual(
      outcomes.map((_, index) => `Page number ${index} and more.`),
    );
  });
});
