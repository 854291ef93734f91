/** What bounds an answer. */
import { accumulated } from "../../grammar/sdk-judges.ts";
import { Skipped, type Check } from "../check.ts";
import type { Wish } from "../forms/form.ts";
import { framesIn } from "../frames.ts";
import { fieldsIn } from "../prompts.ts";

/** The least that Responses takes. */
const FEW_TOKENS = 16;
/** Models may count the token that ends an answer. */
const SLACK_TOKENS = 1;
const long: Wish = { prompt: "Count to 200", maxTokens: FEW_TOKENS };
const stopped: Wish = { prompt: "Count to 20", stop: "7" };

export const limits: readonly Check[] = [
  {
    name: "max-tokens",
    subject: "limits",
    rule: "official",
    says: "An answer ends at the most tokens that the client wants, and says so.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(long));
      const { stop, usage } = probe.form.said(fieldsIn(answer));
      probe.expect(stop === "length", `it ended with "${stop}"`, answer);
      const most = FEW_TOKENS + SLACK_TOKENS;
      probe.expect((usage?.output ?? 0) <= most, `${usage?.output} tokens of output`, answer);
    },
  },
  {
    name: "max-tokens-stream",
    subject: "limits",
    rule: "official",
    says: "A stream ends there as well, and says so.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body({ ...long, stream: true }));
      const whole = await accumulated[probe.form.dialect](framesIn(answer.text).plain).catch(() => null);
      if (whole === null) throw new Skipped("the SDK cannot read the stream");
      const { stop } = probe.form.said(whole);
      probe.expect(stop === "length", `it ended with "${stop}"`, answer);
    },
  },
  {
    name: "max-tokens-negative",
    subject: "limits",
    rule: "official",
    says: "A negative number of tokens is refused with 400.",
    run: async (probe) => {
      const answer = await probe.post(probe.form.body({ ...long, maxTokens: -1 }));
      probe.expect(answer.status === 400, `status ${answer.status}, not 400`, answer);
    },
  },
  {
    name: "stop-sequence",
    subject: "limits",
    rule: "official",
    dialects: ["messages", "chat"],
    says: "A stop sequence ends the answer, and is not part of it.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(stopped));
      const { text, stop } = probe.form.said(fieldsIn(answer));
      if (stop === "length") throw new Skipped("the model did not finish within its tokens");
      probe.expect(!text.includes("7"), `the text goes on: ${text}`, answer);
      const wanted = probe.form.dialect === "messages" ? "stop sequence" : "end";
      probe.expect(stop === wanted, `it ended with "${stop}"`, answer);
    },
  },
];
