/** What clients see when the upstream fails; only a scripted one fails when it is told to. */
import { fieldsOf, json } from "../../grammar/sse.ts";
import type { Check } from "../check.ts";
import { framesIn } from "../frames.ts";
import { scripted, short } from "../prompts.ts";

const text = { type: "text", text: "one two three four five six" } as const;
const SECRET = "acct_secret";

export const upstreamFaults: readonly Check[] = [
  {
    name: "upstream-cut",
    subject: "upstream faults",
    rule: "ours",
    needs: "scripted",
    says: "A stream that its upstream broke off ends in the dialect's error, and not as if it were whole.",
    run: async (probe) => {
      const prompt = scripted({ answer: { parts: [text] }, faults: { cutAtEvent: 6 } });
      const answer = await probe.post(probe.form.body({ prompt, stream: true }));
      // Before its first byte a stream may still become an HTTP error.
      if (answer.status >= 500) return;
      const data = framesIn(answer.text).frames.at(-1)?.data ?? "nothing";
      const last = fieldsOf(json(data));
      const isError = last["type"] === "error" || "error" in last;
      probe.expect(isError, `it ends with ${short(data)}`, answer);
      probe.expect(answer.ended, "the connection broke without a word", answer);
    },
  },
  {
    name: "upstream-error",
    subject: "upstream faults",
    rule: "ours",
    needs: "scripted",
    slow: true,
    says: "An upstream's 500 becomes a 5xx with an error in the dialect's type.",
    run: async (probe) => {
      const prompt = scripted({ error: { status: 500 } });
      const answer = await probe.post(probe.form.body({ prompt }));
      probe.expect(answer.status >= 500, `status ${answer.status}`, answer);
      const type = probe.form.dialect === "messages" ? "MessagesError" : "OpenaiError";
      for (const fault of probe.ground.judge(type, json(answer.text))) probe.fault(fault, answer);
    },
  },
  {
    name: "upstream-hidden",
    subject: "upstream faults",
    rule: "ours",
    needs: "scripted",
    slow: true,
    says: "What the provider said about its account stays hidden.",
    run: async (probe) => {
      const prompt = scripted({ error: { status: 401, message: `the key of ${SECRET} is wrong` } });
      const answer = await probe.post(probe.form.body({ prompt }));
      probe.expect(!answer.text.includes(SECRET), "the provider's own words", answer);
      probe.expect(answer.status >= 500, `status ${answer.status}: the client's key is right`, answer);
    },
  },
];
