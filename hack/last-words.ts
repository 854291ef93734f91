/** The last lines that a program logged, which often say why it ended. */
import * as fs from "node:fs";

const MAX_LINES = 5;
const MAX_BYTES = 4 * 1024;

/** The last lines of a log, whole ones as far as 4 KiB hold them; none where there is no log. */
export function lastWords(file: string): string[] {
  if (!fs.existsSync(file)) return [];
  const log = fs.openSync(file, "r");
  try {
    const { size } = fs.fstatSync(log);
    const from = Math.max(0, size - MAX_BYTES);
    const bytes = Buffer.alloc(size - from);
    const read = fs.readSync(log, bytes, 0, bytes.length, from);
    const lines = bytes.toString("utf8", 0, read).split("\n");
    return (from === 0 ? lines : lines.slice(1)).filter((line) => line.trim() !== "").slice(-MAX_LINES);
  } finally {
    fs.closeSync(log);
  }
}
