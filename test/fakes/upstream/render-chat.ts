/** Answers in the Chat Completions dialect, as the official API writes them (dialects.md §C2). */
import {
  argumentsOf,
  pieces,
  stopOf,
  usageOf,
  type Answer,
  type RenderContext,
  type Stop,
  type WireEvent,
} from "./script.ts";

const finishReasons: Record<Stop, string> = {
  end: "stop",
  length: "length",
  tool: "tool_calls",
  refusal: "stop",
  stop_sequence: "stop",
};

export function wholeCompletion(answer: Answer, context: RenderContext): object {
  const calls = toolCalls(answer, context);
  const reasoning = textOf(answer, "thinking");
  const content = textOf(answer, "text");
  const refusal = textOf(answer, "refusal");
  return {
    id: `chatcmpl-fake${context.serial}`,
    object: "chat.completion",
    created: context.createdAt,
    model: answer.model ?? context.model,
    choices: Array.from({ length: context.choices }, (_, index) => ({
      index,
      message: {
        role: "assistant",
        content: content === "" ? null : content,
        refusal: refusal === "" ? null : refusal,
        annotations: citationsOf(answer),
        ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
        ...(calls.length === 0 ? {} : { tool_calls: calls }),
        ...mediaOf(answer, context),
      },
      logprobs: null,
      finish_reason: finishReasons[stopOf(answer)],
    })),
    ...(context.noUsage ? {} : { usage: usage(answer, context) }),
    service_tier: answer.tiers?.service_tier ?? "default",
    system_fingerprint: "fp_fake",
    ...answer.extra,
  };
}

export function completionChunks(answer: Answer, context: RenderContext): WireEvent[] {
  const chunk = (choices: readonly object[], rest: object = {}): WireEvent => ({
    event: "",
    data: JSON.stringify({
      id: `chatcmpl-fake${context.serial}`,
      object: "chat.completion.chunk",
      created: context.createdAt,
      model: answer.model ?? context.model,
      service_tier: answer.tiers?.service_tier ?? "default",
      system_fingerprint: "fp_fake",
      choices,
      ...(context.includeUsage ? { usage: null } : {}),
      ...rest,
    }),
  });
  const events: WireEvent[] = [];
  for (let index = 0; index < context.choices; index += 1) {
    const delta = (fields: object) =>
      events.push(chunk([{ index, delta: fields, logprobs: null, finish_reason: null }]));
    delta({ role: "assistant", content: "", refusal: null });
    for (const fields of [...deltas(answer, context), ...mediaDeltas(answer, context)]) delta(fields);
    const citations = citationsOf(answer);
    if (citations.length > 0) delta({ annotations: citations });
  }
  for (let index = 0; index < context.choices; index += 1) {
    const finish_reason = finishReasons[stopOf(answer)];
    events.push({ ...chunk([{ index, delta: {}, logprobs: null, finish_reason }]), terminal: true });
  }
  if (context.includeUsage && !context.noUsage) {
    events.push({ ...chunk([], { usage: usage(answer, context) }), terminal: true });
  }
  events.push({ event: "", data: "[DONE]", terminal: true });
  return events;
}

function deltas(answer: Answer, context: RenderContext): object[] {
  let call = -1;
  return answer.parts.flatMap((part): object[] => {
    switch (part.type) {
      case "text":
        return pieces(part.text, answer.deltaChars).map((content) => ({ content }));
      case "refusal":
        return pieces(part.text, answer.deltaChars).map((refusal) => ({ refusal }));
      case "thinking":
        return pieces(part.text, answer.deltaChars).map((reasoning_content) => ({ reasoning_content }));
      case "tool": {
        const index = (call += 1);
        return [
          {
            tool_calls: [
              {
                index,
                id: part.id ?? `call_fake${context.serial}_${index}`,
                type: "function",
                function: { name: part.name, arguments: "" },
              },
            ],
          },
          ...pieces(argumentsOf(part.input), answer.deltaChars ?? 12).map((piece) => ({
            tool_calls: [{ index, function: { arguments: piece } }],
          })),
        ];
      }
      case "redacted":
      case "raw":
        return [];
    }
  });
}

function toolCalls(answer: Answer, context: RenderContext): object[] {
  return answer.parts
    .filter((part) => part.type === "tool")
    .map((part, index) => ({
      id: part.id ?? `call_fake${context.serial}_${index}`,
      type: "function",
      function: { name: part.name, arguments: argumentsOf(part.input) },
    }));
}

const imageOf = (url: string) => ({ type: "image_url", image_url: { url } });

/** In a whole message. */
function mediaOf({ media = {} }: Answer, context: RenderContext): object {
  const made = { id: `audio_fake${context.serial}`, expires_at: context.createdAt + 3600 };
  return {
    ...(media.speech !== undefined && { audio: { ...made, ...media.speech } }),
    ...(media.images !== undefined && { images: media.images.map(imageOf) }),
  };
}

function mediaDeltas({ media = {}, deltaChars }: Answer, context: RenderContext): object[] {
  const { speech, images = [] } = media;
  const drawn = images.map((url) => ({ images: [imageOf(url)] }));
  if (speech === undefined) return drawn;
  return [
    { audio: { id: `audio_fake${context.serial}` } },
    ...pieces(speech.transcript, deltaChars).map((transcript) => ({ audio: { transcript } })),
    ...pieces(speech.data, deltaChars ?? 500).map((data) => ({ audio: { data } })),
    { audio: { expires_at: context.createdAt + 3600 } },
    ...drawn,
  ];
}

function textOf(answer: Answer, type: "text" | "thinking" | "refusal"): string {
  return answer.parts.map((part) => (part.type === type ? part.text : "")).join("");
}

function citationsOf(answer: Answer): object[] {
  return answer.parts.flatMap((part) => (part.type === "text" ? (part.citations ?? []) : []));
}

function usage(answer: Answer, context: RenderContext) {
  const counts = usageOf(answer, context);
  const prompt = counts.input + counts.cacheRead + counts.cacheWrite5m + counts.cacheWrite1h;
  return {
    prompt_tokens: prompt,
    completion_tokens: counts.output,
    total_tokens: prompt + counts.output,
    prompt_tokens_details: { cached_tokens: counts.cacheRead, audio_tokens: counts.audio[0] },
    completion_tokens_details: {
      reasoning_tokens: counts.reasoning,
      audio_tokens: counts.audio[1],
      ...(counts.images > 0 && { image_tokens: counts.images }),
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}
