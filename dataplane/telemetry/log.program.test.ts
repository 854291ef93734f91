import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";

const program = (last: string) => `
  import { createLogger, endLog, logRequest } from ${JSON.stringify(new URL("./log.ts", import.meta.url).href)};
  const log = createLogger("info");
  for (let n = 0; n < 1_000; n += 1) logRequest(log, "info", { n, path: "/é€\u{1F600}".repeat(n % 50) });
  logRequest(log, "warn", { n: 1_000, path: "€".repeat(100_000) });
  log.info({ n: 1_001, path: "/" }, "other");
  ${last}
`;

test.each([
  ["its end", ""],
  ["exit", "process.exit();"],
  ["an exit that waits for them", "await endLog(log); process.kill(process.pid, 'SIGKILL');"],
  [
    "a fatal line",
    'await endLog(log); log.fatal({ n: 1_002, path: "" }, "over"); process.kill(process.pid, "SIGKILL");',
  ],
])("all lines are written in their order at %s, whatever their length", (_, last) => {
  const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", program(last)], {
    encoding: "utf8",
  });
  const lines = stdout.split("\n").filter((line) => line !== "");
  const shown = lines.map((line) => JSON.parse(line) as { n: number; path: string });
  const count = last.includes("fatal") ? 1_003 : 1_002;
  expect(shown.map(({ n }) => n)).toEqual(Array.from({ length: count }, (_line, n) => n));
  expect(shown[49]?.path).toBe("/é€\u{1F600}".repeat(49));
  expect(shown[1_000]?.path).toBe("€".repeat(100_000));
});

test("whoever holds the log and does not read it keeps no process from its end", async () => {
  const lines = 'for (let n = 0; n < 5_000; n += 1) log.info({ n, pad: "x".repeat(200) }, "more");';
  const args = ["--input-type=module", "-e", program(`${lines} await endLog(log); process.exit(3);`)];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  child.stdout.pause();
  expect(await once(child, "exit")).toEqual([3, null]);
  child.stdout.destroy();
});
