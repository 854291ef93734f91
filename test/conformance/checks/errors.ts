/** What is refused, and how it is told. */
import { fieldsOf, type Fields } from "../../grammar/sse.ts";
import type { Check, Probe } from "../check.ts";
import type { Answer, Question } from "../client.ts";
import { fieldsIn, hello, short } from "../prompts.ts";

const WRONG_KEY = "sk-conformance-of-nobody";

const errorOf = (answer: Answer): Fields => fieldsOf(fieldsIn(answer)["error"]);

/** The status, and the vendor's word for it. */
function refused(probe: Probe, answer: Answer, status: number): void {
  if (answer.status !== status)
    return probe.fault(`status ${answer.status}, not ${status}: ${short(answer.text)}`, answer);
  const type = probe.form.errorType(status);
  const said = errorOf(answer)["type"];
  probe.expect(type === null || said === type, `error.type is ${String(said)}, not ${type}`, answer);
}

const withoutKey = (question: Question): Question => {
  const { authorization: _1, "x-api-key": _2, ...headers } = question.headers;
  return { ...question, headers };
};

const question = (probe: Probe, body: object) => probe.form.question({ model: probe.model, ...body });

/** Asked by several checks; what it costs is nothing. */
const noMessages = (probe: Probe) => {
  const { [probe.form.required]: _, ...body } = probe.form.body(hello);
  return body;
};

export const errors: readonly Check[] = [
  {
    name: "error-body",
    subject: "errors",
    rule: "official",
    says: "An error's body fits the type in the vendor's SDK, and comes as `application/json`.",
    run: async (probe) => {
      const answer = await probe.sample(noMessages(probe));
      const type = probe.form.dialect === "messages" ? "MessagesError" : "OpenaiError";
      if (answer.status < 400) return;
      for (const text of probe.ground.judge(type, fieldsIn(answer))) probe.fault(text, answer);
      const media = answer.headers.get("content-type");
      probe.expect(media?.startsWith("application/json") === true, `content-type ${media}`, answer);
    },
  },
  {
    name: "error-missing-field",
    subject: "errors",
    rule: "official",
    says: "A request without its messages (or input) is refused with 400.",
    run: async (probe) => refused(probe, await probe.sample(noMessages(probe)), 400),
  },
  {
    name: "error-wrong-type",
    subject: "errors",
    rule: "official",
    says: "A field of the wrong type is refused with 400.",
    run: async (probe) => {
      const body = { ...probe.form.body(hello), [probe.form.required]: 7 };
      refused(probe, await probe.post(body), 400);
    },
  },
  {
    name: "error-not-json",
    subject: "errors",
    rule: "official",
    says: "A body that is not JSON is refused with 400.",
    run: async (probe) => refused(probe, await probe.ask(probe.form.question('{"model":')), 400),
  },
  {
    name: "error-model",
    subject: "errors",
    rule: "official",
    says: "An unknown model is refused with 404.",
    run: async (probe) => {
      const body = { ...probe.form.body(hello), model: "no-model-of-this-name" };
      refused(probe, await probe.post(body), 404);
    },
  },
  {
    name: "error-model-code",
    subject: "errors",
    rule: "official",
    dialects: ["chat", "responses"],
    says: "An unknown model has the code `model_not_found`.",
    run: async (probe) => {
      const answer = await probe.post({ ...probe.form.body(hello), model: "no-model-of-this-name" });
      if (answer.status !== 404) return;
      const { code } = errorOf(answer);
      probe.expect(code === "model_not_found", `error.code is ${String(code)}`, answer);
    },
  },
  {
    name: "error-no-key",
    subject: "errors",
    rule: "official",
    says: "A request without a key is refused with 401.",
    run: async (probe) =>
      refused(probe, await probe.ask(withoutKey(question(probe, probe.form.body(hello)))), 401),
  },
  {
    name: "error-wrong-key",
    subject: "errors",
    rule: "official",
    says: "A request with an unknown key is refused with 401.",
    run: async (probe) => {
      const asked = withoutKey(question(probe, probe.form.body(hello)));
      const headers = { ...asked.headers, authorization: `Bearer ${WRONG_KEY}` };
      refused(probe, await probe.ask({ ...asked, headers }), 401);
    },
  },
  {
    name: "error-key-code",
    subject: "errors",
    rule: "official",
    dialects: ["chat", "responses"],
    says: "An unknown key has the code `invalid_api_key`.",
    run: async (probe) => {
      const asked = withoutKey(question(probe, probe.form.body(hello)));
      const headers = { ...asked.headers, authorization: `Bearer ${WRONG_KEY}` };
      const answer = await probe.ask({ ...asked, headers });
      if (answer.status !== 401) return;
      const { code } = errorOf(answer);
      probe.expect(code === "invalid_api_key", `error.code is ${String(code)}`, answer);
    },
  },
  {
    name: "error-before-stream",
    subject: "errors",
    rule: "official",
    says: "A stream that cannot begin is refused with an HTTP status and JSON, not inside a stream.",
    run: async (probe) => {
      const body = { ...probe.form.body({ ...hello, stream: true }), [probe.form.required]: 7 };
      const answer = await probe.post(body);
      const media = answer.headers.get("content-type");
      probe.expect(answer.status >= 400 && answer.status < 500, `status ${answer.status}`, answer);
      probe.expect(media?.startsWith("application/json") === true, `content-type ${media}`, answer);
    },
  },
  {
    name: "error-no-retry",
    subject: "errors",
    rule: "ours",
    says: "What would fail again says `x-should-retry: false`.",
    run: async (probe) => {
      const answer = await probe.sample(noMessages(probe));
      if (answer.status !== 400) return;
      const retry = answer.headers.get("x-should-retry");
      probe.expect(retry === "false", `x-should-retry is ${retry}`, answer);
    },
  },
  {
    name: "error-names-field",
    subject: "errors",
    rule: "ours",
    says: "An error of a field names it in its message.",
    run: async (probe) => {
      const answer = await probe.sample(noMessages(probe));
      if (answer.status !== 400) return;
      const message = String(errorOf(answer)["message"]);
      probe.expect(message.includes(probe.form.required), `the message is: ${short(message)}`, answer);
    },
  },
  {
    name: "error-method",
    subject: "errors",
    rule: "ours",
    says: "Another method than POST is refused with 405.",
    run: async (probe) => {
      const { body: _, ...asked } = question(probe, {});
      const answer = await probe.ask({ ...asked, method: "PUT" });
      probe.expect(answer.status === 405, `status ${answer.status}, not 405`, answer);
    },
  },
];
