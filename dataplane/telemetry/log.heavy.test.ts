import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";

const program = (last: string) => `
  import { createLogger, flushed, logRequest } from ${JSON.stringify(new URL("./log.ts", import.meta.url).href)};
  const log = createLogger("info");
  for (let n = 0; n < 1_000; n += 1) logRequest(log, "info", { n, path: "/é€\u{1F600}".repeat(n % 50) });
  logRequest(log, "warn", { n: 1_000, path: "€".repeat(100_000) });
  log.info({ n: 1_001, path: "/" }, "other");
  ${last}
`;

test.each([
  ["its end", ""],
  ["exit", "process.exit();"],
  ["an exit that waits for them", "await flushed(log); process.kill(process.pid, 'SIGKILL');"],
  [
    "a fatal line",
    'await flushed(log); log.fatal({ n: 1_002, path: "" }, "over"); process.kill(process.pid, "SIGKILL");',
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
