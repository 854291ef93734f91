/** Loops with the client's own tools. */
import { accumulated } from "../../grammar/sdk-judges.ts";
import { fieldsOf } from "../../grammar/sse.ts";
import { Skipped, type Check, type Probe } from "../check.ts";
import type { Answer } from "../client.ts";
import type { Said, Wish } from "../forms/form.ts";
import { framesIn } from "../frames.ts";
import { fieldsIn, oneTool, short, twoTools } from "../prompts.ts";

/** Each call is one of the tools, has an id of its own, and arguments that fit. */
function judgeCalls(probe: Probe, { calls, stop }: Said, wish: Wish, answer: Answer): void {
  if (stop === "length") throw new Skipped("the model did not finish within its tokens");
  probe.expect(calls.length > 0, "no call of the tool that it had to call", answer);
  probe.expect(calls.length === 0 || stop === "tool", `calls, but it ended with "${stop}"`, answer);
  probe.expect(new Set(calls.map(({ id }) => id)).size === calls.length, "two calls with one id", answer);
  for (const { name, input } of calls) {
    const known = wish.tools?.some((tool) => tool.name === name) === true;
    probe.expect(known, `a call of ${name}, which nobody declared`, answer);
    probe.expect(typeof fieldsOf(input)["city"] === "string", `arguments: ${JSON.stringify(input)}`, answer);
  }
}

export const tools: readonly Check[] = [
  {
    name: "tool-call",
    subject: "tools",
    rule: "official",
    says: "A forced tool is called: the call has an id, its name, arguments that fit, and the answer ends for it.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(oneTool));
      judgeCalls(probe, probe.form.said(fieldsIn(answer)), oneTool, answer);
    },
  },
  {
    name: "tool-call-stream",
    subject: "tools",
    rule: "official",
    says: "The same call comes as a stream in the vendor's order, which the vendor's SDK puts together.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body({ ...oneTool, stream: true }));
      const { plain } = framesIn(answer.text);
      for (const text of probe.form.orderFaults(plain))
        if (!probe.form.houseRules.some((rule) => rule.test(text))) probe.fault(text, answer);
      await accumulated[probe.form.dialect](plain).then(
        (whole) => judgeCalls(probe, probe.form.said(whole), oneTool, answer),
        (error: unknown) => {
          if (error instanceof Skipped) throw error;
          probe.fault(`the SDK throws: ${String(error)}`, answer);
        },
      );
    },
  },
  {
    name: "tool-loop",
    subject: "tools",
    rule: "official",
    says: "A tool's result is taken with the answer as it came, and words follow.",
    run: async (probe) => {
      const first = await probe.good(probe.form.body(oneTool));
      if (probe.form.said(fieldsIn(first)).calls.length === 0) throw new Skipped("no call to answer");
      const wish: Wish = { ...oneTool, choice: "auto" };
      const answer = await probe.post(probe.form.followUp(wish, fieldsIn(first), "31 degrees, sunny"));
      if (answer.status !== 200) return probe.fault(`status ${answer.status}: ${short(answer.text)}`, answer);
      const { text, stop } = probe.form.said(fieldsIn(answer));
      if (stop === "length" || stop === "tool") return;
      probe.expect(text !== "", "no words after the tool's result", answer);
    },
  },
  {
    name: "tool-parallel",
    subject: "tools",
    rule: "official",
    says: "Several calls in one answer have ids of their own, and their results are taken together.",
    run: async (probe) => {
      const first = await probe.good(probe.form.body(twoTools));
      const said = probe.form.said(fieldsIn(first));
      if (said.calls.length < 2) {
        probe.expect(!probe.ground.scripted, `${said.calls.length} calls, not 2`, first);
        throw new Skipped("the model called one tool at a time");
      }
      judgeCalls(probe, said, twoTools, first);
      const answer = await probe.post(probe.form.followUp(twoTools, fieldsIn(first), "sunny, 12:00"));
      probe.expect(answer.status === 200, `status ${answer.status}: ${short(answer.text)}`, answer);
    },
  },
  {
    name: "tool-one-at-a-time",
    subject: "tools",
    rule: "official",
    says: "Where parallel calls are off there is at most one.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body({ ...twoTools, parallel: false }));
      const { calls } = probe.form.said(fieldsIn(answer));
      probe.expect(calls.length < 2, `${calls.length} calls at once`, answer);
    },
  },
  {
    name: "tool-none",
    subject: "tools",
    rule: "official",
    says: "Where tools are declared but may not be called there is no call.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body({ ...oneTool, choice: "none" }));
      const { calls } = probe.form.said(fieldsIn(answer));
      probe.expect(calls.length === 0, `a call of ${calls[0]?.name}`, answer);
    },
  },
];
