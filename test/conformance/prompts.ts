/** What is asked: a model of any maker can do it, and the scripted one as well. */
import { fieldsOf, json, type Fields } from "../grammar/sse.ts";
import type { Step } from "../fakes/upstream/script.ts";
import type { Answer } from "./client.ts";
import type { Tool, Wish } from "./forms/form.ts";

export const hello: Wish = { prompt: "Say hello" };
/** Long enough for more than one event. */
export const counting: Wish = { prompt: "Count to 20", stream: true };

const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const weather: Tool = { name: "weather", description: "Tells the weather in a city", parameters: city };
const clock: Tool = { name: "clock", description: "Tells the time in a city", parameters: city };

export const oneTool: Wish = {
  prompt: "What is the weather in Jakarta?",
  tools: [weather],
  choice: "required",
};
export const twoTools: Wish = {
  prompt: "Call both tools at once, weather and clock, for Jakarta",
  tools: [weather, clock],
};

/** Makes the scripted upstream answer so, whatever stands before it. */
export const scripted = (...steps: readonly Step[]): string =>
  `{{script: ${JSON.stringify(steps.length === 1 ? steps[0] : steps)}}}`;

export const fieldsIn = ({ text }: Pick<Answer, "text">): Fields => fieldsOf(json(text));

const SHOWN = 160;

export const short = (text: string): string => (text.length <= SHOWN ? text : `${text.slice(0, SHOWN)}…`);
