/**
 * The extraction child: reads pages from its input one after the other and writes their text to its output.
 * Started by `ExtractionPool` under `--permission` (no files written, no processes) with a small heap; it ends when
 * its input does. A page that takes too long is interrupted here and read without a DOM; a page that takes all memory
 * ends this process, and nothing else.
 */
import { Socket } from "node:net";
import { processStepsBack } from "../../../lib/step-back.ts";
import { encodeFrame, FrameReader, type ExtractionHead, type ExtractionJob } from "./job.ts";
import { readPage } from "./read-page.ts";

function answer(job: ExtractionJob, bytes: Buffer): void {
  const { text, ...read } = readPage(job, bytes);
  const head: ExtractionHead = { ...read, rss: process.memoryUsage.rss() };
  for (const part of encodeFrame(head, Buffer.from(text))) process.stdout.write(part);
}

// A page's code never runs, but if any code in here tried to connect, it would fail.
Socket.prototype.connect = () => {
  throw new Error("no connections from an extraction child");
};
// A signal to the whole process group must not interrupt pages that are still being drained.
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, () => undefined);
processStepsBack();
const frames = new FrameReader();
process.stdin.on("data", (chunk: Buffer) => {
  const frame = frames.push(chunk);
  if (frame !== null) answer(frame.head as ExtractionJob, frame.body);
});
process.stdin.on("end", () => process.exit(0));
