/** Whole answers. */
import { vendorType } from "../../vendor/vendor-type.ts";
import type { Check } from "../check.ts";
import { fieldsIn, hello, short } from "../prompts.ts";

export const shapes: readonly Check[] = [
  {
    name: "answered",
    subject: "shapes",
    rule: "official",
    says: "A question and its stream are answered with status 200.",
    run: async (probe) => {
      for (const wish of [hello, { ...hello, stream: true }]) {
        const answer = await probe.sample(probe.form.body(wish));
        probe.expect(answer.status === 200, `status ${answer.status}: ${short(answer.text)}`, answer);
        probe.expect(answer.ended, "the connection broke before the answer's end", answer);
      }
    },
  },
  {
    name: "whole-shape",
    subject: "shapes",
    rule: "official",
    says: "A whole answer fits the type in the vendor's SDK.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(hello));
      const type = vendorType(probe.form.dialect, "Answer");
      for (const text of probe.ground.judge(type, fieldsIn(answer))) probe.fault(text, answer);
    },
  },
  {
    name: "whole-type",
    subject: "shapes",
    rule: "official",
    says: "A whole answer comes as `application/json`.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(hello));
      const type = answer.headers.get("content-type");
      probe.expect(type?.startsWith("application/json") === true, `content-type ${type}`, answer);
    },
  },
  {
    name: "whole-text",
    subject: "shapes",
    rule: "official",
    says: "A whole answer holds text, and says why it ended.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(hello));
      const { text, stop } = probe.form.said(fieldsIn(answer));
      probe.expect(text !== "" || stop === "length", "no text", answer);
      probe.expect(stop === "end" || stop === "length", `it ended with ${stop}`, answer);
    },
  },
];
