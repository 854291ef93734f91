/**
 * The thread that tokenizes: loads the vocabulary once, then answers each list of texts with their number of tokens.
 * The main event loop waits neither for the vocabulary nor for a count.
 */
import { getHeapStatistics } from "node:v8";
import { parentPort } from "node:worker_threads";
import ranks from "gpt-tokenizer/bpeRanks/o200k_base";
import { O200K_TOKEN_SPLIT_REGEX } from "gpt-tokenizer/encodingParams/constants";
import { stepBack } from "../lib/step-back.ts";
import type { WorkDone } from "../lib/worker-pool.ts";
import { Tokenizer } from "./tokenizer.ts";
import { buildVocabulary } from "./vocabulary.ts";

const MIB = 1024 * 1024;
const tokenizer = new Tokenizer(buildVocabulary(ranks), O200K_TOKEN_SPLIT_REGEX);
// Lowers the priority only now: the first count waits for the vocabulary, and so do counts when a dead or grown thread is replaced.
stepBack();
parentPort?.on("message", ({ text, lengths }: CountingJob) => {
  let tokens = 0;
  let from = 0;
  for (const length of lengths) {
    tokens += tokenizer.count(text.slice(from, from + length));
    from += length;
  }
  const heapMiB = getHeapStatistics().total_heap_size / MIB;
  parentPort?.postMessage({ result: tokens, heapMiB } satisfies WorkDone);
});

/** Texts in one string, which is passed to a thread faster than many strings. */
export interface CountingJob {
  readonly text: string;
  readonly lengths: Uint32Array;
}
