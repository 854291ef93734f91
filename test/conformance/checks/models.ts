/** The list of models, once for the gateway. */
import { fieldsOf, type Fields } from "../../grammar/sse.ts";
import { Skipped, type Check, type Probe } from "../check.ts";
import type { Answer } from "../client.ts";
import { fieldsIn, short } from "../prompts.ts";

const styles = {
  openai: { authorization: "Bearer {key}" },
  messages: { "x-api-key": "{key}", "anthropic-version": "2023-06-01" },
} as const;

async function get(probe: Probe, style: keyof typeof styles, path = "") {
  const answer = await probe.ask({ method: "GET", path: `/v1/models${path}`, headers: styles[style] });
  if (path === "" && answer.status !== 200) throw new Skipped(`no list of models: status ${answer.status}`);
  return answer;
}

const modelsIn = (answer: Answer): Fields[] => {
  const { data } = fieldsIn(answer);
  return Array.isArray(data) ? data.map(fieldsOf) : [];
};

export const models: readonly Check[] = [
  {
    name: "models-openai",
    subject: "models",
    rule: "official",
    dialects: ["chat", "responses"],
    says: "The list of models fits the type in the vendor's SDK.",
    run: async (probe) => {
      const answer = await get(probe, "openai");
      probe.expect(fieldsIn(answer)["object"] === "list", "object is not list", answer);
      probe.expect(modelsIn(answer).length > 0, "no models", answer);
      for (const model of modelsIn(answer))
        for (const text of probe.ground.judge("OpenaiModel", model)) probe.fault(text, answer);
    },
  },
  {
    name: "models-messages",
    subject: "models",
    rule: "official",
    dialects: ["messages"],
    says: "With `anthropic-version` the list of models fits the type in the vendor's SDK.",
    run: async (probe) => {
      const answer = await get(probe, "messages");
      const { first_id: first, last_id: last, has_more: more } = fieldsIn(answer);
      const list = modelsIn(answer);
      probe.expect(list.length > 0, "no models", answer);
      probe.expect(typeof more === "boolean", "no has_more", answer);
      probe.expect(first === list[0]?.["id"] && last === list.at(-1)?.["id"], "first_id or last_id", answer);
      for (const model of list)
        for (const text of probe.ground.judge("MessagesModel", model)) probe.fault(text, answer);
    },
  },
  {
    name: "model",
    subject: "models",
    rule: "official",
    says: "A model can be asked for by its id, and an unknown one is 404.",
    run: async (probe) => {
      const style = probe.form.dialect === "messages" ? "messages" : "openai";
      await get(probe, style);
      const answer = await get(probe, style, `/${encodeURIComponent(probe.model)}`);
      probe.expect(answer.status === 200, `status ${answer.status}: ${short(answer.text)}`, answer);
      const { id } = fieldsIn(answer);
      probe.expect(answer.status !== 200 || id === probe.model, `id is ${String(id)}`, answer);
      const unknown = await get(probe, style, "/no-model-of-this-name");
      probe.expect(unknown.status === 404, `an unknown model: status ${unknown.status}`, unknown);
    },
  },
  {
    name: "model-listed",
    subject: "models",
    rule: "ours",
    says: "The list names the model that answers.",
    run: async (probe) => {
      const answer = await get(probe, probe.form.dialect === "messages" ? "messages" : "openai");
      const named = modelsIn(answer).some(({ id }) => id === probe.model);
      probe.expect(named, `${probe.model} is not in the list`, answer);
    },
  },
];
