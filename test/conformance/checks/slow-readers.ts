/** Clients that read slowly. */
import type { Check } from "../check.ts";
import type { Answer } from "../client.ts";
import { framesIn } from "../frames.ts";
import { counting, scripted } from "../prompts.ts";

const READ_EVERY_MS = 20;
/** More than what the sockets between hold. */
const MUCH_BYTES = 6 * 1024 * 1024;

export const slowReaders: readonly Check[] = [
  {
    name: "slow-stream",
    subject: "slow readers",
    rule: "official",
    slow: true,
    says: "A client that reads slowly gets all of its stream.",
    run: async (probe) => {
      const body = probe.form.body({ prompt: "Count to 40", stream: true });
      const answer = await probe.goodPost(body, { readEveryMs: READ_EVERY_MS });
      probe.expect(answer.ended, "the stream broke off", answer);
      const stops = ({ text }: Answer) =>
        probe.form.orderFaults(framesIn(text).plain).find((fault) => fault.startsWith("the stream stops"));
      // What ends so for quick readers as well is not of the slowness.
      const quick = stops(await probe.good(probe.form.body(counting)));
      const slow = stops(answer);
      if (slow !== undefined && slow !== quick) probe.fault(slow, answer);
    },
  },
  {
    name: "slow-large-stream",
    subject: "slow readers",
    rule: "ours",
    needs: "scripted",
    slow: true,
    says: "A stream that is larger than every buffer on the way reaches a slow client whole.",
    run: async (probe) => {
      const prompt = scripted({
        // One letter of text beside what `hugeBytes` adds, and a report that leaves the budget to others.
        answer: { parts: [{ type: "text", text: "x" }], usage: { input: 10, output: 10 } },
        faults: { hugeBytes: MUCH_BYTES, atOnce: true },
      });
      const answer = await probe.goodPost(probe.form.body({ prompt, stream: true }), { readEveryMs: 5 });
      probe.expect(answer.ended, "the stream broke off", answer);
      probe.expect(
        answer.bytes.length >= MUCH_BYTES,
        `${answer.bytes.length} of ${MUCH_BYTES} bytes`,
        answer,
      );
    },
  },
];
