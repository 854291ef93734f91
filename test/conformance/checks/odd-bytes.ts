/** Bytes that are legal but rare, and bytes that are not legal. */
import { accumulated } from "../../grammar/sdk-judges.ts";
import type { Check } from "../check.ts";
import { framesIn } from "../frames.ts";
import { fieldsIn, hello, scripted, short } from "../prompts.ts";

/** Characters of two to four bytes, joined ones, line separators that are none in JSON, marks of direction. */
const ODD_TEXT = 'é 日本 👩‍👩‍👧 \u{2028}\u{2029} \u{200F}עברית\u{200E} e\u{301} \u{FEFF}z \\n "q" <b>&amp;</b>';
const DEPTH = 1_500;

export const oddBytes: readonly Check[] = [
  {
    name: "odd-prompt",
    subject: "odd bytes",
    rule: "official",
    says: "Any Unicode text is taken.",
    run: async (probe) => {
      const answer = await probe.post(probe.form.body({ prompt: `Say hello. ${ODD_TEXT}` }));
      probe.expect(answer.status === 200, `status ${answer.status}: ${short(answer.text)}`, answer);
    },
  },
  {
    name: "escaped-json",
    subject: "odd bytes",
    rule: "official",
    says: "JSON with spaces, tabs and escapes that no SDK would write is the same JSON.",
    run: async (probe) => {
      const body = JSON.stringify({ model: probe.model, ...probe.form.body(hello) }, null, "\t");
      const escaped = body.replace('"model"', '"\\u006dodel"').replace("Say", "\\u0053ay");
      const answer = await probe.ask(probe.form.question(`\r\n ${escaped} \n`));
      probe.expect(answer.status === 200, `status ${answer.status}: ${short(answer.text)}`, answer);
    },
  },
  {
    name: "not-utf8",
    subject: "odd bytes",
    rule: "official",
    says: "A body that is not UTF-8 is not a failure of the server.",
    run: async (probe) => {
      const body = Buffer.from(JSON.stringify({ model: probe.model, ...probe.form.body(hello) }));
      body[body.indexOf("Say hello")] = 0xff;
      const answer = await probe.ask(probe.form.question(body));
      probe.expect(answer.status < 500, `status ${answer.status}: ${short(answer.text)}`, answer);
    },
  },
  {
    name: "deep-json",
    subject: "odd bytes",
    rule: "official",
    says: `JSON that is ${DEPTH} deep is taken or refused, and not a failure of the server.`,
    run: async (probe) => {
      const metadata = "[".repeat(DEPTH) + "]".repeat(DEPTH);
      const body = JSON.stringify({ model: probe.model, ...probe.form.body(hello) });
      const answer = await probe.ask(probe.form.question(`${body.slice(0, -1)},"odd":${metadata}}`));
      probe.expect(answer.status < 500, `status ${answer.status}: ${short(answer.text)}`, answer);
    },
  },
  {
    name: "exact-text",
    subject: "odd bytes",
    rule: "ours",
    needs: "scripted",
    says: "What the upstream wrote arrives character for character, whole and streamed, also one byte at a time.",
    run: async (probe) => {
      const step = { answer: { parts: [{ type: "text", text: ODD_TEXT }] } } as const;
      const whole = await probe.good(probe.form.body({ prompt: scripted(step) }));
      const said = probe.form.said(fieldsIn(whole)).text;
      probe.expect(said === ODD_TEXT, `the whole text is ${JSON.stringify(said)}`, whole);
      const prompt = scripted({ ...step, faults: { chunkBytes: 1 } });
      const stream = await probe.good(probe.form.body({ prompt, stream: true }));
      const built = await accumulated[probe.form.dialect](framesIn(stream.text).plain).catch(() => ({}));
      const streamed = probe.form.said(built).text;
      probe.expect(streamed === ODD_TEXT, `the streamed text is ${JSON.stringify(streamed)}`, stream);
    },
  },
];
