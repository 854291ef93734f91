/** What there is to judge: which dialects, with which model, and whether our scripted upstream answers. */
import { dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { fieldsOf } from "../grammar/sse.ts";
import { Skipped } from "./check.ts";
import type { Client } from "./client.ts";
import { forms } from "./forms/forms.ts";
import { fieldsIn, hello, scripted, short } from "./prompts.ts";

/** So many of the listed models are tried when none is named: others may be for images or embeddings. */
const MAX_TRIED = 5;
const ASK_MS = 60_000;
const MARK = "conformance-scripted-upstream";

export interface Target {
  readonly dialect: Dialect;
  readonly model: string;
  /** Our scripted upstream stands behind it. */
  readonly scripted: boolean;
}

export interface Found {
  readonly targets: readonly Target[];
  /** What is not there, each in a line. */
  readonly missing: readonly string[];
}

export async function discover(
  client: Client,
  named: readonly string[] | null,
  wanted: readonly Dialect[] = dialects,
): Promise<Found> {
  const targets: Target[] = [];
  const missing: string[] = [];
  const listed = named ?? (await listModels(client));
  if (typeof listed === "string")
    return { targets, missing: [`no models are listed (${listed}): name one with --models`] };
  for (const dialect of wanted) {
    const models = named ?? listed.slice(0, MAX_TRIED);
    let told = "";
    for (const model of models) {
      const answered = await tryModel(client, dialect, model);
      if (answered === null)
        targets.push({ dialect, model, scripted: await isScripted(client, dialect, model) });
      else if (named !== null) missing.push(`${dialect} with ${model}: ${answered}`);
      told = answered ?? "";
      if (answered === null && named === null) break;
    }
    if (named === null && !targets.some((target) => target.dialect === dialect))
      missing.push(`${dialect}: none of ${models.length} models answered; the last: ${told}`);
  }
  return { targets, missing };
}

/** @returns their ids, or why there are none. */
async function listModels(client: Client): Promise<readonly string[] | string> {
  const headers = { authorization: "Bearer {key}" };
  const question = { method: "GET", path: "/v1/models", headers };
  const answer = await client.ask(question, AbortSignal.timeout(ASK_MS));
  if (answer.status !== 200) return `status ${answer.status}: ${short(answer.text)}`;
  const { data } = fieldsIn(answer);
  if (!Array.isArray(data)) return "the answer is no list";
  return data.length === 0 ? "the list is empty" : data.map((model) => String(fieldsOf(model)["id"]));
}

/** Null: it answered. */
async function tryModel(client: Client, dialect: Dialect, model: string): Promise<string | null> {
  const form = forms[dialect];
  try {
    const question = form.question({ model, ...form.body(hello) });
    const { status, text } = await client.ask(question, AbortSignal.timeout(ASK_MS));
    return status === 200 ? null : `status ${status}: ${short(text)}`;
  } catch (error) {
    if (error instanceof Skipped) return `not tried: ${error.message}`;
    throw new Error(`${client.url} does not answer`, { cause: error });
  }
}

async function isScripted(client: Client, dialect: Dialect, model: string): Promise<boolean> {
  const form = forms[dialect];
  const prompt = scripted({ answer: { parts: [{ type: "text", text: MARK }] } });
  try {
    const question = form.question({ model, ...form.body({ prompt }) });
    const answer = await client.ask(question, AbortSignal.timeout(ASK_MS));
    return form.said(fieldsIn(answer)).text === MARK;
  } catch {
    return false;
  }
}
