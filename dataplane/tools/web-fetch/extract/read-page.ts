/** Reads one page in an extraction child: unchanged, through a DOM, or without one. */
import { Script } from "node:vm";
import { firstUnits } from "../../../lib/first-units.ts";
import { shortTitle } from "../../search-query.ts";
import { decodePage } from "./charset.ts";
import type { ExtractionHead, ExtractionJob } from "./job.ts";
import { htmlToMarkdown } from "./markdown.ts";
import { fitsDom, measure, plainText } from "./scan.ts";

export type Extracted = Pick<ExtractionHead, "title" | "mode"> & { readonly text: string };

/** Least bound on a page's text. Links become absolute, so short ones below a long address would multiply its length. */
const LEAST_TEXT_UNITS = 4 * 1024 * 1024;

/** Reads a page. Its text is at most as long as the page or `LEAST_TEXT_UNITS`, its title as a search result's. */
export function readPage(job: ExtractionJob, bytes: Buffer): Extracted {
  const most = Math.max(LEAST_TEXT_UNITS, bytes.length);
  const { title, mode, text } = readWhole(job, bytes, most);
  return { title: title === null ? null : shortTitle(title), mode, text: firstUnits(text, most) };
}

function readWhole(job: ExtractionJob, bytes: Buffer, mostUnits: number): Extracted {
  const page = decodePage(bytes, job.kind, job.charset);
  if (job.kind !== "html") return { title: null, mode: "verbatim", text: page };
  if (!job.plainOnly) {
    const measured = measure(page);
    if (fitsDom(bytes.length, measured)) {
      const read = withinTime(() => htmlToMarkdown(measured.html, job.url), job.domTimeoutMs);
      if (read !== null) return { ...read, mode: "markdown" };
    }
  }
  return { ...plainText(page, job.url, mostUnits), mode: "plain" };
}

/** Runs `__work` under `vm`, whose time-out interrupts any JavaScript, regular expressions included. */
const interruptible = new Script("__work()");

/** Runs the work; null when it fails (Readability overflows the stack on odd pages) or is not done in time. */
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
