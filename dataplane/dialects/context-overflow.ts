/**
 * A prompt that does not fit into a model's context: the two sentences of Messages, whose numbers Claude Code reads (dialects.md §A2),
 * and how other providers say the same. Pure.
 */
const number = String.raw`(\d[\d,_]*)`;
const overflows = {
  prompt: new RegExp(`prompt is too long: ${number} tokens > ${number} maximum`, "i"),
  sum: new RegExp(
    `input length and .?max_tokens.? exceed context limit: ${number} \\+ ${number} > ${number}`,
    "i",
  ),
  /** OpenAI (its Responses have a "configured limit"), vLLM, OpenRouter and many others, with and without the completion's share. */
  openai: new RegExp(
    `(?:maximum context length is|configured limit of) ${number} tokens.*?(?:resulted in|requested(?: about)?) ${number} tokens(?: \\(${number} (?:in the messages|of text input), ${number} in the (?:completion|output)\\))?`,
    "is",
  ),
  gemini: new RegExp(
    `token count \\(?${number}\\)? exceeds the maximum number of tokens allowed \\(?${number}`,
    "i",
  ),
  /** llama.cpp: "the request exceeds the available context size". */
  words:
    /context[ _]length|context window|context size|too many tokens|prompt is too long|input is too long/i,
};

const digits = (text: string | undefined) => (text ?? "").replaceAll(/[,_]/g, "");
const longPrompt = (tokens: string | undefined, most: string | undefined) =>
  `prompt is too long: ${digits(tokens)} tokens > ${digits(most)} maximum`;
const longSum = (input: string | undefined, output: string | undefined, most: string | undefined) =>
  `input length and \`max_tokens\` exceed context limit: ${digits(input)} + ${digits(output)} > ${digits(most)}`;

/** Returns the Messages sentence in an upstream's message; null when it holds none. */
export function saidSentence(message: string): string | null {
  const prompt = overflows.prompt.exec(message);
  if (prompt !== null) return longPrompt(prompt[1], prompt[2]);
  const sum = overflows.sum.exec(message);
  return sum === null ? null : longSum(sum[1], sum[2], sum[3]);
}

/** Returns the Messages sentence for another provider's error; null when the error is about something else. */
export function sentenceOf({
  message,
  code,
}: {
  readonly message: string;
  readonly code: string;
}): string | null {
  const openai = overflows.openai.exec(message);
  if (openai !== null)
    return openai[3] === undefined
      ? longPrompt(openai[2], openai[1])
      : longSum(openai[3], openai[4], openai[1]);
  const gemini = overflows.gemini.exec(message);
  if (gemini !== null) return longPrompt(gemini[1], gemini[2]);
  if (code === "context_length_exceeded" || overflows.words.test(message))
    return "prompt is too long: it does not fit into the model's context window";
  return null;
}
