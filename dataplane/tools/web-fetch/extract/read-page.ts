/** How an extraction child reads one page: as it is, through a DOM, or without one. */
import { Script } from "node:vm";
import { decodePage } from "./charset.ts";
import type { ExtractionHead, ExtractionJob } from "./job.ts";
import { htmlToMarkdown } from "./markdown.ts";
import { fitsDom, measure, plainText } from "./scan.ts";

export type Extracted = Pick<ExtractionHead, "title" | "mode"> & { readonly text: string };

export function readPage(job: ExtractionJob, bytes: Buffer): Extracted {
  const page = decodePage(bytes, job.kind, job.charset);
  if (job.kind !== "html") return { title: null, mode: "verbatim", text: page };
  if (!job.plainOnly) {
    const measured = measure(page);
    if (fitsDom(bytes.length, measured)) {
      const read = withinTime(() => htmlToMarkdown(measured.html, job.url), job.domTimeoutMs);
      if (read !== null) return { ...read, mode: "markdown" };
    }
  }
  return { ...plainText(page, job.url), mode: "plain" };
}

/** The interrupt of `vm` stops any JavaScript below it, regular expressions included. */
const interruptible = new Script("__work()");

/** Null when the work fails (Readability overflows the stack on odd pages) or is not done in time. */
function withinTime<T>(work: () => T, timeoutMs: number): T | null {
  const global = globalThis as { __work?: () => T };
  global.__work = work;
  try {
    return interruptible.runInThisContext({ timeout: timeoutMs }) as T;
  } catch {
    return null;
  } finally {
    delete global.__work;
  }
}
