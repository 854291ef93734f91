/** What an answer says that it used. */
import { accumulated } from "../../grammar/sdk-judges.ts";
import { Skipped, type Check } from "../check.ts";
import { framesIn } from "../frames.ts";
import { counting, fieldsIn, hello, scripted } from "../prompts.ts";

const told = { input: 100, cacheRead: 40, output: 30, reasoning: 10 };

export const usage: readonly Check[] = [
  {
    name: "usage-whole",
    subject: "usage",
    rule: "official",
    says: "A whole answer reports tokens of input and output; a total is their sum, and what was cached is part of the input.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(hello));
      const { usage: used } = probe.form.said(fieldsIn(answer));
      if (used === null) return probe.fault("no usage", answer);
      const { input, output, total, cacheRead } = used;
      probe.expect(input > 0 && output > 0, `input ${input}, output ${output}`, answer);
      probe.expect(
        total === null || total === input + output,
        `total ${total}, not ${input + output}`,
        answer,
      );
      probe.expect(cacheRead <= input, `${cacheRead} cached of ${input}`, answer);
    },
  },
  {
    name: "usage-stream",
    subject: "usage",
    rule: "official",
    says: "A stream reports the same kinds of tokens in its end.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(counting));
      const whole = await accumulated[probe.form.dialect](framesIn(answer.text).plain).catch(() => null);
      if (whole === null) throw new Skipped("the SDK cannot read the stream");
      const { usage: used } = probe.form.said(whole);
      if (used === null) return probe.fault("no usage in the stream", answer);
      const { input, output } = used;
      probe.expect(input > 0 && output > 0, `input ${input}, output ${output}`, answer);
    },
  },
  {
    name: "usage-exact",
    subject: "usage",
    rule: "ours",
    needs: "scripted",
    says: "What the upstream reported arrives token for token, cached ones in their own field.",
    run: async (probe) => {
      const prompt = scripted({ answer: { parts: [{ type: "text", text: "done" }], usage: told } });
      const answer = await probe.good(probe.form.body({ prompt }));
      const { usage: used } = probe.form.said(fieldsIn(answer));
      const { input = NaN, output = NaN, cacheRead = NaN } = used ?? {};
      const all = told.input + told.cacheRead;
      probe.expect(input === all && output === told.output, `input ${input}, output ${output}`, answer);
      probe.expect(cacheRead === told.cacheRead, `${cacheRead} cached, not ${told.cacheRead}`, answer);
    },
  },
];
